//! Where the time of writes goes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time that writers spent so far, all threads, waiting included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Computing fingerprints and check bits.
    pub hash: Duration,
    /// Looking fingerprints up: the filter, and fingerprint stores.
    pub find: Duration,
    /// Allocating blocks and writing data to them.
    pub data: Duration,
    /// Changing maps and counts: transactions, and the flushes and checkpoints that they had to wait for.
    pub map: Duration,
}

/// Adds up the time of a stage.
#[derive(Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Does something, and adds its time.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.0.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }

    fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A clock for each stage of a write.
#[derive(Default)]
pub struct Clocks {
    /// See [`Stages::hash`].
    pub hash: Clock,
    /// See [`Stages::find`].
    pub find: Clock,
    /// See [`Stages::data`].
    pub data: Clock,
    /// See [`Stages::map`].
    pub map: Clock,
}

impl Clocks {
    /// What they show.
    pub fn stages(&self) -> Stages {
        Stages { hash: self.hash.sum(), find: self.find.sum(), data: self.data.sum(), map: self.map.sum() }
    }
}
