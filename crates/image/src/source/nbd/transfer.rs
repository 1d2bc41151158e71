//! Transmission: reads, and questions about the state of blocks.

use super::handshake::Export;
use super::socket::Socket;
use crate::error::{ImageError, Result};
use format::nbd::*;
use std::io::{self, BufReader, Read, Write};
use std::ops::Range;

/// Bytes of one read request; several are under way at once.
const READ_BYTES: usize = 1 << 20;
/// Requests under way at once.
const AT_ONCE: usize = 8;
/// Pieces of one read that do not follow one another.
const MOST_PIECES: usize = 4096;
/// Bytes that an answer may have beside data.
const LONGEST_STATUS: u32 = 32 << 20;

/// A connection whose handshake is done.
pub(super) struct Connection {
    socket: BufReader<Box<dyn Socket>>,
    name: String,
    structured: bool,
    read_bytes: usize,
    cookie: u64,
}

/// A read that was asked for, and what has come of it.
struct Pending<'a> {
    offset: u64,
    buf: &'a mut [u8],
    /// What has been filled, as ranges of the buffer.
    filled: Vec<Range<usize>>,
    done: bool,
}

impl Pending<'_> {
    /// Takes a range as filled. No byte may come twice: another would be missing, unnoticed.
    fn fill(&mut self, range: Range<usize>) -> bool {
        let apart = self.filled.iter().all(|f| range.end <= f.start || f.end <= range.start)
            && self.filled.len() < MOST_PIECES;
        match self.filled.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.filled.push(range),
        }
        apart
    }

    fn filled_bytes(&self) -> usize {
        self.filled.iter().map(Range::len).sum()
    }
}

/// The head of an answer.
struct Head {
    cookie: u64,
    /// The last one to its request.
    last: bool,
    body: Body,
}

enum Body {
    /// The data of a whole read, without an offset.
    Plain,
    Error(u32),
    Chunk {
        kind: u16,
        len: u32,
    },
}

impl Connection {
    /// A connection after its handshake; `name` is what errors call it.
    pub fn new(socket: Box<dyn Socket>, name: &str, export: &Export) -> Self {
        Connection {
            socket: BufReader::with_capacity(64 << 10, socket),
            name: name.into(),
            structured: export.structured,
            read_bytes: READ_BYTES.min(export.payload_bytes as usize),
            cookie: 0,
        }
    }

