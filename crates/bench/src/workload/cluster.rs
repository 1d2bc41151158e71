//! Many disks of a cluster, stored every day (VM-centric 2014, section 5).
//!
//! A disk holds packages and data of its own. Packages are stretches of data in the first versions of real images; how
//! many disks have one goes by its rank (Zipf), so that few packages are nearly everywhere and most of them hardly
//! anywhere. They lie elsewhere on every disk. Own data is generated: no other disk has it.
//!
//! Every day 2 to 3 % of the data changes: packages are upgraded to what stands in their place in a later version of
//! their image, where that differs, own data is written in place, and it grows. On every third disk a half of the
//! change are files that are rewritten elsewhere; what stood in the old place is zeroed or stays, as luck has it.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{ensure, Result};
use serde::Serialize;

use super::blocks::{differences, nonzero_blocks};
use super::{joined, BlockNo, FileNo, Files, Place, Version, BLOCK};
use crate::images::generate::Random;
use crate::images::{Disk, Image};

/// Part of a disk's data that are packages.
const PACKAGES: f64 = 0.6;
/// Blocks in a package, at least and at most: shorter stretches are left out, longer ones are several packages.
const PACKAGE_BLOCKS: (u64, u64) = (4, 256);
/// Later versions of an image that packages are upgraded to.
const UPGRADES: usize = 2;
/// Blocks in an own file, at least and at most.
const FILE_BLOCKS: (u64, u64) = (64, 1024);
/// Null blocks between two files when a disk is new, at most.
const GAP_BLOCKS: u64 = 8;
/// A new disk is so many times as long as its data.
const ROOM: u64 = 2;
/// Part of the data that a day changes, at least and at most.
const DAILY_CHANGE: (f64, f64) = (0.02, 0.03);
/// On every so-many-th disk data moves.
const MOVING: usize = 3;
/// Part of a day's change that moves there.
const MOVED: f64 = 0.5;
/// Blocks of one move, at least and at most.
const MOVE_BLOCKS: (u64, u64) = (64, 512);
/// Parts of the rest: upgrades, own data written in place; what is left is growth.
const UPGRADED: f64 = 0.25;
const WRITTEN: f64 = 0.5;
/// Blocks written together, at least and at most.
const CLUSTER_BLOCKS: (u64, u64) = (16, 256);
/// Tries to change something in a day, at most: on a small disk that is full.
const TRIES_MAX: usize = 10_000;

/// How many disks and days.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ClusterShape {
    /// Disks.
    pub disks: usize,
    /// Versions of each.
    pub days: usize,
    /// Data on a new disk, about.
    pub data_bytes: u64,
    /// Of all that is chosen.
    pub seed: u64,
}

/// The disks of a cluster.
pub struct Cluster {
    shape: ClusterShape,
    files: Arc<Files>,
    /// A file without data: what disks are before anything is written.
    zeros: FileNo,
    sources: Vec<Source>,
    /// By rank, most popular first.
    packages: Vec<Package>,
    /// Packages up to this rank are on every disk; one of rank k is with probability `head` / k.
    head: f64,
}

/// An image that packages come from.
struct Source {
    /// Its first version; later ones follow.
    first: FileNo,
    /// Of each later version: the blocks that are not zero and differ from the version before.
    upgrades: Vec<Vec<BlockNo>>,
}

/// A stretch of data in the first version of an image.
#[derive(Clone, Copy, Debug)]
struct Package {
    source: usize,
    start: BlockNo,
    blocks: u64,
}

/// A disk on a day, and what changed.
pub struct Day {
    /// The disk.
    pub version: Version,
    /// Where it differs from the day before; nothing on the first day.
    pub changes: image::Changes,
}

