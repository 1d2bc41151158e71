//! One disk, stored every day, that lives through real upgrades (RevDedup 4.3.1).
//!
//! The real versions of an image stand at equal distances in the chain, byte for byte. Between two of them the blocks
//! in which they differ arrive in parts, each a range of consecutive ones, as an upgrade writes them.

use std::sync::Arc;

use anyhow::{ensure, Result};

use super::blocks::{differences, nonzero_blocks, Difference};
use super::{runs, Changes, FileNo, Files, Place, Version, BLOCK};
use crate::images::Disk;

/// A chain of daily versions.
pub struct Daily {
    name: String,
    files: Arc<Files>,
    size_bytes: u64,
    /// The days on which the disk is a real version, from 0 on.
    real: Vec<usize>,
    /// Bytes in non-null blocks of each real version.
    nonzero_bytes: Vec<u64>,
    /// From each real version to the next.
    steps: Vec<Vec<Difference>>,
    days: usize,
}

impl Daily {
    /// The first `days` days of a chain in which the real versions of `disk` spread over `of_days` days.
    pub fn new(disk: &Disk, of_days: usize, days: usize) -> Result<Self> {
        let versions = disk.versions.len();
        ensure!(versions >= 2 && of_days >= versions, "{of_days} days cannot hold {versions} versions");
        let days = days.clamp(1, of_days);
        let gaps = versions - 1;
        let real: Vec<usize> = (0..versions).map(|i| (i * (of_days - 1) + gaps / 2) / gaps).collect();
        // One more than the chain reaches: its last days are on the way there.
        let needed = (real.partition_point(|&day| day < days) + 1).min(versions);
        let real = real[..needed].to_vec();
        let files = Files::open(disk.versions.iter().take(needed))?;
        let mut nonzero_bytes = vec![nonzero_blocks(files.get(FileNo(0)))?.len() as u64 * BLOCK];
        let mut steps = Vec::new();
        for i in 1..needed {
            let step = differences(files.get(FileNo(i - 1)), files.get(FileNo(i)))?;
            nonzero_bytes.push(nonzero_after(nonzero_bytes[i - 1], &step));
            steps.push(step);
        }
        let size_bytes = disk.versions[0].size_bytes;
        let name = disk.name.clone();
        Ok(Self { name, files: Arc::new(files), size_bytes, real, nonzero_bytes, steps, days })
    }

    /// Days in the chain.
    pub fn days(&self) -> usize {
        self.days
    }

    /// Whether the disk is a real version on `day` (from 0 on).
    pub fn is_real(&self, day: usize) -> bool {
        self.real.contains(&day)
    }

    /// The disk on `day`, from 0 on.
    pub fn version(&self, day: usize) -> Version {
        let base = self.base_of(day);
        let before = day.checked_sub(1).map(|day| self.base_of(day));
        let arrived = self.arrived(day, base);
        let mut changes = Changes::new();
        for d in arrived {
            let place = if d.is_null { Place::Null } else { Place::At(FileNo(base + 1), d.block) };
            changes.insert(d.block, place);
        }
        let changed_blocks = match before {
            None => 0,
            Some(b) if b == base => arrived.len() - self.arrived(day - 1, base).len(),
            Some(b) => self.steps[b].len() - self.arrived(day - 1, b).len(),
        };
        Version {
            disk: self.name.clone(),
            size_bytes: self.size_bytes,
            nonzero_bytes: nonzero_after(self.nonzero_bytes[base], arrived),
            changed_bytes: changed_blocks as u64 * BLOCK,
            files: Arc::clone(&self.files),
            base: FileNo(base),
            runs: runs(&changes).into(),
        }
    }

    /// The last real version up to `day`.
    fn base_of(&self, day: usize) -> usize {
        self.real.partition_point(|&real| real <= day) - 1
    }

    /// What of the way from a real version to the next has arrived on `day`.
    fn arrived(&self, day: usize, base: usize) -> &[Difference] {
        let Some(step) = self.steps.get(base) else { return &[] };
        let parts = self.real[base + 1] - self.real[base];
        &step[..step.len() * (day - self.real[base]) / parts]
    }
}

fn nonzero_after(before: u64, differences: &[Difference]) -> u64 {
    let count = |of: fn(&Difference) -> bool| differences.iter().filter(|d| of(d)).count() as u64;
    before + count(|d| !d.is_null) * BLOCK - count(|d| !d.was_null) * BLOCK
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes_of, nonzero_bytes};
    use super::*;
    use crate::files::BLOCK_BYTES;
    use crate::images::{GeneratedShape, ImageSet};

    fn chain(dir: &std::path::Path, days: usize) -> (Daily, Vec<Vec<u8>>) {
        let shape = GeneratedShape { suites: 1, disks: 1, versions: 4, size_bytes: 8 << 20 };
        let set = ImageSet::generate(dir, 5, shape).expect("images");
        let disk = &set.disks[0];
        let real = disk.versions.iter().map(|v| std::fs::read(&v.path).expect("read")).collect();
        (Daily::new(disk, 12, days).expect("chain"), real)
    }

    #[test]
    fn real_versions_are_there_byte_for_byte() {
        let dir = tempfile::tempdir().expect("dir");
        let (daily, real) = chain(dir.path(), 12);
        let days: Vec<usize> = (0..daily.days()).filter(|&day| daily.is_real(day)).collect();
        assert_eq!(days, [0, 4, 7, 11]);
        for (day, bytes) in days.into_iter().zip(real) {
            assert!(bytes_of(&daily.version(day)) == bytes, "day {day}");
        }
    }

    #[test]
    fn days_between_change_about_equally_and_say_so() {
        let dir = tempfile::tempdir().expect("dir");
        let (daily, _) = chain(dir.path(), 12);
        let mut before = bytes_of(&daily.version(0));
        for day in 1..daily.days() {
            let version = daily.version(day);
            let bytes = bytes_of(&version);
            let pairs = before.chunks(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES));
            let changed = pairs.filter(|(a, b)| a != b).count() as u64 * BLOCK;
            assert_eq!(version.changed_bytes, changed, "day {day}");
            assert_eq!(version.nonzero_bytes, nonzero_bytes(&bytes), "day {day}");
            assert!(changed > 0, "day {day}");
            before = bytes;
        }
    }

    #[test]
    fn a_shorter_chain_has_the_same_days() {
        let dir = tempfile::tempdir().expect("dir");
        let (long, _) = chain(dir.path(), 12);
        let (short, _) = chain(&dir.path().join("again"), 6);
        assert_eq!(short.days(), 6);
        for day in 0..short.days() {
            assert!(bytes_of(&long.version(day)) == bytes_of(&short.version(day)), "day {day}");
        }
    }
}
