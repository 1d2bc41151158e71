//! Disks behind an NBD server: QEMU's exports, `qemu-nbd`, nbdkit.
//!
//! The protocol is that of <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: fixed newstyle
//! handshake, structured replies where the server has them, and two metadata contexts: `base:allocation` tells where
//! there are zeros, `qemu:dirty-bitmap:NAME` what has changed since the bitmap was begun. Nothing that the server says
//! is trusted: lengths, offsets and counts are checked before they are used.

mod handshake;
mod socket;
#[cfg(test)]
mod tests;
mod tls;
mod transfer;
mod uri;

use crate::disk::Source;
use crate::error::{ImageError, Result};
use crate::source::changes::Changes;
use format::nbd::{STATE_DIRTY, STATE_ZERO};
use handshake::Export;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use transfer::Connection;
use uri::Uri;

/// Bytes that one question about the state of blocks is about.
const STATUS_BYTES: u64 = 1 << 30;

/// A disk behind an NBD server.
pub struct NbdSource {
    connection: Connection,
    export: Export,
    /// Ranges that may hold data, of the part of the disk that was asked for.
    data: VecDeque<Range<u64>>,
    known: Range<u64>,
}

/// The source's name, if it is that of an NBD export.
pub(crate) fn uri(path: &Path) -> Option<&str> {
    path.to_str().filter(|p| NbdSource::is_uri(p))
}

impl NbdSource {
    /// Whether a source's name is the URI of an export, well-formed or not.
    pub fn is_uri(name: &str) -> bool {
        uri::SCHEMES.iter().any(|(scheme, _)| name.starts_with(scheme))
    }

    /// Whether a URI is well-formed; nothing is connected.
    ///
    /// # Errors
    /// `Address`, with what is wrong.
    pub fn check_uri(uri: &str) -> Result<()> {
        Uri::parse(uri).map(drop).map_err(|why| ImageError::address(uri, why))
    }

    /// Connects to `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`; by TLS to
    /// `nbds://HOST[:PORT]/EXPORT?tls-certificates=DIRECTORY`. With `bitmap`, the export must have
    /// the dirty bitmap of that name.
    ///
    /// # Errors
    /// `Address` where the URI is not well-formed; `Refused` where the server or the export does not do what is asked for;
    /// `Corrupt` where it breaks the protocol.
    pub fn connect(uri: &str, bitmap: Option<&str>) -> Result<Self> {
        let parsed = Uri::parse(uri).map_err(|why| ImageError::address(uri, why))?;
        let socket = parsed.connect().map_err(|e| ImageError::io(uri, "connect", e))?;
        let (socket, export) = handshake::negotiate(socket, uri, &parsed, bitmap)?;
        let connection = Connection::new(socket, uri, &export);
        Ok(NbdSource { connection, export, data: VecDeque::new(), known: 0..0 })
    }

    /// What the bitmap says has changed.
    pub fn changes(&mut self) -> Result<Changes> {
        let Some(context) = self.export.bitmap else {
            return Err(ImageError::refused(self.connection.name(), "was opened without a bitmap"));
        };
        let mut dirty = Vec::new();
        let mut at = 0;
        while at < self.export.size {
            for (range, flags) in self.status(context, at)? {
                at = range.end;
                if flags & STATE_DIRTY != 0 {
                    dirty.push(range);
                }
            }
        }
        Ok(Changes::new(dirty))
    }

    /// The state of blocks from `at` on, at least one range of them.
    fn status(&mut self, context: u32, at: u64) -> Result<Vec<(Range<u64>, u32)>> {
        let len = (self.export.size - at).min(STATUS_BYTES);
        let mut found = Vec::new();
        let mut from = at;
        for (length, flags) in self.connection.block_status(context, at, len as u32)? {
            // The last one may reach further than was asked for.
            let end = from.saturating_add(u64::from(length)).min(at + len);
            if from < end {
                found.push((from..end, flags));
            }
            from = end;
        }
        if found.is_empty() {
            Err(self.connection.broken(format!("did not describe the blocks at {at}")))
        } else {
            Ok(found)
        }
    }
}

impl Source for NbdSource {
    fn format(&self) -> &'static str {
        "nbd"
    }

    fn size(&self) -> Option<u64> {
        Some(self.export.size)
    }

    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let Some(context) = self.export.allocation else {
            return Ok((from < self.export.size).then_some(from..self.export.size));
        };
        if !self.known.contains(&from) {
            self.data.clear();
            self.known = from..from;
        }
        // What lies before is asked for again, should anybody go back.
        self.known.start = from;
        loop {
            while self.data.front().is_some_and(|r| r.end <= from) {
                self.data.pop_front();
            }
            if let Some(first) = self.data.front() {
                return Ok(Some(first.start.max(from)..first.end));
            }
            if self.known.end >= self.export.size {
                return Ok(None);
            }
            for (range, flags) in self.status(context, self.known.end)? {
                self.known.end = range.end;
                if flags & STATE_ZERO == 0 {
                    self.data.push_back(range);
                }
            }
        }
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = (buf.len() as u64).min(self.export.size.saturating_sub(offset)) as usize;
        self.connection.read(offset, &mut buf[..len])?;
        Ok(len)
    }
}