impl Cluster {
    /// Disks with packages of `images`. Makes a file without data in the directory `dir`, of no size on the disk.
    pub fn new(images: &[Disk], dir: &Path, shape: ClusterShape) -> Result<Self> {
        ensure!(shape.disks > 0 && shape.days > 0, "a workload needs disks and days");
        ensure!(shape.data_bytes >= 256 * BLOCK, "{} bytes a disk are too few", shape.data_bytes);
        let chosen: Vec<Vec<&Image>> = images.iter().map(spread).collect();
        let path = dir.join("zeros.raw");
        File::create(&path)?.set_len(ROOM * shape.data_bytes.next_multiple_of(BLOCK))?;
        let zeros = Image::open(&path)?;
        let files = Files::open(chosen.iter().flatten().copied().chain([&zeros]))?;
        let (mut sources, mut packages) = (Vec::new(), Vec::new());
        let mut next = 0;
        for versions in &chosen {
            let first = FileNo(next);
            packages.extend(packages_of(sources.len(), &nonzero_blocks(files.get(first))?));
            let mut upgrades = Vec::new();
            for no in next + 1..next + versions.len() {
                let found = differences(files.get(FileNo(no - 1)), files.get(FileNo(no)))?;
                upgrades.push(found.iter().filter(|d| !d.is_null).map(|d| d.block).collect());
            }
            sources.push(Source { first, upgrades });
            next += versions.len();
        }
        ensure!(!packages.is_empty(), "the images have no packages");
        Random::new(shape.seed ^ 0x7a6b_0001).shuffle(&mut packages);
        let head = head(&packages, shape.data_bytes as f64 * PACKAGES / BLOCK as f64);
        Ok(Self { shape, files: Arc::new(files), zeros: FileNo(next), sources, packages, head })
    }

    /// How many disks and days there are.
    pub fn shape(&self) -> ClusterShape {
        self.shape
    }

    /// Packages that disks may have.
    pub fn packages(&self) -> usize {
        self.packages.len()
    }

    /// The name of a disk, from 0 on.
    pub fn name(disk: usize) -> String {
        format!("vm{:03}/vda", disk + 1)
    }

    /// The days of a disk, from 0 on, one after the other; they go on beyond those of the shape.
    pub fn days(&self, disk: usize) -> Days<'_> {
        let seed = self.shape.seed ^ ((disk as u64 + 1) << 32);
        let mut random = Random::new(Random::new(seed).bits());
        let state = State::new(self, disk, &mut random);
        Days { cluster: self, disk, random, state, is_new: true }
    }
}

/// The first version of an image, and later ones at equal distances up to the last.
fn spread(disk: &Disk) -> Vec<&Image> {
    let last = disk.versions.len() - 1;
    let mut chosen: Vec<usize> = (0..=UPGRADES).map(|n| n * last / UPGRADES).collect();
    chosen.dedup();
    chosen.into_iter().map(|n| &disk.versions[n]).collect()
}

fn packages_of(source: usize, data: &[BlockNo]) -> Vec<Package> {
    let stretches = data.chunk_by(|a, b| a.0 + 1 == b.0);
    let parts = stretches.flat_map(|stretch| stretch.chunks(PACKAGE_BLOCKS.1 as usize));
    parts
        .filter(|part| part.len() as u64 >= PACKAGE_BLOCKS.0)
        .map(|part| Package { source, start: part[0], blocks: part.len() as u64 })
        .collect()
}

/// The rank up to which packages must be on every disk for a disk to have `wanted` blocks of packages on average.
fn head(packages: &[Package], wanted: f64) -> f64 {
    let expected = |head: f64| -> f64 {
        packages.iter().zip(1..).map(|(p, rank)| p.blocks as f64 * (head / f64::from(rank)).min(1.0)).sum()
    };
    let (mut low, mut high) = (0.0, packages.len() as f64);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if expected(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Goes from day to day.
pub struct Days<'a> {
    cluster: &'a Cluster,
    disk: usize,
    random: Random,
    state: State,
    is_new: bool,
}

impl Iterator for Days<'_> {
    type Item = Day;

    fn next(&mut self) -> Option<Day> {
        let Self { cluster, disk, random, state, is_new } = self;
        if !std::mem::replace(is_new, false) {
            state.changed.clear();
            state.live_through_a_day(cluster, *disk % MOVING == MOVING - 1, random);
        }
        let there = state.places.iter().zip(0..).filter(|(place, _)| **place != Place::Null);
        let runs = joined(there.clone().map(|(place, no)| (BlockNo(no), *place)));
        let version = Version {
            disk: Cluster::name(*disk),
            size_bytes: state.places.len() as u64 * BLOCK,
            nonzero_bytes: there.count() as u64 * BLOCK,
            changed_bytes: state.changed.len() as u64 * BLOCK,
            files: Arc::clone(&cluster.files),
            base: cluster.zeros,
            runs: runs.into(),
        };
        let ranges = state.changed.iter().map(|no| no * BLOCK..(no + 1) * BLOCK).collect();
        Some(Day { version, changes: image::Changes::new(ranges) })
    }
}

/// Blocks that belong together: a file, or what is left of it in one place.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    blocks: u64,
    of: Option<Installed>,
}

