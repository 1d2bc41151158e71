//! A gate for work that takes memory: it lets so much of it pass at a time that all of it stays within a budget.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Work within a budget of memory. What alone takes more passes when no other is under way.
pub(crate) struct Gate {
    budget: u64,
    passed: Arc<Passed>,
}

#[derive(Default)]
struct Passed {
    bytes: Mutex<u64>,
    ended: Condvar,
}

/// Work that was let pass; it ends when this is dropped.
pub(crate) struct Passage {
    passed: Arc<Passed>,
    bytes: u64,
}

impl Gate {
    /// One with a budget in bytes.
    pub fn new(budget: u64) -> Gate {
        Gate { budget, passed: Arc::default() }
    }

    /// Waits until work that takes so many bytes may begin.
    pub fn pass(&self, bytes: u64) -> Passage {
        let mut taken = self.passed.bytes.lock();
        while *taken > 0 && taken.saturating_add(bytes) > self.budget {
            self.passed.ended.wait(&mut taken);
        }
        *taken = taken.saturating_add(bytes);
        Passage { passed: self.passed.clone(), bytes }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let mut taken = self.passed.bytes.lock();
        *taken = taken.saturating_sub(self.bytes);
        self.passed.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn work_stays_within_the_budget_unless_it_is_alone() {
        let gate = Gate::new(10);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for n in 0..8u64 {
                let (gate, now, most) = (&gate, &now, &most);
                threads.spawn(move || {
                    for k in 0..200 {
                        // One in some is larger than the budget.
                        let bytes = if (n + k) % 50 == 0 { 25 } else { (n + k) % 7 + 1 };
                        let _passage = gate.pass(bytes);
                        let all = now.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(all <= 10 || all == bytes, "{all} with {bytes}");
                        most.fetch_max(all, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!((*gate.passed.bytes.lock(), most.into_inner()), (0, 25));
    }
}
