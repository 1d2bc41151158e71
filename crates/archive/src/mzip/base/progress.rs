//! How far an operation is, for another thread to see, and to stop it.

use super::error::{MzipError, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far an operation is.
#[derive(Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    stopped: AtomicBool,
}

impl Progress {
    /// Bytes done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes to do; 0 as long as that is not known.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Ends the operation soon, with [`MzipError::Stopped`].
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(in crate::mzip) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    pub(in crate::mzip) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(in crate::mzip) fn check(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            Err(MzipError::Stopped)
        } else {
            Ok(())
        }
    }
}