/// What an extent holds of a package.
#[derive(Clone, Copy, Debug)]
struct Installed {
    source: usize,
    start: BlockNo,
    /// Version of the image, from 0 on.
    generation: usize,
}

/// A disk on a day.
struct State {
    /// What stands in each block.
    places: Vec<Place>,
    /// The blocks that a file has.
    used: Vec<bool>,
    extents: Vec<Extent>,
    /// Blocks that the day has changed.
    changed: BTreeSet<u64>,
    next_name: u64,
}

impl State {
    /// A new disk: its packages and files in an order of its own, with gaps.
    fn new(cluster: &Cluster, disk: usize, random: &mut Random) -> Self {
        let data = cluster.shape.data_bytes / BLOCK;
        let blocks = (ROOM * cluster.shape.data_bytes.next_multiple_of(BLOCK) / BLOCK) as usize;
        let mut state = Self {
            places: vec![Place::Null; blocks],
            used: vec![false; blocks],
            extents: Vec::new(),
            changed: BTreeSet::new(),
            next_name: (disk as u64 + 1) << 40,
        };
        let mut files: Vec<(u64, Option<Installed>)> = Vec::new();
        for (package, rank) in cluster.packages.iter().zip(1..) {
            if random.unit() < cluster.head / f64::from(rank) {
                let Package { source, start, blocks } = *package;
                files.push((blocks, Some(Installed { source, start, generation: 0 })));
            }
        }
        let mut own = data - (data as f64 * PACKAGES) as u64;
        while own > 0 {
            let blocks = random.between(FILE_BLOCKS).min(own);
            files.push((blocks, None));
            own -= blocks;
        }
        random.shuffle(&mut files);
        let mut at = random.below(GAP_BLOCKS + 1);
        for (blocks, of) in files {
            // A disk that has drawn too much leaves the last ones out: room stays to grow and to move.
            if at + blocks > state.places.len() as u64 * 7 / 8 {
                break;
            }
            match of {
                Some(installed) => {
                    let first = cluster.sources[installed.source].first;
                    for n in 0..blocks {
                        let place = Place::At(first, BlockNo(installed.start.0 + n));
                        state.places[(at + n) as usize] = place;
                    }
                }
                None => state.write(at, blocks),
            }
            state.add(Extent { start: at, blocks, of });
            at += blocks + random.below(GAP_BLOCKS + 1);
        }
        state.changed.clear();
        state
    }

    fn add(&mut self, extent: Extent) {
        self.used[extent.start as usize..(extent.start + extent.blocks) as usize].fill(true);
        self.extents.push(extent);
    }

    fn set(&mut self, no: u64, place: Place) {
        self.places[no as usize] = place;
        self.changed.insert(no);
    }

    /// Writes blocks that nobody has.
    fn write(&mut self, start: u64, blocks: u64) {
        for no in start..start + blocks {
            let name = self.next_name;
            self.next_name += 1;
            self.set(no, Place::Generated(name));
        }
    }

    fn live_through_a_day(&mut self, cluster: &Cluster, is_moving: bool, random: &mut Random) {
        let data = self.places.iter().filter(|place| **place != Place::Null).count();
        let rate = DAILY_CHANGE.0 + (DAILY_CHANGE.1 - DAILY_CHANGE.0) * random.unit();
        let all = ((data as f64 * rate) as usize).max(1);
        let moved = if is_moving { (all as f64 * MOVED) as usize } else { 0 };
        let upgraded = moved + ((all - moved) as f64 * UPGRADED) as usize;
        let written = upgraded + ((all - moved) as f64 * WRITTEN) as usize;
        for _ in 0..TRIES_MAX {
            let done = self.changed.len();
            let left = |up_to: usize| (up_to - done) as u64;
            // The first move of a small disk is as large as it may be.
            let moves = done < moved && (done == 0 || left(moved) >= 2 * MOVE_BLOCKS.0);
            match done {
                _ if moves => self.relocate(left(moved), random),
                n if n < upgraded => self.upgrade(cluster, left(upgraded), random),
                n if n < written => self.write_in_place(left(written), random),
                n if n < all => self.grow(left(all), random),
                _ => break,
            }
        }
    }

    fn any_extent(&self, random: &mut Random) -> usize {
        random.below(self.extents.len() as u64) as usize
    }

