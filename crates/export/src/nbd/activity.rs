//! What a connection is doing: the server closes idle ones when it is full.

use super::limits::State;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Written by the threads of a connection, read by the listening thread. The atomics order nothing else.
pub(super) struct Activity {
    began: Instant,
    has_agreed: AtomicBool,
    /// Requests that were taken and are not answered.
    in_hand: AtomicUsize,
    /// Replies that are being written; the client may be slow to read them.
    replying: AtomicUsize,
    /// When a request or a piece of it came last, or a reply was written: milliseconds after it began.
    last_ms: AtomicU64,
}

impl Activity {
    /// A connection whose handshake begins now.
    pub fn new() -> Activity {
        Activity {
            began: Instant::now(),
            has_agreed: AtomicBool::new(false),
            in_hand: AtomicUsize::new(0),
            replying: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
        }
    }

    /// The handshake is over.
    pub fn agreed(&self) {
        self.touch();
        self.has_agreed.store(true, Ordering::Relaxed);
    }

    /// Something came from the client.
    pub fn touch(&self) {
        self.last_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Counts a request that is being carried out, until the guard is dropped.
    pub fn request(&self) -> CountGuard<'_> {
        self.touch();
        CountGuard::new(self, &self.in_hand)
    }

    /// Counts a reply that is being written, until the guard is dropped.
    pub fn reply(&self) -> CountGuard<'_> {
        self.touch();
        CountGuard::new(self, &self.replying)
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        let some = |of: &AtomicUsize| of.load(Ordering::Relaxed) > 0;
        if !self.has_agreed.load(Ordering::Relaxed) {
            State::Handshake(self.began)
        } else if some(&self.in_hand) && !some(&self.replying) {
            State::Busy
        } else {
            State::Idle(self.began + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
        }
    }
}

/// Counts one more while it lives.
pub(super) struct CountGuard<'a>(&'a Activity, &'a AtomicUsize);

impl<'a> CountGuard<'a> {
    fn new(activity: &'a Activity, count: &'a AtomicUsize) -> CountGuard<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        CountGuard(activity, count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.touch();
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}
