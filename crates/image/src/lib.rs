//! Reading and writing disks: raw files, block devices, qcow2, VMDK, pipes.
//!
//! A [`Source`] is a disk to be read once, from front to back; a [`Target`] is a disk to be written.
//! Neither knows what deduplication is.

mod arriving;
mod base;
mod bytes;
mod changes;
mod decode;
mod error;
mod extent;
mod format;
mod hostfile;
mod image_lock;
mod limited;
mod nbd;
mod open;
pub mod qcow2;
mod random_file;
mod raw;
#[cfg(test)]
mod recorder;
mod stream;
mod tables;
mod target;
mod unpack;
pub mod vmdk;
mod zeros;

pub use arriving::{Arriving, ArrivingOptions, ArrivingPaths};
pub use base::Base;
pub use bytes::ReadAt;
pub use changes::Changes;
pub use error::{ImageError, Result};
pub use format::Format;
pub use limited::{Limited, Pace};
pub use nbd::NbdSource;
pub use open::{open, open_bytes, SourceOptions};
pub use random_file::{sync_folder_of, RandomFile};
pub use stream::Stream;
pub use target::{create_target, PipeTarget, Replaced, TargetFormat, TargetOptions};

use std::ops::Range;

/// A disk to read. Its format was chosen by its content, never by its name.
pub trait Source: Send {
    /// The format found: `raw`, `block`, `qcow2`, `vmdk`, `stream`.
    fn format(&self) -> &'static str;

    /// Size of the virtual disk in bytes; `None` where only the end of a stream tells it.
    fn size(&self) -> Option<u64>;

    /// The next range at or after `from` that may hold anything but zeros; `None`: zeros up to the end.
    ///
    /// Cheap: a hole of a terabyte is passed over in one step. Streams call everything data: `from..u64::MAX` until
    /// their end was met. A range may end before the data does; the next call goes on from there.
    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>>;

    /// Reads into `buf` from `offset`. Returns less than `buf.len()` only at the end of the disk.
    ///
    /// Streams are read in order only; any other offset is an error.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Called when everything has been read: an error where what was read is not of one point in time.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A disk to write, from several threads, in any order (but see [`Target::in_order`]).
pub trait Target: Send + Sync {
    /// Whether writes must come in address order (pipes).
    fn in_order(&self) -> bool;

    /// Writes `data` at `offset`. What is never written reads as zeros afterwards.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Makes everything durable and the target valid. Without it the target is not to be trusted.
    fn finish(self: Box<Self>) -> Result<()>;
}
