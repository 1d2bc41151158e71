//! Waiting for a signal to end.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// SIGINT, SIGTERM and SIGHUP, from now on.
pub struct EndSignal {
    has_come: Arc<AtomicBool>,
}

impl EndSignal {
    /// Catches the signals.
    pub fn new() -> Result<EndSignal> {
        let has_come = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, has_come.clone()).context("waiting for signals")?;
        }
        Ok(EndSignal { has_come })
    }

    /// Has the effect of a signal when it is called.
    pub fn trigger(&self) -> impl FnOnce() + Send + 'static {
        let has_come = self.has_come.clone();
        move || has_come.store(true, Ordering::SeqCst)
    }

    /// Asks from another thread whether a signal has come.
    pub fn watch(&self) -> impl Fn() -> bool + Send + 'static {
        let has_come = self.has_come.clone();
        move || has_come.load(Ordering::SeqCst)
    }

    /// Whether a signal has come.
    pub fn has_come(&self) -> bool {
        self.has_come.load(Ordering::SeqCst)
    }
}
