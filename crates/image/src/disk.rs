//! The three kinds of disk: a source to read, a target to write, and a base that overlays stand on.

use crate::error::Result;
use std::io;
use std::ops::Range;
use std::sync::Arc;

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

    /// The same disk, if its blocks have been fingerprinted before.
    fn known_blocks(&self) -> Option<Arc<dyn KnownBlocks>> {
        None
    }

    /// Called when everything has been read.
    ///
    /// # Errors
    /// Where the disk changed meanwhile, so that the content is not of one point in time.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What is known of a block without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBlock {
    /// It is zero.
    Zeros,
    /// BLAKE3-256 of its content.
    Fingerprint([u8; 32]),
    /// Nothing.
    Unknown,
}

/// A disk whose blocks have been fingerprinted before. Several threads may use it at once.
pub trait KnownBlocks: Send + Sync {
    /// What is known of the blocks of a range, which begins at a block; [`KNOWN_BLOCK_BYTES`] each, but for a shorter last one,
    /// of which nothing is known.
    fn known(&self, range: Range<u64>) -> Result<Vec<KnownBlock>>;

    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
}

/// Bytes of a known block.
pub const KNOWN_BLOCK_BYTES: u32 = 4096;

/// A disk to write, from several threads, in any order (but see [`Target::in_order`]).
pub trait Target: Send + Sync {
    /// Whether writes must come in address order (pipes).
    fn in_order(&self) -> bool;

    /// Writes `data` at `offset`. What is never written reads as zeros afterwards.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Makes everything durable and the target valid. A target that is dropped unfinished is not valid.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A disk that does not change: what an overlay stands on, or what a live restore copies.
pub trait Base: Send + Sync {
    /// Fills `buf` from `offset`; bytes beyond the end of the disk are zeros.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// What a range of a disk that stands on a base holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// What the base has.
    Base,
    /// Zeros.
    Zeros,
    /// Data of its own.
    Data,
}
