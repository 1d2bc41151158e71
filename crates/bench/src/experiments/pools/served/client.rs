//! A client of a served disk, whatever the protocol.

use anyhow::Result;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// So many bytes are read.
    Read,
    /// The bytes that were put into the buffer are written.
    Write,
}

/// What to do next, and at which offset. For a write it fills the buffer, which has the length of the request.
pub type Next<'a> = dyn FnMut(&mut [u8]) -> Option<(Access, u64)> + 'a;

/// A client that keeps a number of requests under way, and decides what is in them.
pub trait Client {
    /// Bytes of the disk.
    fn size(&self) -> u64;

    /// Sends what `next` asks for, `depth` requests of `bytes` at once, until it gives `None`, and awaits all replies. Returns
    /// how many there were.
    fn run(&mut self, depth: usize, bytes: usize, next: &mut Next<'_>) -> Result<u64>;

    /// Makes durable what was written.
    fn flush(&mut self) -> Result<()>;
}
