//! What a backup finds among the chunks of other disks, and what later backups may find of it.

use crate::base::error::Result;
use crate::base::policy::{Global, Policy};
use crate::container::tables::Tables;
use crate::lookup::champions::{Champions, ChunkSearch};
use crate::lookup::claims::Claims;
use crate::lookup::hooks::{self, Hooks};
use crate::lookup::popular::PopularIndex;
use crate::lookup::whole_segments::{in_one_place, references, FreshSegments};
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::manifest::vault::Vault;
use chunk::{Fingerprint, Piece};
use format::{ContainerId, DiskId, Hook, OwnerNo, Reference, SegmentRecipe};
use std::collections::HashMap;

/// Hooks that are kept in memory until they are put: those of 64 GiB, 16 MiB of memory.
const HOOKS_AT_ONCE: usize = 1 << 20;
/// Hooks that are looked up in a row for a better place of chunks and lead to none: most disks never have one.
const VAIN_LOOKUPS_MAX: u32 = 16;
/// Bytes of hooks that a backup joins.
const JOIN_BYTES_MAX: u64 = 32 << 20;

/// The search among other disks. Its claims stand as long as it lives: until the commit.
pub(crate) enum OtherDisks {
    /// Other disks are not looked at.
    Off,
    /// Chunks of all disks, found by hooks.
    Hooked(Box<Hooked>),
    /// The popular set, whose hits count in runs of so many chunks.
    Popular { index: Box<PopularIndex>, shortest_run: usize },
}

/// The search by hooks.
pub(crate) struct Hooked {
    folder: Folder,
    /// What is a hook.
    by: HookedBy,
    hooks: Hooks,
    claims: Claims,
    champions: Champions,
    /// Hooks of what this backup has written.
    fresh: Vec<(u64, ContainerId)>,
    /// Those that were put because they were many.
    put: Vec<String>,
    /// Whether any hooks were put, also those that [`OtherDisks::save`] has taken out of `put`.
    has_put: bool,
    segments: FreshSegments,
    /// Hooks that were looked up for a better place of chunks, since one led to one.
    vain_lookups: u32,
}

#[derive(Clone, Copy)]
enum HookedBy {
    /// Chunks of which one in 2^`sampled` is a hook. So many containers are looked at for a segment.
    Chunks { sampled: u32, champions: usize },
    /// Whole segments (RevDedup 3.1).
    Segments,
}

impl OtherDisks {
    /// The search of a policy, for a backup.
    pub fn load(vault: &Vault, policy: &Policy, session: &Session) -> Result<OtherDisks> {
        let by = match policy.global {
            Global::Off => return Ok(OtherDisks::Off),
            Global::Popular { shortest_run } => {
                return Ok(match PopularIndex::load(&vault.popular(), session) {
                    Some(index) => OtherDisks::Popular { index: Box::new(index), shortest_run },
                    None => OtherDisks::Off,
                });
            }
            Global::Chunks { sampled, champions } => HookedBy::Chunks { sampled, champions },
            Global::Segments => HookedBy::Segments,
        };
        let folder = session.folder.clone();
        Ok(OtherDisks::Hooked(Box::new(Hooked {
            by,
            hooks: Hooks::new(&folder),
            claims: Claims::new(session),
            champions: Champions::new(&folder),
            fresh: Vec::new(),
            put: Vec::new(),
            has_put: false,
            segments: FreshSegments::default(),
            vain_lookups: 0,
            folder,
        })))
    }

    /// Whether it finds the chunks of any disk.
    pub fn finds_chunks_of_all(&self) -> bool {
        matches!(self, OtherDisks::Hooked(h) if matches!(h.by, HookedBy::Chunks { .. }))
    }

