//! Many disks cloned of one, stored every week while their owners work (RevDedup 4.2.1).
//!
//! Each week a disk changes in a few places that it keeps returning to, two of which all disks have in common (logs,
//! package lists), in clusters of consecutive blocks. How much is lognormal; in week 4 a deadline makes it several
//! times more, and in the last week one disk rewrites most of its data. What is written are blocks of other real
//! images, each used once, but for a part that all disks draw from the same material of the week.

use std::sync::Arc;

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;

use super::blocks::nonzero_blocks;
use super::{runs, BlockNo, Changes, FileNo, Files, Place, Version, BLOCK};
use crate::images::generate::Random;
use crate::images::Image;

/// Median weekly change, as a part of the data: 80 MB of a disk of 7.6 GB.
const MEDIAN_CHANGE: f64 = 80e6 / 7.6e9;
/// Of the logarithm of the weekly change.
const SIGMA: f64 = 0.9;
/// No ordinary week changes more of the data.
const CHANGE_MAX: f64 = 0.25;
/// The week of the deadline, from 1 on, and how many times more it changes.
const DEADLINE: (usize, f64) = (4, 4.0);
/// What the outlier rewrites of its data in the last week.
const OUTLIER: f64 = 0.8;
/// What part of a week's change goes to each place; the first [`COMMON_PLACES`] are the same on all disks.
const PLACES: [f64; 4] = [0.1, 0.2, 0.2, 0.5];
const COMMON_PLACES: usize = 2;
/// Size of a place, as a part of the data.
const PLACE: f64 = 0.01;
/// Blocks in a cluster, at least and at most.
const CLUSTER_BLOCKS: (u64, u64) = (16, 256);
/// Share of clusters whose content comes from the week's common material.
const COMMON_CONTENT: f64 = 0.25;
/// The common material of a week, in median weekly changes.
const COMMON_MATERIAL: f64 = 4.0;

/// How many disks and weeks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StudentsShape {
    /// Disks.
    pub disks: usize,
    /// Versions of each.
    pub weeks: usize,
    /// Of all that is chosen.
    pub seed: u64,
}

/// The disks and what they change every week.
pub struct Students {
    files: Arc<Files>,
    size_bytes: u64,
    /// Non-null blocks of the base.
    nonzero: Vec<BlockNo>,
    /// By disk and week; nothing in the first week.
    changes: Vec<Vec<Changes>>,
}

impl Students {
    /// Clones `base`; new content comes from `pools`.
    pub fn new(base: &Image, pools: &[&Image], shape: StudentsShape) -> Result<Self> {
        ensure!(shape.disks > 0 && shape.weeks > 0, "a workload needs disks and weeks");
        let files = Files::open(std::iter::once(base).chain(pools.iter().copied()))?;
        let nonzero = nonzero_blocks(files.get(FileNo(0)))?;
        ensure!(!nonzero.is_empty(), "{}: holds nothing but zeros", base.path.display());
        let pool = Pool::new(&files)?;
        let size_bytes = files.size_bytes(FileNo(0))?;
        let writer = Writer { nonzero: &nonzero, blocks: size_bytes / BLOCK, pool };
        let changes = writer.all(shape);
        Ok(Self { files: Arc::new(files), size_bytes, nonzero, changes })
    }

    /// Disks.
    pub fn disks(&self) -> usize {
        self.changes.len()
    }

    /// Versions of each.
    pub fn weeks(&self) -> usize {
        self.changes[0].len()
    }

    /// A disk in a week, both from 0 on.
    pub fn version(&self, disk: usize, week: usize) -> Version {
        let mut changes = Changes::new();
        for of_week in &self.changes[disk][..=week] {
            changes.extend(of_week.iter().map(|(block, place)| (*block, *place)));
        }
        let grown = changes.keys().filter(|block| self.nonzero.binary_search(block).is_err()).count();
        Version {
            disk: format!("student{:02}/vda", disk + 1),
            size_bytes: self.size_bytes,
            nonzero_bytes: (self.nonzero.len() + grown) as u64 * BLOCK,
            changed_bytes: self.changes[disk][week].len() as u64 * BLOCK,
            files: Arc::clone(&self.files),
            base: FileNo(0),
            runs: runs(&changes).into(),
        }
    }

