//! A disk that comes through a pipe: read once, in order, its size unknown until it ends.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use crate::disk::Source;
use crate::error::{ImageError, Result};

/// Reads a raw disk from any [`Read`].
///
/// [`Source::size`] is `None` until the end was met. [`Source::next_data`] answers `from..u64::MAX` until then, and
/// the rest of the stream afterwards; so a caller reads until [`Source::read_at`] returns less than it asked for.
pub struct Stream<R> {
    name: String,
    inner: R,
    position: u64,
    ended: bool,
}

impl<R: Read + Send> Stream<R> {
    /// A disk of the bytes of `inner`; errors call it `name`.
    pub fn new(inner: R, name: impl Into<String>) -> Self {
        Self { name: name.into(), inner, position: 0, ended: false }
    }

    /// What it reads.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }
}

impl<R: Read + Send> Source for Stream<R> {
    fn format(&self) -> &'static str {
        "stream"
    }

    fn size(&self) -> Option<u64> {
        self.ended.then_some(self.position)
    }

    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let end = self.size().unwrap_or(u64::MAX);
        Ok((from < end).then_some(from..end))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if self.ended && offset >= self.position {
            return Ok(0);
        }
        if offset != self.position {
            return Err(ImageError::refused(
                &self.name,
                format!(
                    "a stream is read in order: offset {offset} was asked for at position {}",
                    self.position
                ),
            ));
        }
        let mut done = 0;
        while done < buf.len() {
            match self.inner.read(&mut buf[done..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(n) => {
                    done += n;
                    self.position += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(ImageError::io(&self.name, "read", e)),
            }
        }
        Ok(done)
    }
}