    /// The references of a segment that any disk has stored whole.
    pub fn find_segment(
        &mut self,
        tables: &Tables,
        fingerprint: &Fingerprint,
        pieces: &[Piece],
        chunks: &[Fingerprint],
    ) -> Result<Option<Vec<Reference>>> {
        match self {
            OtherDisks::Hooked(hooked) => hooked.find_segment(tables, fingerprint, pieces, chunks),
            _ => Ok(None),
        }
    }

    /// Fills in where chunks are that have not been found.
    pub fn find_chunks(&mut self, search: &mut ChunkSearch<'_>) -> Result<()> {
        match self {
            OtherDisks::Off => Ok(()),
            OtherDisks::Hooked(hooked) => hooked.find_chunks(search),
            OtherDisks::Popular { index, shortest_run } => index.fill(*shortest_run, search),
        }
    }

    /// The same for chunks that are to be moved, from places that do not count. What is known in memory is looked at, and
    /// what one hook leads to: those of all chunks might be looked up in vain, backup after backup.
    pub fn find_elsewhere(&mut self, search: &mut ChunkSearch<'_>) -> Result<()> {
        match self {
            OtherDisks::Hooked(hooked) => hooked.find_elsewhere(search),
            _ => Ok(()),
        }
    }

    /// Remembers a chunk that this backup has placed.
    pub fn add_chunk(&mut self, f: &Fingerprint, container: ContainerId) -> Result<()> {
        match self {
            OtherDisks::Hooked(hooked) => hooked.add_chunk(f, container),
            _ => Ok(()),
        }
    }

    /// Remembers a segment that this backup has placed.
    pub fn add_segment(&mut self, segment: &SegmentRecipe) -> Result<()> {
        match self {
            OtherDisks::Hooked(hooked) => hooked.add_segment(segment),
            _ => Ok(()),
        }
    }

    /// The containers of other owners that may be referenced by now, as their owners name them.
    pub fn matched(&self) -> Vec<(DiskId, ContainerId)> {
        match self {
            OtherDisks::Off => Vec::new(),
            OtherDisks::Hooked(h) => h.champions.matched().filter(|m| m.0 != h.folder.disk).collect(),
            OtherDisks::Popular { index, .. } => index.matched().map(|id| (DiskId::POPULAR, id)).collect(),
        }
    }

