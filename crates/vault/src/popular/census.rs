//! Counts in how many disks each chunk occurs, with an external sort.
//!
//! 1. Every chunk of every disk becomes a record: half its fingerprint, the disk, the place. A chunk that a disk stores
//!    twice becomes two records.
//! 2. Records are spilled to so many files ([`super::spill`]) that each fits into memory.
//! 3. One file at a time is sorted, so that all records of one chunk are together.

use super::spill::ChunkAddress;
use crate::base::error::{damage_line, Result, UnlessDamaged};
use crate::container::dead::read_dead;
use crate::container::tables::read_table;
use crate::container::view::View;
use crate::lookup::popular::published_chunks;
use crate::manifest::container_table::Containers;
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::vault::Vault;
use crate::popular::damage::DamageLines;
use crate::popular::report::PopularClass;
use crate::popular::sorter::Sorter;
use crate::popular::spill::{Half, Occurrence, Spill, RECORD_BYTES};
use crate::recipe::referenced::{Reading, Referenced, REFERENCED_BYTES};
use format::{ChunkNo, ContainerId, DiskId, OwnerNo, RunSet, Table};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Takes place, fingerprint and bytes of a chunk.
type EachChunk<'a> = dyn FnMut(ChunkAddress, &[u8; 32], u32) -> Result<()> + 'a;
/// Stands for a disk in records of the popular set itself.
const THE_SET: u32 = u32::MAX;
/// The owner of popular containers in records: each disk counts it in its own way.
const THE_SETS: OwnerNo = OwnerNo::MAX;

/// Whether a container in a record is one of the popular set.
pub(crate) fn is_popular(id: ContainerId) -> bool {
    id.owner() == THE_SETS
}

/// All chunks of all disks.
pub(crate) struct Census {
    pub disks: Vec<Folder>,
    /// How each of them counts other owners.
    owners: Vec<Vec<DiskId>>,
    pub damaged: DamageLines,
    spill: Spill,
    scratch: PathBuf,
}

/// One chunk, and how many disks have it.
pub(crate) struct Counted<'a> {
    pub disks: u32,
    pub all: &'a [Occurrence],
}

impl Counted<'_> {
    /// The copy that stands for all of them: in the popular set, where one is.
    pub fn copy(&self) -> Occurrence {
        let popular = self.all.iter().find(|o| is_popular(o.place.container));
        *popular.unwrap_or(&self.all[0])
    }

    /// All copies that disks have.
    pub fn all_of_disks(&self) -> impl Iterator<Item = &Occurrence> {
        self.all.iter().filter(|o| o.disk != THE_SET)
    }

    /// One copy of each disk that has it.
    pub fn of_disks(&self) -> impl Iterator<Item = &Occurrence> {
        self.all.chunk_by(|a, b| a.disk == b.disk).map(|of_disk| &of_disk[0]).filter(|o| o.disk != THE_SET)
    }
}

