//! Notices that what was read is another disk: the sources of two disks have been swapped.
//!
//! Clones of one template have nearly everything in common, and what one of them installs today another one had yesterday.
//! So only chunks count that tell two disks apart for good: those that one disk has in its newest snapshot and in an older
//! one, and that the other disk has in neither. If the source is the other disk, it has nearly all that are the other's and
//! hardly any that are the disk's own. A disk that was upgraded, or taken back to an older state, still has its own; one
//! that was installed anew has lost them, but it lacks those of the other disk.

use crate::backup::pipeline::Written;
use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::base::progress::Progress;
use crate::base::sample::Sample;
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::container::view::View;
use crate::lookup::place::SourceSample;
use crate::manifest::folder::Folder;
use crate::manifest::vault::Vault;
use crate::recipe::chain::RecipeReader;
use format::{ChunkNo, DiskId, OwnerNo, Reference, SegmentNo, SnapshotEntry};

/// Other disks are looked at if so many bytes of theirs were found in the source that the parent does not have: fewer
/// make no disk.
const OF_OTHER_BYTES_MIN: u64 = 256 << 10;
/// And if they are this part of the source: reading the fingerprints of a few snapshots must not cost more than reading
/// what has changed.
const OF_OTHER_PART: u64 = 256;
/// So many disks are looked at, those first of which most was found.
const OTHERS_MAX: usize = 3;
/// How far back the older snapshot is that a disk must have a chunk in, if there are so many.
const OLDER: usize = 16;
/// Chunks that tell a disk from the other one: with fewer it cannot be told. 256 KiB of a small disk; a new file system
/// has less that is not like that of any other. Of a disk with more than 512 MiB of data, the 1,000th part at most.
const OWN_CHUNKS_MIN: usize = 64;
/// The source has all but one in so many of the other disk's own chunks, and at most one in so many of the disk's.
const PART: usize = 16;

/// Another disk that the source probably is.
pub(super) struct OtherDisk {
    pub name: String,
    /// Chunks that it has for itself, and how many of them were read.
    pub own: (usize, usize),
}

/// What the backup knows.
pub(super) struct Question<'a> {
    pub vault: &'a Vault,
    pub folder: &'a Folder,
    pub tables: &'a Tables,
    pub progress: &'a Progress,
}

/// The samples of a disk: of its newest snapshot, and of an older one.
struct Samples {
    newest: Sample,
    older: Sample,
}

impl Question<'_> {
    /// The disk whose source was read instead of this one's. What is damaged cannot be told apart.
    pub fn other_disk(&self, run: &Written) -> Result<Option<OtherDisk>> {
        let Some(source) = &run.source else { return Ok(None) };
        let likely = self.likely(source, run.counts.data_bytes);
        if likely.is_empty() {
            return Ok(None);
        }
        let Some((_, own)) = self.read(self.folder)? else { return Ok(None) };
        for disk in likely {
            let Some((name, other)) = self.read(&self.folder.of(disk))? else { continue };
            if let Some(part) = compare(&own, &other, &source.chunks) {
                return Ok(Some(OtherDisk { name, own: part }));
            }
        }
        Ok(None)
    }

    /// Disks of which much was found that the parent does not have, the likeliest first.
    fn likely(&self, source: &SourceSample, data_bytes: u64) -> Vec<DiskId> {
        let owners = self.tables.owners();
        let least = OF_OTHER_BYTES_MIN.max(data_bytes / OF_OTHER_PART);
        let mut likely: Vec<(u64, OwnerNo)> =
            source.of_others.iter().map(|(no, bytes)| (*bytes, *no)).filter(|l| l.0 >= least).collect();
        likely.sort_unstable_by(|a, b| b.cmp(a));
        let disk = |no: OwnerNo| owners.get((no.0 as usize).checked_sub(1)?).copied();
        likely.iter().filter_map(|l| disk(l.1)).filter(|d| *d != DiskId::POPULAR).take(OTHERS_MAX).collect()
    }

    /// A disk's name and samples; `None` where it cannot be read, or is deleted meanwhile.
    fn read(&self, folder: &Folder) -> Result<Option<(String, Samples)>> {
        let view = match self.vault.view(folder, TABLE_CACHE_BYTES).unless_unreadable()? {
            None => return Ok(None),
            Some(view) => view,
        };
        match self.samples(&view).map_err(|e| view.explain(e)) {
            Err(VaultError::Gone { .. }) => Ok(None),
            samples => Ok(samples
                .unless_unreadable()?
                .flatten()
                .map(|samples| (view.manifest.name.clone(), samples))),
        }
    }

    /// `None` for a disk without snapshots.
    fn samples(&self, view: &View) -> Result<Option<Samples>> {
        let mut latest = view.whole()?.live().rev();
        let Some(newest) = latest.next() else { return Ok(None) };
        let older = latest.take(OLDER).last();
        let newest = self.sample(view, newest)?;
        let older = older.map_or_else(|| Ok(newest.clone()), |older| self.sample(view, older))?;
        Ok(Some(Samples { newest, older }))
    }

    fn sample(&self, view: &View, snapshot: &SnapshotEntry) -> Result<Sample> {
        let mut sample = Sample::default();
        let mut recipe = RecipeReader::open(&view.folder, view.with_newer(snapshot.id)?, snapshot)?;
        let mut next = SegmentNo(0);
        while let Some(no) = recipe.next_segment(next)? {
            self.progress.check()?;
            view.check()?;
            next = SegmentNo(no.0 + 1);
            let references = recipe.segment(no)?.map(|s| s.references).unwrap_or_default();
            for r in references {
                let Reference::Direct { container, first, count } = r else { continue };
                let Some(table) = view.tables.get(container).unless_damaged()? else { continue };
                for n in 0..count {
                    let at = first.0.checked_add(n).and_then(|n| table.index_of(ChunkNo(n)));
                    at.into_iter().for_each(|at| sample.add(table.fingerprint(at)));
                }
            }
        }
        Ok(sample)
    }
}

/// How many chunks the other disk has for itself, and how many of them were read, if that is nearly all of them and hardly
/// any of the disk's own.
fn compare(own: &Samples, other: &Samples, read: &Sample) -> Option<(usize, usize)> {
    let (all, kept) = own.newest.count(&[&own.older], &[&other.newest, &other.older], read);
    let theirs = other.newest.count(&[&other.older], &[&own.newest, &own.older], read);
    let has_none = all >= OWN_CHUNKS_MIN && kept <= all / PART;
    let has_theirs = theirs.0 >= OWN_CHUNKS_MIN && theirs.0 - theirs.1 <= theirs.0 / PART;
    (has_none && has_theirs).then_some(theirs)
}
