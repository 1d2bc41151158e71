//! Locks on files: QEMU's on images ([`claim`]), and who has a lock, for messages ([`flock_holder`]).
//!
//! A message about a lock names the host, the process, and since when that runs.

#![deny(missing_docs)]

mod holder;
mod host;
mod qemu;

pub use holder::flock_holder;
pub use host::host_name;
pub use qemu::{check, claim, ClaimError, Purpose};
