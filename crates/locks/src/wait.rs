//! Waiting for a lock that is held for a moment only.

use std::thread;
use std::time::{Duration, Instant};

/// How long [`try_for_a_moment`] tries.
const MOMENT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(10);

/// Tries to get a lock until it is got, or half a second has passed: `None` then.
///
/// A lock belongs to the open file. A process that has been forked has the open files of its parent until it runs its own
/// program, and so a lock may outlive by some milliseconds the process, or the file, that had it. `status` and others look
/// whether a lock can be had, and hold it for an instant.
///
/// # Errors
/// Those of `attempt`, at once.
pub fn try_for_a_moment<T, E>(mut attempt: impl FnMut() -> Result<Option<T>, E>) -> Result<Option<T>, E> {
    let start = Instant::now();
    loop {
        match attempt()? {
            None if start.elapsed() < MOMENT => thread::sleep(PAUSE),
            ended => return Ok(ended),
        }
    }
}
