//! A tree of files, mounted read-only over FUSE (<https://docs.kernel.org/filesystems/fuse>).
//!
//! The crate `fuser` speaks to the kernel; mounting and unmounting are done here, without libfuse. The contents of a file
//! never change, so the kernel keeps what it has read of them; names are asked for again each second.

mod mount;
mod mountpoint;
mod requests;

pub use mount::{Mount, MountOptions, UnmountOutcome};