    /// Writes down what later backups may find of this one. They find nothing before it has committed.
    pub fn save(&mut self, session: &Session) -> Result<()> {
        match self {
            OtherDisks::Hooked(hooked) => {
                hooked.put_fresh()?;
                hooked.put.drain(..).for_each(|name| session.wrote(name));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Keeps the index in few objects. What fails is for the next backup to do.
    pub fn tidy(&self) {
        // A backup that has put no hooks has added no object.
        if let OtherDisks::Hooked(hooked) = self {
            if !hooked.has_put {
                return;
            }
            let _ = hooks::join(&hooked.folder, JOIN_BYTES_MAX, false);
        }
    }
}

impl Hooked {
    fn is_hook(&self, f: &Fingerprint) -> bool {
        match self.by {
            HookedBy::Chunks { sampled, .. } => is_sampled(&f.0, sampled),
            HookedBy::Segments => false,
        }
    }

    fn find_chunks(&mut self, search: &mut ChunkSearch<'_>) -> Result<()> {
        let HookedBy::Chunks { champions: most, .. } = self.by else { return Ok(()) };
        if !self.champions.fill(usize::MAX, search) {
            return Ok(());
        }
        let looked_up: Vec<Fingerprint> = search.missing().filter(|f| self.is_hook(f)).copied().collect();
        let mut votes: HashMap<(DiskId, ContainerId), u32> = HashMap::new();
        for place in self.hooks.find_all(&looked_up)?.into_iter().flatten() {
            *votes.entry(place).or_default() += 1;
        }
        votes.retain(|(owner, id), _| !self.champions.has(*owner, *id));
        let mut votes: Vec<_> = votes.into_iter().collect();
        votes.sort_unstable_by_key(|(place, votes)| (std::cmp::Reverse(*votes), *place));
        for ((owner, id), _) in votes.into_iter().take(most) {
            let is_new = self.champions.add(&mut self.claims, owner, id)?;
            if is_new && !self.champions.fill(1, search) {
                break;
            }
        }
        Ok(())
    }

    fn find_elsewhere(&mut self, search: &mut ChunkSearch<'_>) -> Result<()> {
        if !self.champions.fill(usize::MAX, search) {
            return Ok(());
        }
        let Some(hook) = search.missing().find(|f| self.is_hook(f)).copied() else { return Ok(()) };
        if self.vain_lookups >= VAIN_LOOKUPS_MAX {
            return Ok(());
        }
        self.vain_lookups += 1;
        // The newest copy is the one that was written again.
        let newest = self.hooks.find(&hook)?.into_iter().max_by_key(|(_, id)| id.writer());
        if let Some((owner, id)) = newest.filter(|(owner, id)| !self.champions.has(*owner, *id)) {
            let before = search.missing().count();
            if self.champions.add(&mut self.claims, owner, id)? {
                self.champions.fill(1, search);
            }
            if search.missing().count() < before {
                self.vain_lookups = 0;
            }
        }
        Ok(())
    }

    fn find_segment(
        &mut self,
        tables: &Tables,
        fingerprint: &Fingerprint,
        pieces: &[Piece],
        chunks: &[Fingerprint],
    ) -> Result<Option<Vec<Reference>>> {
        let HookedBy::Segments = self.by else { return Ok(None) };
        if let Some((container, first)) = self.segments.find(fingerprint) {
            return Ok(Some(references(pieces, container, first)));
        }
        let lengths: Vec<u32> =
            pieces.iter().filter(|p| matches!(p, Piece::Data { .. })).map(|p| p.bytes()).collect();
        for (owner, id) in self.hooks.find(fingerprint)? {
            if !self.champions.add(&mut self.claims, owner, id)? {
                continue;
            }
            if let Some((container, first)) = self.champions.find_run(tables, chunks, &lengths) {
                return Ok(Some(references(pieces, container, first)));
            }
        }
        Ok(None)
    }

    fn add_chunk(&mut self, f: &Fingerprint, container: ContainerId) -> Result<()> {
        if self.is_hook(f) {
            self.add(Hook::prefix(&f.0), container)?;
        }
        Ok(())
    }

    fn add_segment(&mut self, segment: &SegmentRecipe) -> Result<()> {
        let HookedBy::Segments = self.by else { return Ok(()) };
        let Some((container, first)) = in_one_place(segment).filter(|(id, _)| id.owner() == OwnerNo::OWN)
        else {
            return Ok(());
        };
        self.segments.add(&segment.fingerprint, container, first);
        self.add(Hook::prefix(&segment.fingerprint), container)
    }

    fn add(&mut self, prefix: u64, container: ContainerId) -> Result<()> {
        self.fresh.push((prefix, container));
        if self.fresh.len() >= HOOKS_AT_ONCE {
            self.put_fresh()?;
        }
        Ok(())
    }

    fn put_fresh(&mut self) -> Result<()> {
        if !self.fresh.is_empty() {
            self.has_put = true;
            self.put.push(hooks::put(&self.folder, std::mem::take(&mut self.fresh))?);
        }
        Ok(())
    }
}

impl Drop for Hooked {
    /// A backup that fails takes back the hooks that it has put.
    fn drop(&mut self) {
        for name in &self.put {
            let _ = self.folder.store.delete(name);
        }
    }
}

/// Whether a fingerprint is one of those of which there is one in 2^`sampled`.
pub(crate) fn is_sampled(f: &[u8; 32], sampled: u32) -> bool {
    // Bits that neither the order of hooks nor the slot in a champion's table depends on.
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&f[28..32]);
    u32::from_le_bytes(bytes).trailing_zeros() >= sampled
}
