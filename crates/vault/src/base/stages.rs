//! The working time of each stage of a backup. The stage that works most of the time is the bottleneck.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Seconds that each stage of a backup worked, all its threads together; waiting for other stages does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageSeconds {
    /// Reading the source.
    pub read: f64,
    /// Cutting and fingerprinting.
    pub analyse: f64,
    /// Looking chunks up.
    pub look_up: f64,
    /// Placing what is new, and the recipe.
    pub place: f64,
    /// Compressing.
    pub pack: f64,
    /// Writing containers.
    pub write: f64,
    /// Making containers, tables and recipe durable, and the commit.
    pub sync: f64,
}

/// A stage's time, added up by its threads.
#[derive(Default)]
pub(crate) struct Stage(AtomicU64);

impl Stage {
    /// Counts the time that `work` takes.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.add(start.elapsed());
        done
    }

    /// Adds time that was worked.
    pub fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn seconds(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// All stages.
#[derive(Default)]
pub(crate) struct Stages {
    pub read: Stage,
    pub analyse: Stage,
    pub look_up: Stage,
    pub place: Stage,
    pub pack: Stage,
    pub write: Stage,
    pub sync: Stage,
}

impl Stages {
    /// All stages in seconds.
    pub fn seconds(&self) -> StageSeconds {
        StageSeconds {
            read: self.read.seconds(),
            analyse: self.analyse.seconds(),
            look_up: self.look_up.seconds(),
            place: self.place.seconds(),
            pack: self.pack.seconds(),
            write: self.write.seconds(),
            sync: self.sync.seconds(),
        }
    }
}