    /// A free place for so many blocks that have not changed today, looked for from anywhere on.
    fn free_place(&self, blocks: u64, random: &mut Random) -> Option<u64> {
        let length = self.places.len() as u64;
        let from = random.below(length);
        let mut run = 0;
        for no in (from..length).chain(0..from) {
            let starts_anew = no == 0 || no == from;
            let is_free = !self.used[no as usize] && !self.changed.contains(&no);
            run = match (is_free, starts_anew) {
                (false, _) => 0,
                (true, true) => 1,
                (true, false) => run + 1,
            };
            if run == blocks {
                return Some(no + 1 - blocks);
            }
        }
        None
    }

    /// A file, or the front of a large one, is written elsewhere; changes `left` blocks at most.
    fn relocate(&mut self, left: u64, random: &mut Random) {
        let n = self.any_extent(random);
        let Extent { start, blocks, of } = self.extents[n];
        let keeps = random.below(2) == 0;
        // The old place counts, too, where it is zeroed.
        let most = if keeps { left } else { (left / 2).max(1) };
        let count = blocks.min(random.between(MOVE_BLOCKS)).min(most);
        // Blocks of a day that changed already would count once.
        if (start..start + count).any(|no| self.changed.contains(&no)) {
            return;
        }
        if blocks < MOVE_BLOCKS.0.min(most) {
            return;
        }
        let Some(to) = self.free_place(count, random) else { return };
        for no in 0..count {
            self.set(to + no, self.places[(start + no) as usize]);
            self.used[(start + no) as usize] = false;
            if !keeps {
                self.set(start + no, Place::Null);
            }
        }
        match blocks - count {
            0 => drop(self.extents.swap_remove(n)),
            rest => {
                let of = of.map(|i| Installed { start: BlockNo(i.start.0 + count), ..i });
                self.extents[n] = Extent { start: start + count, blocks: rest, of };
            }
        }
        self.add(Extent { start: to, blocks: count, of });
    }

    /// A package becomes what it is in the next version of its image; where it is the same there, a part of it is written
    /// anew.
    fn upgrade(&mut self, cluster: &Cluster, left: u64, random: &mut Random) {
        let n = self.any_extent(random);
        let Extent { start, blocks, of: Some(installed) } = self.extents[n] else { return };
        let Installed { source, start: from, generation } = installed;
        let source = &cluster.sources[source];
        let differing = source.upgrades.get(generation).map_or(&[][..], |all| {
            let at = all.partition_point(|block| *block < from);
            let length = all[at..].partition_point(|block| block.0 < from.0 + blocks);
            &all[at..at + length]
        });
        if differing.is_empty() {
            let count = (blocks / 4).max(1).min(left);
            self.write(start + random.below(blocks - count + 1), count);
            return;
        }
        let file = FileNo(source.first.0 + generation + 1);
        for block in differing.iter().take(left as usize) {
            self.set(start + block.0 - from.0, Place::At(file, *block));
        }
        self.extents[n].of = Some(Installed { generation: generation + 1, ..installed });
    }

    fn write_in_place(&mut self, left: u64, random: &mut Random) {
        let Extent { start, blocks, of: None } = self.extents[self.any_extent(random)] else { return };
        let count = random.between(CLUSTER_BLOCKS).min(left).min(blocks);
        self.write(start + random.below(blocks - count + 1), count);
    }

    fn grow(&mut self, left: u64, random: &mut Random) {
        let blocks = random.between(CLUSTER_BLOCKS).min(left);
        let Some(start) = self.free_place(blocks, random) else { return };
        self.write(start, blocks);
        self.add(Extent { start, blocks, of: None });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes_of, nonzero_bytes};
    use super::*;
    use crate::images::{GeneratedShape, ImageSet};
    use std::collections::{HashMap, HashSet};

    fn images(dir: &Path) -> ImageSet {
        let shape = GeneratedShape { suites: 2, disks: 1, versions: 3, size_bytes: 24 << 20 };
        ImageSet::generate(dir, 5, shape).expect("images")
    }

    fn cluster(set: &ImageSet, dir: &Path, disks: usize, days: usize, mib: u64, seed: u64) -> Cluster {
        let shape = ClusterShape { disks, days, data_bytes: mib << 20, seed };
        Cluster::new(&set.disks, dir, shape).expect("workload")
    }

    fn day(cluster: &Cluster, disk: usize, day: usize) -> Day {
        cluster.days(disk).nth(day).expect("days have no end")
    }

