//! Locks on files: QEMU's on images ([`claim`]), waiting for those that end in a moment ([`try_for_a_moment`]), and who has
//! a lock, for messages ([`flock_holder`]).
//!
//! A message about a lock names the host, the process, and since when that runs.

#![deny(missing_docs)]

mod holder;
mod host;
mod qemu;
mod wait;

pub use holder::flock_holder;
pub use host::host_name;
pub use qemu::{check, claim, ClaimError, Purpose};
pub use wait::try_for_a_moment;
