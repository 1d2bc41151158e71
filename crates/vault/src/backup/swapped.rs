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
use crate::manifest::disks;
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
/// Under policies that do not look for chunks of other disks, others are looked at if this part of the source is not as in
/// the parent: the recipes of all disks of its size are read then.
const CHANGED_PART: u64 = 64;
/// So many disks of its size at most, those of its machine first.
const RECIPES_MAX: usize = 1000;
/// Of disks of at most so many segments, hardly any segment is as in another snapshot: so others count that have as few.
const SMALL_SEGMENTS: u64 = 4;
/// So many of them, those of its machine first.
const SMALL_OTHERS_MAX: usize = 16;
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
    /// The disk's name.
    pub name: &'a str,
    /// Of the policy.
    pub segment_bytes: u32,
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
        let likely: Vec<Folder> = if run.others.finds_chunks_of_all() {
            let found = self.likely(source, run.counts.data_bytes);
            found.into_iter().map(|disk| self.folder.of(disk)).collect()
        } else {
            self.likely_by_segments(source, run)?
        };
        if likely.is_empty() {
            return Ok(None);
        }
        let Some((_, own)) = self.read(self.folder)? else { return Ok(None) };
        for disk in likely {
            let Some((name, other)) = self.read(&disk)? else { continue };
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

    /// Disks of the source's size whose newest snapshot has more segments of the source than this disk's has, those with the
    /// most first; of small disks, also those that have as few.
    fn likely_by_segments(&self, source: &SourceSample, run: &Written) -> Result<Vec<Folder>> {
        let least = OF_OTHER_BYTES_MIN.max(run.counts.data_bytes / CHANGED_PART);
        if run.counts.changed_bytes < least {
            return Ok(Vec::new());
        }
        let is_small = run.size <= SMALL_SEGMENTS * u64::from(self.segment_bytes);
        let most = if is_small { SMALL_OTHERS_MAX } else { OTHERS_MAX };
        let found = |segments: Sample| segments.count(&[], &[], &source.segments).1;
        let own = self.segments(self.folder)?.map_or(0, found);
        let machine = |name: &str| name.split('/').next().map(str::to_owned);
        let (mut disks, _) = disks::all(self.vault)?;
        disks.retain(|at| at.folder.disk != self.folder.disk);
        disks.sort_by_key(|at| machine(&at.name) != machine(self.name));
        let mut likely = Vec::new();
        let mut looked_at = 0;
        for at in disks {
            self.progress.check()?;
            if looked_at == RECIPES_MAX {
                break;
            }
            // What is damaged, or goes meanwhile, cannot be told apart.
            let m = at.folder.load_root().unless_unreadable()?;
            let newest = m.map(|m| at.folder.newest(&m)).transpose().unless_unreadable()?.flatten().flatten();
            if newest.is_none_or(|newest| newest.size != run.size) {
                continue;
            }
            looked_at += 1;
            let equal = self.segments(&at.folder)?.map_or(0, found);
            if equal > own || (is_small && equal == own) {
                likely.push((equal, at.folder));
            }
        }
        likely.sort_by_key(|(equal, _)| std::cmp::Reverse(*equal));
        Ok(likely.into_iter().map(|(_, folder)| folder).take(most).collect())
    }

    /// The segments of a disk's newest snapshot; `None` where that cannot be read, or goes meanwhile.
    fn segments(&self, disk: &Folder) -> Result<Option<Sample>> {
        let read = || {
            let view = self.vault.view(disk, TABLE_CACHE_BYTES)?;
            let Some(newest) = view.whole()?.newest() else { return Ok(None) };
            let mut recipe = RecipeReader::open(&view.folder, view.with_newer(newest.id)?, newest)?;
            let (mut sample, mut next) = (Sample::default(), SegmentNo(0));
            while let Some(no) = recipe.next_segment(next)? {
                self.progress.check()?;
                next = SegmentNo(no.0 + 1);
                recipe.segment(no)?.into_iter().for_each(|s| sample.add(&s.fingerprint));
            }
            Ok(Some(sample))
        };
        match read() {
            Err(VaultError::Gone { .. }) => Ok(None),
            sample => Ok(sample.unless_unreadable()?.flatten()),
        }
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