    /// All disks in a week.
    pub fn set(&self, week: usize) -> Vec<Version> {
        (0..self.disks()).map(|disk| self.version(disk, week)).collect()
    }
}

/// Blocks with content, each handed out once until all have been.
struct Pool {
    blocks: Vec<Place>,
    next: usize,
}

impl Pool {
    /// The data of all files but the first.
    fn new(files: &Files) -> Result<Self> {
        let mut blocks = Vec::new();
        for no in (1..files.images.len()).map(FileNo) {
            blocks.extend(nonzero_blocks(files.get(no))?.into_iter().map(|block| Place::At(no, block)));
        }
        blocks.first().context("there is no image to take new content from")?;
        Ok(Self { blocks, next: 0 })
    }

    fn draw(&mut self) -> Place {
        self.next += 1;
        self.blocks[(self.next - 1) % self.blocks.len()]
    }
}

/// Writes what the disks change.
struct Writer<'a> {
    nonzero: &'a [BlockNo],
    blocks: u64,
    pool: Pool,
}

impl Writer<'_> {
    fn all(mut self, shape: StudentsShape) -> Vec<Vec<Changes>> {
        let mut random = Random::new(shape.seed ^ 0x5700_dead);
        let common: Vec<BlockNo> = (0..COMMON_PLACES).map(|_| self.place(&mut random)).collect();
        let places: Vec<Vec<BlockNo>> = (0..shape.disks)
            .map(|_| {
                let own = (COMMON_PLACES..PLACES.len()).map(|_| self.place(&mut random));
                common.iter().copied().chain(own).collect()
            })
            .collect();
        let mut all = vec![vec![Changes::new()]; shape.disks];
        for week in 1..shape.weeks {
            let material = (self.data_blocks(MEDIAN_CHANGE * COMMON_MATERIAL)).max(CLUSTER_BLOCKS.1);
            let material: Vec<Place> = (0..material).map(|_| self.pool.draw()).collect();
            for disk in 0..shape.disks {
                let outlier = disk + 1 == shape.disks && week + 1 == shape.weeks;
                let changes = if outlier {
                    self.rewrite_most(&mut random)
                } else {
                    self.week(week, &places[disk], &material, &mut random)
                };
                all[disk].push(changes);
            }
        }
        all
    }

    /// So many blocks that they are `part` of the data.
    fn data_blocks(&self, part: f64) -> u64 {
        ((self.nonzero.len() as f64 * part) as u64).max(1)
    }

    /// Begins somewhere in the data.
    fn place(&self, random: &mut Random) -> BlockNo {
        self.nonzero[random.below(self.nonzero.len() as u64) as usize]
    }

    fn week(&mut self, week: usize, places: &[BlockNo], material: &[Place], random: &mut Random) -> Changes {
        let deadline = if week + 1 == DEADLINE.0 { DEADLINE.1 } else { 1.0 };
        let change = MEDIAN_CHANGE * deadline * (SIGMA * random.normal()).exp();
        let blocks = self.data_blocks(change.min(CHANGE_MAX));
        let mut changes = Changes::new();
        for (&place, part) in places.iter().zip(PLACES) {
            let wanted = ((blocks as f64 * part) as u64).max(1);
            self.change_place(place, wanted, material, random, &mut changes);
        }
        changes
    }

    /// Writes `wanted` blocks in clusters that do not overlap, at a place that is large enough for them.
    fn change_place(
        &mut self,
        place: BlockNo,
        wanted: u64,
        material: &[Place],
        random: &mut Random,
        changes: &mut Changes,
    ) {
        let length = self.data_blocks(PLACE).max(4 * wanted).min(self.blocks);
        let start = place.0.min(self.blocks - length);
        let mut left = wanted;
        while left > 0 {
            let count = (CLUSTER_BLOCKS.0 + random.below(CLUSTER_BLOCKS.1 - CLUSTER_BLOCKS.0 + 1)).min(left);
            let first = start + random.below((length - count).max(1));
            let common = random.unit() < COMMON_CONTENT;
            // Files begin where blocks of files do: copies of the material overlap, and are not aligned by luck alone.
            let mut from = random.below(material.len() as u64 / CLUSTER_BLOCKS.0) * CLUSTER_BLOCKS.0;
            for block in first..first + count {
                if changes.contains_key(&BlockNo(block)) {
                    continue;
                }
                let content =
                    if common { material[from as usize % material.len()] } else { self.pool.draw() };
                from += 1;
                changes.insert(BlockNo(block), content);
                left -= 1;
            }
        }
    }

    fn rewrite_most(&mut self, random: &mut Random) -> Changes {
        let mut changes = Changes::new();
        for cluster in self.nonzero.chunks(CLUSTER_BLOCKS.1 as usize) {
            if random.unit() < OUTLIER {
                changes.extend(cluster.iter().map(|block| (*block, self.pool.draw())));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes_of, nonzero_bytes};
    use super::*;
    use crate::images::{GeneratedShape, ImageSet};
    use crate::results::report::median;

    fn students(set: &ImageSet, disks: usize, weeks: usize, seed: u64) -> Students {
        let pools: Vec<&Image> = set.disks[1..].iter().map(|disk| &disk.versions[0]).collect();
        let shape = StudentsShape { disks, weeks, seed };
        Students::new(&set.disks[0].versions[0], &pools, shape).expect("workload")
    }

    fn images(dir: &std::path::Path, size_bytes: u64) -> ImageSet {
        let shape = GeneratedShape { suites: 2, disks: 1, versions: 1, size_bytes };
        ImageSet::generate(dir, 5, shape).expect("images")
    }

    #[test]
    fn the_same_seed_gives_the_same_disks_and_another_seed_others() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path(), 8 << 20);
        let last = |seed| bytes_of(&students(&set, 2, 3, seed).version(0, 2));
        assert!(last(1) == last(1));
        assert!(last(1) != last(2));
    }

    #[test]
    fn versions_have_the_sizes_they_say() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path(), 8 << 20);
        let students = students(&set, 2, 3, 1);
        let base = std::fs::read(&set.disks[0].versions[0].path).expect("read");
        for disk in 0..students.disks() {
            let mut before = bytes_of(&students.version(disk, 0));
            assert!(before == base, "the first version is the clone");
            for week in 1..students.weeks() {
                let version = students.version(disk, week);
                let bytes = bytes_of(&version);
                assert_eq!(version.nonzero_bytes, nonzero_bytes(&bytes));
                let pairs = before.chunks(BLOCK as usize).zip(bytes.chunks(BLOCK as usize));
                let changed = pairs.filter(|(a, b)| a != b).count() as u64 * BLOCK;
                // A block may be given the content it had.
                assert!((changed..changed + (64 << 10)).contains(&version.changed_bytes), "{changed}");
                before = bytes;
            }
        }
    }

    #[test]
    fn weeks_change_as_in_the_paper() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path(), 32 << 20);
        let students = students(&set, 40, 6, 3);
        let part = |disk, week| {
            let version = students.version(disk, week);
            version.changed_bytes as f64 / version.nonzero_bytes as f64
        };
        let of_week = |week| median((0..39).map(|disk| part(disk, week))).expect("disks");
        for week in [1, 2, 4] {
            assert!((0.004..0.0132).contains(&of_week(week)), "week {}: {}", week + 1, of_week(week));
        }
        assert!(of_week(3) > 2.0 * of_week(2), "the deadline");
        assert!(part(39, 5) > 0.6, "the outlier: {}", part(39, 5));
    }

    #[test]
    fn disks_share_a_part_of_what_they_write() {
        let dir = tempfile::tempdir().expect("dir");
        let set = images(dir.path(), 32 << 20);
        let students = students(&set, 20, 2, 3);
        let mut all: Vec<Place> = Vec::new();
        for of_disk in &students.changes[..19] {
            all.extend(of_disk[1].values().copied());
        }
        let key = |p: &Place| match p {
            Place::Null => (0, 0),
            Place::At(file, block) => (file.0, block.0),
            Place::Generated(name) => (usize::MAX, *name),
        };
        let written = all.len();
        all.sort_unstable_by_key(key);
        all.dedup();
        let shared = 1.0 - all.len() as f64 / written as f64;
        assert!((0.03..0.3).contains(&shared), "{shared}");
    }
}