    #[test]
    fn the_same_seed_gives_the_same_disks_and_another_seed_others() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path());
        let last = |seed, disks, days| {
            bytes_of(&day(&cluster(&set, dir.path(), disks, days, 8, seed), 1, 2).version)
        };
        assert!(last(1, 2, 3) == last(1, 2, 3));
        assert!(last(1, 2, 3) == last(1, 5, 9), "neither fewer disks nor fewer days change the others");
        assert!(last(1, 2, 3) != last(2, 2, 3));
    }

    #[test]
    fn versions_have_the_sizes_they_say() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path());
        let cluster = cluster(&set, dir.path(), 3, 4, 8, 1);
        for disk in 0..3 {
            let mut before: Vec<u8> = Vec::new();
            for Day { version, changes } in cluster.days(disk).take(4) {
                let bytes = bytes_of(&version);
                assert_eq!(version.nonzero_bytes, nonzero_bytes(&bytes));
                let data = version.nonzero_bytes as f64 / f64::from(8 << 20);
                assert!((0.7..1.4).contains(&data), "{data} of the data it should have");
                let blocks = || bytes.chunks(BLOCK as usize).zip(before.chunks(BLOCK as usize)).zip(0..);
                let changed: Vec<u64> = blocks().filter(|((a, b), _)| a != b).map(|(_, no)| no).collect();
                // A package may hold the same block twice.
                let said = version.changed_bytes / BLOCK;
                assert!((changed.len() as u64..=changed.len() as u64 + 16).contains(&said), "{said}");
                assert_eq!(changes.bytes(), version.changed_bytes);
                assert!(changed.iter().all(|no| changes.touch(no * BLOCK..(no + 1) * BLOCK)));
                before = bytes;
            }
        }
    }

    #[test]
    fn two_to_three_per_cent_change_every_day() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path());
        let cluster = cluster(&set, dir.path(), 6, 8, 16, 3);
        let mut parts = Vec::new();
        for disk in 0..6 {
            let days: Vec<Day> = cluster.days(disk).take(8).collect();
            for pair in days.windows(2) {
                parts.push(pair[1].version.changed_bytes as f64 / pair[0].version.nonzero_bytes as f64);
            }
        }
        assert!(parts.iter().all(|part| (0.0195..0.0305).contains(part)), "{parts:?}");
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        assert!((0.0225..0.0275).contains(&mean), "{mean}");
    }

    #[test]
    fn few_packages_are_everywhere_and_most_are_rare() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path());
        let cluster = cluster(&set, dir.path(), 40, 1, 8, 7);
        let mut disks_of: HashMap<(usize, u64), usize> = HashMap::new();
        let (mut own, mut all) = (0, 0);
        for disk in 0..40 {
            for place in day(&cluster, disk, 0).version.runs.iter() {
                all += place.count;
                match place.place {
                    Place::At(file, block) => {
                        (0..place.count)
                            .for_each(|n| *disks_of.entry((file.0, block.0 + n)).or_default() += 1);
                    }
                    _ => own += place.count,
                }
            }
        }
        let part = own as f64 / all as f64;
        assert!((0.33..0.47).contains(&part), "{part} of the data is own");
        let everywhere = disks_of.values().filter(|disks| **disks == 40).count() as f64;
        let rare = disks_of.values().filter(|disks| **disks <= 10).count() as f64;
        let blocks = disks_of.len() as f64;
        assert!((0.005..0.4).contains(&(everywhere / blocks)), "{everywhere} of {blocks}");
        assert!(rare / blocks > 0.4, "{rare} of {blocks}");
    }

    #[test]
    fn data_moves_on_every_third_disk() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path());
        let cluster = cluster(&set, dir.path(), 3, 4, 16, 9);
        let moved = |disk| {
            let mut before: HashMap<u64, (usize, u64)> = HashMap::new();
            let mut moved = 0;
            for Day { version, .. } in cluster.days(disk).take(4) {
                let mut now = HashMap::new();
                for run in version.runs.iter() {
                    for n in 0..run.count {
                        let block = match run.place {
                            Place::At(file, block) => (file.0, block.0 + n),
                            Place::Generated(name) => (usize::MAX, name + n),
                            Place::Null => continue,
                        };
                        now.insert(run.start.0 + n, block);
                    }
                }
                let known: HashSet<_> = before.values().copied().collect();
                let has_come = |(at, block): &(&u64, &(usize, u64))| {
                    known.contains(block) && before.get(at) != Some(block)
                };
                moved += now.iter().filter(has_come).count();
                before = now;
            }
            moved
        };
        assert_eq!((moved(0), moved(1)), (0, 0));
        assert!(moved(2) > 20, "{}", moved(2));
    }
}
