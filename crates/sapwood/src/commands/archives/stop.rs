//! Ends a command that was told to stop.

use crate::terminal::exit_code::INTERRUPTED;
use crate::terminal::streams::errln;
use archive::mzip::MzipError;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a command that is stopped may take to end.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Ends the program if it does not end by itself: a read or a write may wait for somebody else for ever. What was not finished
/// has no name.
pub fn end_soon() {
    static STOPPED_AT: OnceLock<Instant> = OnceLock::new();
    if STOPPED_AT.get_or_init(Instant::now).elapsed() > STOP_WITHIN {
        errln!("sapwood: {}", MzipError::Stopped);
        std::process::exit(INTERRUPTED.into());
    }
}