impl Census {
    /// Looks at the tables of all disks.
    pub fn take(vault: &Vault, scratch: &Path) -> Result<Self> {
        let (listed, nowhere) = disks::all(vault)?;
        let mut damaged = DamageLines::default();
        nowhere.into_iter().for_each(|fault| damaged.add(damage_line(fault)));
        let mut chunks = 0;
        for at in &listed {
            // Damage is told when the disk is looked at.
            chunks += count_chunks(&at.folder).unless_damaged()?.unwrap_or_default();
        }
        let mut spill = Spill::create(scratch, chunks * RECORD_BYTES as u64, 0)?;
        let (mut disks, mut owners) = (Vec::new(), Vec::new());
        add_set(vault, &mut damaged, &mut spill)?;
        for at in listed {
            let view = match disks::unless_gone(vault, &at, vault.view(&at.folder, 0)) {
                Ok(Some(view)) => view,
                Ok(None) => continue,
                Err(e) if e.is_damage() => {
                    damaged.note(e)?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let disk = disks.len() as u32;
            each_chunk(&view, &mut damaged, &mut |place, f, bytes| {
                spill.add(&Occurrence { half: half(f), disk, place, bytes })
            })?;
            owners.push(view.manifest.owners.clone());
            disks.push(view.folder);
        }
        Ok(Census { disks, owners, damaged, spill, scratch: scratch.to_owned() })
    }

    /// The disks, by their numbers in records, and what was damaged. All that was counted goes.
    pub fn into_disks(self) -> (Vec<Folder>, DamageLines) {
        (self.disks, self.damaged)
    }

    /// Whose a container in a record is, and how that owner names it.
    pub fn home(&self, o: &Occurrence) -> (DiskId, ContainerId) {
        let id = o.place.container;
        let owner = match self.disks.get(o.disk as usize) {
            Some(_) if is_popular(id) => DiskId::POPULAR,
            Some(disk) if id.is_own() => disk.disk,
            Some(_) => self.owners[o.disk as usize]
                .get(id.owner().0 as usize - 1)
                .copied()
                .unwrap_or(DiskId::POPULAR),
            None => DiskId::POPULAR,
        };
        (owner, id.local())
    }

    /// How many chunks occur in how many disks, most popular first.
    pub fn classes(&self) -> Result<Vec<PopularClass>> {
        let mut classes: BTreeMap<u32, PopularClass> = BTreeMap::new();
        self.each(&mut |c| {
            let class =
                classes.entry(c.disks).or_insert(PopularClass { disks: c.disks, ..Default::default() });
            class.chunks += 1;
            class.bytes += u64::from(c.all[0].bytes);
            Ok(())
        })?;
        Ok(classes.into_values().rev().collect())
    }

    /// Gives `chosen` copies of the `most` most popular chunks that at least two disks have. Returns how many disks have the
    /// last of them. Of the least popular ones, those that stand first are chosen, so that they are runs.
    pub fn top(&self, classes: &[PopularClass], most: u64, chosen: &mut Sorter<RECORD_BYTES>) -> Result<u32> {
        let (mut whole, mut cut) = (0, None);
        let mut least = u32::MAX;
        for c in classes.iter().filter(|c| c.disks > 1) {
            if whole + c.chunks <= most {
                whole += c.chunks;
                least = c.disks;
                continue;
            }
            cut = (whole < most).then_some(c.disks);
            break;
        }
        // What is in the set already costs nothing; then what stands first.
        let mut kept = Sorter::<RECORD_BYTES>::new(&self.scratch);
        let mut fresh = Sorter::<RECORD_BYTES>::new(&self.scratch);
        self.each(&mut |c| {
            let copy = c.copy();
            if c.disks >= least {
                return chosen.add(copy.encode());
            }
            if Some(c.disks) != cut {
                return Ok(());
            }
            let least_popular = if is_popular(copy.place.container) { &mut kept } else { &mut fresh };
            least_popular.add(copy.encode())
        })?;
        let mut room = most - whole;
        for sorter in [&mut kept, &mut fresh] {
            let mut sorted = sorter.sorted()?;
            while room > 0 {
                let Some(record) = sorted.next()? else { break };
                chosen.add(record)?;
                room -= 1;
            }
        }
        Ok(cut.unwrap_or(if least == u32::MAX { 0 } else { least }))
    }

    /// Calls `each` with every chunk that a disk has.
    pub fn each(&self, each: &mut dyn FnMut(&Counted<'_>) -> Result<()>) -> Result<()> {
        self.spill.each_file(&mut |records| {
            for all in records.chunk_by(|a, b| a.half == b.half) {
                let in_set = u32::from(all[all.len() - 1].disk == THE_SET);
                let disks = all.chunk_by(|a, b| a.disk == b.disk).count() as u32 - in_set;
                if disks > 0 {
                    each(&Counted { disks, all })?;
                }
            }
            Ok(())
        })
    }
}

/// About how many chunks a disk has: its own, and as many as its newest snapshot may have in containers of other owners.
fn count_chunks(folder: &Folder) -> Result<u64> {
    let m = folder.load()?;
    let (mut own, mut shares) = (0, false);
    Containers::new(folder.clone(), &m).each(|e| {
        own += u64::from(e.chunks);
        shares |= !e.id.is_own();
        Ok(())
    })?;
    let newest = m.newest().map_or(0, |s| s.data_bytes / 4096);
    Ok(own + if shares { newest } else { 0 })
}

/// Adds what is in the set that is there: it need not be copied again, and makes nothing more popular.
fn add_set(vault: &Vault, damaged: &mut DamageLines, spill: &mut Spill) -> Result<()> {
    let popular = vault.popular();
    let Some((m, _)) = popular.load_tagged()? else { return Ok(()) };
    let containers = Containers::new(popular.clone(), &m);
    let chunks = published_chunks(&popular, |_| true)?;
    for (id, live) in chunks {
        let table = || match containers.get(id)?.filter(|e| !m.damaged.contains(&e.id)) {
            Some(entry) => read_table(&popular, id, entry.table).map(Some),
            None => Ok(None),
        };
        match table() {
            Ok(Some(table)) => each_of(id.of(THE_SETS), &table, &live, &mut |place, f, bytes| {
                spill.add(&Occurrence { half: half(f), disk: THE_SET, place, bytes })
            })?,
            Ok(None) => {}
            Err(e) => damaged.note(e)?,
        }
    }
    Ok(())
}

fn half(fingerprint: &[u8; 32]) -> Half {
    let mut half = Half::default();
    half.copy_from_slice(&fingerprint[..16]);
    half
}

/// Calls `each` with the place, fingerprint and bytes of every live chunk of a disk. What is damaged is left out, and
/// said.
fn each_chunk(view: &View, damaged: &mut DamageLines, each: &mut EachChunk<'_>) -> Result<()> {
    let mut shares = false;
    let all = Containers::new(view.folder.clone(), &view.manifest).each(|e| {
        shares |= !e.id.is_own();
        // What is damaged, or may have been freed, is no copy to go by.
        if !e.id.is_own() || e.is_rebuilt() || view.manifest.damaged.contains(&e.id) {
            return Ok(());
        }
        let live = || -> Result<(Table, RunSet)> {
            let table = read_table(&view.folder, e.id, e.table)?;
            let live = table.numbers.minus(&read_dead(&view.folder, e)?);
            Ok((table, live))
        };
        match live() {
            Ok((table, live)) => each_of(e.id, &table, &live, each),
            Err(e) => damaged.note(e),
        }
    });
    if let Err(e) = all {
        // A page of them, which may have listed others' containers.
        damaged.note(e)?;
        shares = true;
    }
    let mut from = None;
    while shares {
        let mut reading = Reading {
            wanted: &|id| !id.is_own(),
            on_error: &mut |e| damaged.note(e),
            bytes_max: REFERENCED_BYTES,
        };
        let referenced = Referenced::read(&view.folder, view.whole()?, from, &mut reading)?;
        for (id, live) in referenced.chunks() {
            if let Err(e) = each_shared(view, id, live, each) {
                damaged.note(e)?;
            }
        }
        from = referenced.end();
        shares = from.is_some();
    }
    Ok(())
}

/// The same for the chunks that a disk references in a container of another owner.
fn each_shared(view: &View, id: ContainerId, live: &RunSet, each: &mut EachChunk<'_>) -> Result<()> {
    // What the disk's own table does not list, no backup has referenced.
    if view.tables.own().get(id)?.is_none() {
        return Ok(());
    }
    let table = view.tables.get(id)?;
    let popular = view.manifest.owner(id.owner()) == Some(DiskId::POPULAR);
    each_of(if popular { id.of(THE_SETS) } else { id }, &table, live, each)
}

fn each_of(container: ContainerId, table: &Table, live: &RunSet, each: &mut EachChunk<'_>) -> Result<()> {
    // A summary that is damaged may name any chunks.
    let live = table.numbers.minus(&table.numbers.minus(live));
    for &(first, count) in live.runs() {
        for chunk in (first..first + count).map(ChunkNo) {
            let Some(n) = table.index_of(chunk) else { continue };
            each(ChunkAddress { container, chunk }, table.fingerprint(n), table.length(n))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::spill::SORTED_BYTES;
    use super::*;
    use format::WriterNo;
    use std::collections::HashSet;
    use tempfile::TempDir;

    fn occurrence(n: u64, disk: u32, chunk: u32) -> Occurrence {
        let half = xxhash(n);
        let place =
            ChunkAddress { container: ContainerId::new(OwnerNo::OWN, WriterNo(1), 0), chunk: ChunkNo(chunk) };
        Occurrence { half, disk, place, bytes: 4096 }
    }

    fn xxhash(n: u64) -> Half {
        chunk::Fingerprint::of(&n.to_le_bytes()).0[..16].try_into().unwrap()
    }

    /// As many files, and as often spilt again, as there would be with little memory.
    fn census(byte_budget: u64, records: impl Iterator<Item = Occurrence>) -> (TempDir, Census) {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().to_owned();
        let mut spill = Spill::create(&scratch, byte_budget, 0).unwrap();
        for r in records {
            spill.add(&r).unwrap();
        }
        (
            dir,
            Census { disks: Vec::new(), owners: Vec::new(), damaged: DamageLines::default(), spill, scratch },
        )
    }

    /// What is chosen, in order.
    fn top(census: &Census, most: u64) -> (Vec<Occurrence>, u32) {
        let mut chosen = Sorter::new(&census.scratch);
        let least = census.top(&census.classes().unwrap(), most, &mut chosen).unwrap();
        let mut sorted = chosen.sorted().unwrap();
        let all = std::iter::from_fn(|| sorted.next().unwrap());
        (all.map(|raw| Occurrence::decode(&raw).unwrap()).collect(), least)
    }

    #[test]
    fn disks_are_counted_and_the_top_is_chosen_in_order() {
        let mut records = Vec::new();
        for n in 0..1000u64 {
            // Chunk n occurs in 1 + (n % 4) disks, twice in the first of them.
            for disk in 0..=(n % 4) as u32 {
                records.push(occurrence(n, disk, n as u32));
            }
            records.push(occurrence(n, 0, 5000 + n as u32));
        }
        for budget in [0, 40 * SORTED_BYTES, 1000 * SORTED_BYTES] {
            let (_dir, census) = census(budget, records.iter().copied());
            let classes = census.classes().unwrap();
            let expected = [4, 3, 2, 1].map(|disks| PopularClass { disks, chunks: 250, bytes: 250 * 4096 });
            assert_eq!(classes, expected);
            // Twice the same.
            assert_eq!(census.classes().unwrap(), expected);
            let (chosen, least) = top(&census, 600);
            assert_eq!((chosen.len(), least), (600, 2));
            let chunks: HashSet<u32> = chosen.iter().map(|o| o.place.chunk.0).collect();
            let wanted = (0..1000).filter(|n| n % 4 >= 2 || (n % 4 == 1 && n / 4 < 100)).collect();
            assert_eq!(chunks, wanted);
            assert!(chosen.windows(2).all(|w| w[0].place < w[1].place));
            let (all, least) = top(&census, 1 << 40);
            assert_eq!((all.len(), least), (750, 2), "what one disk alone has is not popular");
            assert_eq!(top(&census, 0).0.len(), 0);
        }
    }

    #[test]
    fn a_copy_in_the_popular_set_stands_for_all() {
        let mut popular = occurrence(1, 1, 3);
        popular.place.container = ContainerId::new(THE_SETS, WriterNo(4), 2);
        let (_dir, census) = census(0, [occurrence(1, 0, 8), popular].into_iter());
        assert_eq!(top(&census, 10).0, [popular]);
    }

    /// One file holds more than fits into memory: chunks that a container has any number of times, and different ones.
    #[test]
    fn files_that_are_too_long_are_counted_right() {
        let many = SORTED_BYTES / RECORD_BYTES as u64 + 1000;
        let copies = (0..many).map(|n| occurrence(1, (n % 3) as u32, n as u32));
        let others = (2..many).map(|n| occurrence(n, 1, n as u32));
        let (_dir, census) = census(0, copies.chain(others));
        let classes = census.classes().unwrap();
        let class = |disks, chunks| PopularClass { disks, chunks, bytes: chunks * 4096 };
        assert_eq!(classes, [class(3, 1), class(1, many - 2)]);
    }
}
