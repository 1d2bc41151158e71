//! A tree of files or a file system, mounted over FUSE (<https://docs.kernel.org/filesystems/fuse>).
//!
//! The crate `fuser` speaks to the kernel; mounting and unmounting are done here, without libfuse. A tree is read-only:
//! the contents of its files never change, so the kernel keeps what it has read of them; names are asked for again each
//! second. A file system is changed by the kernel alone, which keeps all that it has asked for, and
//! what programs write until it is a good time to send it.

mod file_requests;
mod mount;
mod mountpoint;
mod requests;
mod served;
mod tuning;
mod writers;

pub use mount::{Mount, MountOptions, UnmountOutcome};