    /// What errors call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Fills `buf` from `offset`.
    pub fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let base = self.cookie;
        let mut at = offset;
        let mut pending: Vec<Pending<'_>> = Vec::new();
        for buf in buf.chunks_mut(self.read_bytes) {
            let len = buf.len() as u64;
            pending.push(Pending { offset: at, buf, filled: Vec::new(), done: false });
            at += len;
        }
        self.cookie += pending.len() as u64;
        let (mut asked, mut answered) = (0, 0);
        while answered < pending.len() {
            while asked < pending.len() && asked < answered + AT_ONCE {
                let p = &pending[asked];
                let (at, len) = (p.offset, p.buf.len() as u32);
                self.request(CMD_READ, base + asked as u64, at, len)?;
                asked += 1;
            }
            let head = self.head()?;
            let index = head.cookie.wrapping_sub(base);
            let Some(p) = pending.get_mut(index as usize).filter(|p| index < asked as u64 && !p.done) else {
                return Err(self.broken("answered a request that was not made"));
            };
            self.fill(p, head.body)?;
            if head.last {
                let (got, wanted) = (p.filled_bytes(), p.buf.len());
                if got != wanted {
                    return Err(self.broken(format!("sent {got} bytes of {wanted} at {}", p.offset)));
                }
                p.done = true;
                answered += 1;
            }
        }
        Ok(())
    }

    fn fill(&mut self, p: &mut Pending<'_>, body: Body) -> Result<()> {
        let (kind, len) = match body {
            Body::Plain if self.structured => {
                return Err(
                    self.broken("answered a read with a simple reply after it agreed on structured ones")
                );
            }
            Body::Plain => {
                p.fill(0..p.buf.len());
                return self.exact(p.buf);
            }
            Body::Error(errno) => return Err(self.failed("read", p.offset, errno)),
            Body::Chunk { kind, len } => (kind, len),
        };
        match kind {
            TYPE_NONE => self.skip(len),
            TYPE_OFFSET_DATA if len >= 8 => {
                let at = self.place(p, u64::from(len) - 8)?;
                self.exact(&mut p.buf[at])
            }
            TYPE_OFFSET_HOLE if len == 12 => {
                let offset = u64::from_be_bytes(self.take()?);
                let hole = u32::from_be_bytes(self.take()?) as usize;
                let at = self.within(p, offset, hole as u64)?;
                p.buf[at].fill(0);
                Ok(())
            }
            _ if kind & TYPE_ERROR_BIT != 0 => {
                let errno = self.error_chunk(len)?;
                Err(self.failed("read", p.offset, errno))
            }
            _ => Err(self.broken(format!("answered a read with a chunk of type {kind} and {len} bytes"))),
        }
    }

    /// Reads the offset before data. Returns its place in the buffer.
    fn place(&mut self, p: &mut Pending<'_>, len: u64) -> Result<Range<usize>> {
        let offset = u64::from_be_bytes(self.take()?);
        self.within(p, offset, len)
    }

    /// Takes `len` bytes at `offset` of the disk as filled.
    fn within(&self, p: &mut Pending<'_>, offset: u64, len: u64) -> Result<Range<usize>> {
        let at = offset
            .checked_sub(p.offset)
            .filter(|at| at.checked_add(len).is_some_and(|e| e <= p.buf.len() as u64))
            .map(|at| at as usize..(at + len) as usize);
        at.filter(|range| p.fill(range.clone()))
            .ok_or_else(|| self.broken(format!("sent {len} bytes at {offset} for a read at {}", p.offset)))
    }

    /// The state of blocks: lengths and flags, from `offset` on.
    pub fn block_status(&mut self, context: u32, offset: u64, len: u32) -> Result<Vec<(u32, u32)>> {
        let cookie = self.cookie;
        self.cookie += 1;
        self.request(CMD_BLOCK_STATUS, cookie, offset, len)?;
        let mut found = Vec::new();
        loop {
            let head = self.head()?;
            if head.cookie != cookie {
                return Err(self.broken("answered a request that was not made"));
            }
            match head.body {
                Body::Plain => return Err(self.broken("gave no answer about the state of blocks")),
                Body::Error(errno) => return Err(self.failed("ask for the state of blocks", offset, errno)),
                Body::Chunk { kind: TYPE_NONE, len } => self.skip(len)?,
                Body::Chunk { kind: TYPE_BLOCK_STATUS, len }
                    if len >= 4 && len % 8 == 4 && len <= LONGEST_STATUS =>
                {
                    let of = u32::from_be_bytes(self.take()?);
                    let mut entries = vec![0; len as usize - 4];
                    self.exact(&mut entries)?;
                    if of == context {
                        let number = |b: &[u8]| u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
                        found.extend(entries.chunks_exact(8).map(|e| (number(e), number(&e[4..]))));
                    }
                }
                Body::Chunk { kind, len } if kind & TYPE_ERROR_BIT != 0 => {
                    let errno = self.error_chunk(len)?;
                    return Err(self.failed("ask for the state of blocks", offset, errno));
                }
                Body::Chunk { kind, len } => {
                    return Err(self
                        .broken(format!("told the state of blocks in a chunk of type {kind}, {len} bytes")));
                }
            }
            if head.last {
                return Ok(found);
            }
        }
    }

    fn request(&mut self, command: u16, cookie: u64, offset: u64, len: u32) -> Result<()> {
        let mut all = [0; 28];
        all[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        all[6..8].copy_from_slice(&command.to_be_bytes());
        all[8..16].copy_from_slice(&cookie.to_be_bytes());
        all[16..24].copy_from_slice(&offset.to_be_bytes());
        all[24..].copy_from_slice(&len.to_be_bytes());
        self.socket.get_mut().write_all(&all).map_err(|e| self.io(e))
    }

    fn head(&mut self) -> Result<Head> {
        match u32::from_be_bytes(self.take()?) {
            SIMPLE_REPLY_MAGIC => {
                let errno = u32::from_be_bytes(self.take()?);
                let cookie = u64::from_be_bytes(self.take()?);
                let body = if errno == 0 { Body::Plain } else { Body::Error(errno) };
                Ok(Head { cookie, last: true, body })
            }
            CHUNK_MAGIC if self.structured => {
                let flags = u16::from_be_bytes(self.take()?);
                let kind = u16::from_be_bytes(self.take()?);
                let cookie = u64::from_be_bytes(self.take()?);
                let len = u32::from_be_bytes(self.take()?);
                Ok(Head { cookie, last: flags & CHUNK_DONE != 0, body: Body::Chunk { kind, len } })
            }
            magic => Err(self.broken(format!("sent something other than a reply: {magic:#x}"))),
        }
    }

    /// Reads the rest of an answer that tells of an error.
    fn error_chunk(&mut self, len: u32) -> Result<u32> {
        if !(6..=LONGEST_STATUS).contains(&len) {
            return Err(self.broken(format!("told of an error in {len} bytes")));
        }
        let errno = u32::from_be_bytes(self.take()?);
        self.skip(len - 4)?;
        Ok(errno)
    }

    fn skip(&mut self, len: u32) -> Result<()> {
        if len > LONGEST_STATUS {
            return Err(self.broken(format!("sent a chunk of {len} bytes where none belongs")));
        }
        self.exact(&mut vec![0; len as usize])
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }

    fn exact(&mut self, buf: &mut [u8]) -> Result<()> {
        self.socket.read_exact(buf).map_err(|e| self.io(e))
    }

    fn io(&self, e: io::Error) -> ImageError {
        ImageError::io(&self.name, "read from the NBD server", e)
    }

    fn failed(&self, op: &'static str, offset: u64, errno: u32) -> ImageError {
        let e = io::Error::from_raw_os_error(errno as i32);
        ImageError::refused(&self.name, format!("the server cannot {op} at {offset}: {e}"))
    }

    /// The error of a server that breaks the protocol.
    pub fn broken(&self, why: impl Into<String>) -> ImageError {
        ImageError::corrupt(&self.name, "NBD", why)
    }
}

impl Drop for Connection {
    /// Says goodbye, as far as anybody listens.
    fn drop(&mut self) {
        let _ = self.request(CMD_DISC, self.cookie, 0, 0);
    }
}
