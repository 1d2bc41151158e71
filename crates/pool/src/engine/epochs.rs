//! Who may still read a block that nothing names any more.
//!
//! A reader looks a block up and reads it later, without a lock. So a block that was freed may be used again only when all
//! readers that may have seen it have ended. Readers enter the current epoch; it moves on when nobody is left in the one
//! before; what was freed in an epoch may be used two epochs later.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many counters that readers rarely meet at one.
const SHARDS: usize = 16;

#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Epochs, and the readers in them.
#[derive(Default)]
pub(super) struct Epochs {
    current: AtomicU64,
    readers: [[Counter; SHARDS]; 3],
}

/// A reader. While it lives no block is used again that it may have seen.
pub struct EpochGuard<'a> {
    counter: &'a AtomicU64,
}

impl Drop for EpochGuard<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Epochs {
    /// Begins to read.
    pub fn enter(&self) -> EpochGuard<'_> {
        let shard = shard();
        loop {
            let epoch = self.current.load(Ordering::SeqCst);
            let counter = &self.readers[(epoch % 3) as usize][shard].0;
            counter.fetch_add(1, Ordering::SeqCst);
            // If the epoch moved on in between, it may have moved on without seeing this reader.
            if self.current.load(Ordering::SeqCst) == epoch {
                return EpochGuard { counter };
            }
            counter.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The current epoch: what is freed now may be used from two later on.
    pub fn current(&self) -> u64 {
        self.current.load(Ordering::SeqCst)
    }

    /// Moves on if nobody is left in the epoch before. One thread at a time.
    pub fn advance(&self) -> u64 {
        let epoch = self.current();
        // The slot of the epoch before is the one that is two ahead.
        let is_left =
            self.readers[((epoch + 2) % 3) as usize].iter().all(|c| c.0.load(Ordering::SeqCst) == 0);
        if is_left {
            self.current.store(epoch + 1, Ordering::SeqCst);
            epoch + 1
        } else {
            epoch
        }
    }
}

fn shard() -> usize {
    use std::hash::{DefaultHasher, Hash, Hasher};
    thread_local! {
        static SHARD: usize = {
            let mut hasher = DefaultHasher::new();
            std::thread::current().id().hash(&mut hasher);
            hasher.finish() as usize % SHARDS
        };
    }
    SHARD.with(|shard| *shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_what_was_freed_while_it_reads() {
        let epochs = Epochs::default();
        let early = epochs.enter();
        let freed = epochs.current();
        (0..10).for_each(|_| _ = epochs.advance());
        assert!(epochs.current() < freed + 2);
        let late = epochs.enter();
        drop(early);
        (0..10).for_each(|_| _ = epochs.advance());
        // The late one entered after the freeing, but cannot be told from one that did not.
        assert_eq!(epochs.current(), freed + 2);
        drop(late);
        epochs.advance();
        assert_eq!(epochs.current(), freed + 3);
    }
}
