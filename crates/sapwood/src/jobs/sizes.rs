//! How large vaults were: a line for a run of a job, in the directory of the jobs' states.
//!
//! A vault keeps no history of its size: its snapshots say what they stored, not what deletions gave back.

use super::state::StateDir;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// Seconds between two lines about a vault, at least.
const APART: i64 = 6 * 3600;
/// Bytes at the file's end that are read: those of ten years.
const READ_MAX: u64 = 2 << 20;
/// Seconds that growth is measured over, at most: older sizes say little of today's use.
const WINDOW: i64 = 30 * DAY;
/// Seconds that it is measured over, at least.
const WINDOW_MIN: i64 = 3 * DAY;
const DAY: i64 = 86_400;

/// The size of a vault at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizePoint {
    /// Seconds since 1970.
    pub time: i64,
    /// The vault.
    pub store: String,
    /// Bytes of all its objects.
    pub stored_bytes: u64,
}

/// How a vault has grown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Seconds that it is measured over.
    pub seconds: i64,
    /// Bytes that it was larger at the end; negative if it has shrunk.
    pub bytes: i64,
}

impl Growth {
    /// Seconds until this many free bytes are used up, if it goes on like that; `None` if it does not grow.
    pub fn seconds_left(self, free: u64) -> Option<i64> {
        let rate = self.bytes as f64 / self.seconds as f64;
        (self.bytes > 0).then(|| (free as f64 / rate) as i64)
    }
}

/// The sizes of one vault, oldest first.
#[derive(Clone, Debug, Default)]
pub struct SizeHistory(Vec<SizePoint>);

impl SizeHistory {
    /// The growth from the oldest size of the last 30 days until a size now; `None` if no size is three days old.
    pub fn growth(&self, stored: u64, now: i64) -> Option<Growth> {
        let age = |p: &SizePoint| now.saturating_sub(p.time);
        let oldest = self.0.iter().find(|p| (WINDOW_MIN..=WINDOW).contains(&age(p)))?;
        let bytes = i64::try_from(i128::from(stored) - i128::from(oldest.stored_bytes)).ok()?;
        Some(Growth { seconds: age(oldest), bytes })
    }
}

impl StateDir {
    /// Adds the size of a vault, unless one of the same hours is there.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn add_size(&self, point: &SizePoint) -> Result<()> {
        let last = self.sizes(&point.store)?.0.pop();
        // A clock that was set back must not silence it for long.
        if last.is_some_and(|last| (0..APART).contains(&(point.time - last.time))) {
            return Ok(());
        }
        let path = self.sizes_file();
        let cannot = || format!("{}: cannot write", path.display());
        let mut file = File::options().create(true).append(true).open(&path).with_context(cannot)?;
        // One write, at the end: jobs may run at once. What a power cut has torn has an end of its own.
        let line = format!("\n{}\n", serde_json::to_string(point)?);
        file.write_all(line.as_bytes()).with_context(cannot)
    }

    /// The sizes of a vault. What is not understood is left out.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn sizes(&self, store: &str) -> Result<SizeHistory> {
        let path = self.sizes_file();
        let cannot = || format!("{}: cannot read", path.display());
        let mut file = match File::open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(SizeHistory::default()),
            other => other.with_context(cannot)?,
        };
        let length = file.metadata().with_context(cannot)?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(READ_MAX))).with_context(cannot)?;
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes).with_context(cannot)?;
        let points = bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        Ok(SizeHistory(points.filter(|p: &SizePoint| p.store == store).collect()))
    }

    /// No job's state: those end with `.json`.
    fn sizes_file(&self) -> PathBuf {
        self.path().join("vault-sizes.jsonl")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn point(days: i64, stored_bytes: u64) -> SizePoint {
        SizePoint { time: days * DAY, store: "/srv/vault".into(), stored_bytes }
    }

    #[test]
    fn growth_is_that_of_the_last_thirty_days() {
        let history = SizeHistory(vec![point(0, 9), point(20, 100), point(40, 500), point(49, 550)]);
        assert_eq!(history.growth(600, 50 * DAY), Some(Growth { seconds: 30 * DAY, bytes: 500 }));
        assert_eq!(history.growth(600, 51 * DAY), Some(Growth { seconds: 11 * DAY, bytes: 100 }));
        assert_eq!(history.growth(400, 51 * DAY), Some(Growth { seconds: 11 * DAY, bytes: -100 }));
        // Two days, and eighty: neither says anything.
        assert_eq!(SizeHistory(vec![point(49, 5)]).growth(600, 51 * DAY), None);
        assert_eq!(SizeHistory(vec![point(0, 5)]).growth(600, 80 * DAY), None);
    }

    #[test]
    fn free_space_lasts_as_the_growth_says() {
        let seconds = 10 * DAY;
        assert_eq!(Growth { seconds, bytes: 100 }.seconds_left(1000), Some(100 * DAY));
        assert_eq!(Growth { seconds, bytes: 0 }.seconds_left(1000), None);
        assert_eq!(Growth { seconds, bytes: -1 }.seconds_left(1000), None);
    }

    #[test]
    fn a_torn_line_costs_itself_only() {
        let dir = tempfile::tempdir().unwrap();
        let states = StateDir::at(dir.path());
        states.add_size(&point(1, 10)).unwrap();
        let path = states.sizes_file();
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"time\":17").unwrap();
        states.add_size(&point(2, 20)).unwrap();
        // A few hours later, and of another vault.
        states.add_size(&SizePoint { time: 2 * DAY + 3600, ..point(2, 21) }).unwrap();
        states.add_size(&SizePoint { store: "/srv/other".into(), ..point(2, 5) }).unwrap();
        assert_eq!(states.sizes("/srv/vault").unwrap().0, [point(1, 10), point(2, 20)]);
        assert_eq!(states.sizes("/srv/other").unwrap().0.len(), 1);
    }
}
