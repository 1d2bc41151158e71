//! Threads that share the work of one operation: their number, their start, and the first error of any of them.

use crate::base::error::{Result, VaultError};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Threads for computing.
pub(crate) fn cores() -> usize {
    // More than these would wait for the stages that work in order, and take memory.
    std::thread::available_parallelism().map_or(2, |n| n.get()).min(8)
}

/// Threads that read ahead: most of their time they wait for the store.
const READING: usize = 8;

/// What it costs, about, to start and to end a thread. A read that takes less comes from memory.
const THREAD_COST: Duration = Duration::from_micros(100);

/// Whether the last read ahead of this process took longer than that.
static READS_WAIT: AtomicBool = AtomicBool::new(true);

/// Calls `each` for all items, to read what will be asked for; a single one is as well read when it is.
pub(crate) fn ahead<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    if items.len() > 1 {
        at_once(items, each);
    }
}

/// Calls `each`, which reads, for all items: several at a time, unless reads are so short that one thread is sooner done
/// with all. Where the system has no room for a thread, the others do its work.
pub(crate) fn at_once<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = |while_short: bool| {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            each(item);
            let waits = start.elapsed() > THREAD_COST;
            READS_WAIT.store(waits, Ordering::Relaxed);
            if waits && while_short {
                break;
            }
        }
    };
    if !READS_WAIT.load(Ordering::Relaxed) {
        work(true);
    }
    let left = items.len().saturating_sub(next.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        for _ in 1..left.min(READING) {
            drop(Builder::new().name("ahead".into()).spawn_scoped(scope, || work(false)));
        }
        work(false);
    });
}

/// The first error of any stage.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<VaultError>>);

impl Failure {
    /// Keeps an error, unless there is one already.
    pub fn set(&self, e: VaultError) {
        self.0.lock().get_or_insert(e);
    }

    /// Whether a stage has failed.
    pub fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The first error, once all stages have ended.
    pub fn into_result(self) -> Result<()> {
        self.0.into_inner().map_or(Ok(()), Err)
    }

    /// Runs a stage, and keeps its error.
    pub fn guard<T>(&self, stage: impl FnOnce() -> Result<T>) -> Option<T> {
        stage().map_err(|e| self.set(e)).ok()
    }

    /// Starts a thread. Where the system has no room for one this is an error of the operation's: what `work` holds is
    /// dropped, so that the threads at the other ends of its channels come to their end.
    pub fn spawn<'scope, T: Send + 'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Option<ScopedJoinHandle<'scope, T>> {
        let started = Builder::new().name(name.into()).spawn_scoped(scope, work);
        started.map_err(|e| self.set(VaultError::Thread(e))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Whether all reads are short, all wait, or one of them does.
    #[test]
    fn each_item_is_read_once() {
        let items: Vec<usize> = (0..40).collect();
        for waits in [0..0, 0..40, 20..21] {
            let (read, threads) = (Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
            ahead(&items, |item| {
                if waits.contains(item) {
                    std::thread::sleep(THREAD_COST * 20);
                }
                read.lock().push(*item);
                threads.lock().insert(format!("{:?}", std::thread::current().id()));
            });
            let mut read = read.into_inner();
            read.sort_unstable();
            assert_eq!(read, items, "{waits:?}");
            if waits.len() == items.len() {
                assert!(threads.into_inner().len() > 1, "reads that wait, wait together");
            }
        }
    }
}
