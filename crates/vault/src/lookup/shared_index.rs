//! The index over chunks of other disks: one of three kinds, or none, by the policy.

use crate::base::error::Result;
use crate::base::policy::{Global, Policy};
use crate::container::tables::{ChunkPlace, Tables};
use crate::lookup::global_index::GlobalIndex;
use crate::lookup::popular::PopularIndex;
use crate::lookup::segment_index::SegmentIndex;
use crate::manifest::container_table::Containers;
use crate::manifest::session::Session;
use crate::manifest::vault::Vault;
use chunk::{Fingerprint, Piece};
use format::{ContainerId, Reference, SegmentRecipe};

/// An index over chunks that other disks may share. Its claims stand as long as it lives: until the commit.
pub(crate) enum SharedIndex {
    /// Other disks are not looked at.
    Off,
    /// Every chunk of the shared set.
    Chunks(GlobalIndex),
    /// Whole segments of the shared set.
    Segments(SegmentIndex),
    /// The popular set, whose hits count in runs of so many chunks.
    Popular { index: PopularIndex, shortest_run: usize },
}

impl SharedIndex {
    /// The index of a policy. `shared` is the backup's session in the shared set, where it has one.
    pub fn load(
        vault: &Vault,
        policy: &Policy,
        tables: &Tables,
        session: &Session,
        shared: Option<&Session>,
    ) -> Result<SharedIndex> {
        let containers = shared.map(|s| (s, Containers::new(s.folder.clone(), &s.manifest)));
        Ok(match (policy.global, containers) {
            (Global::Chunks { index_bytes }, Some((s, containers))) => {
                SharedIndex::Chunks(GlobalIndex::load(&s.folder, &containers, s, index_bytes)?)
            }
            (Global::Segments, Some((s, containers))) => {
                SharedIndex::Segments(SegmentIndex::load(&s.folder, &containers, s)?)
            }
            (Global::Popular { shortest_run }, _) if tables.has_shared() => {
                match PopularIndex::load(&vault.shared(), session) {
                    Some(index) => SharedIndex::Popular { index, shortest_run },
                    None => SharedIndex::Off,
                }
            }
            _ => SharedIndex::Off,
        })
    }

    /// The references of a segment that another disk has stored whole.
    pub fn find_segment(
        &mut self,
        tables: &Tables,
        fingerprint: &Fingerprint,
        pieces: &[Piece],
        chunks: &[Fingerprint],
    ) -> Result<Option<Vec<Reference>>> {
        match self {
            SharedIndex::Segments(index) => index.find(tables, fingerprint, pieces, chunks),
            _ => Ok(None),
        }
    }

    /// Where a single chunk of `bytes` bytes is.
    pub fn find_chunk(&mut self, tables: &Tables, f: &Fingerprint, bytes: u32) -> Result<Option<ChunkPlace>> {
        match self {
            SharedIndex::Chunks(index) => index.find(tables, f, bytes),
            _ => Ok(None),
        }
    }

    /// Fills in where runs of chunks are that have not been found.
    pub fn find_runs(
        &mut self,
        tables: &Tables,
        fingerprints: &[Fingerprint],
        lengths: &[u32],
        found: &mut [Option<ChunkPlace>],
    ) -> Result<()> {
        match self {
            SharedIndex::Popular { index, shortest_run } => {
                index.fill(tables, fingerprints, lengths, *shortest_run, found)
            }
            _ => Ok(()),
        }
    }

    /// Remembers a segment that this backup has placed.
    pub fn add(&mut self, segment: &SegmentRecipe) {
        if let SharedIndex::Segments(index) = self {
            index.add(segment);
        }
    }

    /// The containers of other owners that may be referenced by now.
    pub fn matched(&self) -> Vec<ContainerId> {
        match self {
            SharedIndex::Off => Vec::new(),
            SharedIndex::Chunks(index) => index.matched().collect(),
            SharedIndex::Segments(index) => index.matched().collect(),
            SharedIndex::Popular { index, .. } => index.matched().collect(),
        }
    }

    /// Writes down what later backups may find of this one.
    pub fn save(&self, shared: &Session) -> Result<()> {
        match self {
            SharedIndex::Segments(index) => index.save(shared),
            _ => Ok(()),
        }
    }
}
