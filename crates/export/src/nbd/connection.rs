//! One client: its requests, and how they are carried out.

use super::activity::Activity;
use super::handshake::{broken, Agreement, Context};
use super::reply::Replies;
use super::socket::Socket;
use crate::device::{Block, BlockDevice};
use format::nbd::*;
use parking_lot::Mutex;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads up to this length that need no waiting are answered before the next request is read.
const QUICK_BYTES: u32 = 32 << 10;
/// Longer requests are carried out in pieces of this size, so that memory is bounded.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of one request that are read ahead at most.
const AHEAD_BYTES_MAX: u64 = 256 << 20;
/// Memory that a thread keeps between requests.
const KEPT_BYTES: usize = 2 << 20;
/// Ranges in one answer about what blocks hold.
const RANGES_MAX: usize = 16 << 10;

/// A client after its handshake.
pub(super) struct Connection<'a> {
    requests: Mutex<Requests>,
    replies: Replies<'a>,
    agreed: Agreement,
    activity: &'a Activity,
    on_error: &'a (dyn Fn(&str) + Sync),
    /// No more requests are taken.
    stopping: &'a AtomicBool,
}

struct Requests {
    socket: BufReader<Socket>,
    /// No more requests are read: the client has left, or breaks the protocol.
    ended: bool,
}

#[derive(Clone, Copy)]
struct Request {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

impl Request {
    /// A write whose data is read in pieces, after the request.
    fn is_long_write(&self) -> bool {
        self.command == CMD_WRITE && u64::from(self.len) > PIECE_BYTES
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.len)
    }
}

/// A request that is refused, or failed.
struct Refusal(u32, String);

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Refusal {
        let number = match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ENOSPC,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => EPERM,
            io::ErrorKind::InvalidInput => EINVAL,
            io::ErrorKind::OutOfMemory => ENOMEM,
            io::ErrorKind::Unsupported => ENOTSUP,
            _ => EIO,
        };
        Refusal(number, e.to_string())
    }
}

impl<'a> Connection<'a> {
    /// A connection whose requests are told to `on_error` when they fail.
    pub fn new(
        socket: Socket,
        agreed: Agreement,
        activity: &'a Activity,
        on_error: &'a (dyn Fn(&str) + Sync),
        stopping: &'a AtomicBool,
    ) -> io::Result<Self> {
        let replies = Replies::new(socket.try_clone()?, agreed.structured, activity);
        let requests = Requests { socket: BufReader::with_capacity(64 << 10, socket), ended: false };
        Ok(Connection { requests: Mutex::new(requests), replies, agreed, activity, on_error, stopping })
    }

    /// Takes requests and carries them out until there are no more. Called by each thread of the connection.
    pub fn work(&self) {
        let mut buf = Vec::new();
        while let Some(request) = self.next(&mut buf) {
            let in_hand = self.activity.request();
            let outcome = match self.carry_out(&request, &mut buf) {
                Ok(outcome) => outcome,
                Err(refusal) => self.refuse(&request, refusal),
            };
            drop(in_hand);
            if outcome.is_err() {
                self.requests.lock().ended = true;
            }
            if buf.capacity() > KEPT_BYTES {
                buf = Vec::new();
            }
        }
    }

    /// The next request that was not answered at once; the data of a write is in `buf`.
    fn next(&self, buf: &mut Vec<u8>) -> Option<Request> {
        let mut requests = self.requests.lock();
        loop {
            // Data that has arrived can still be read from a socket that was shut down, and from TCP even later data.
            if requests.ended || self.stopping.load(Ordering::Acquire) {
                return None;
            }
            let taken = requests.take(buf);
            self.activity.touch();
            let next = taken.and_then(|r| match r {
                Some(r) if self.answer_quickly(&r, buf)? => Ok(Some(None)),
                Some(r) if r.is_long_write() => self.write_long(&mut requests, &r, buf).map(|()| Some(None)),
                Some(r) => Ok(Some(Some(r))),
                None => Ok(None),
            });
            match next {
                Ok(Some(Some(request))) => return Some(request),
                Ok(Some(None)) => {}
                Ok(None) => requests.ended = true,
                Err(e) => {
                    requests.ended = true;
                    if e.kind() == io::ErrorKind::InvalidData {
                        (self.on_error)(&format!("export {:?}: {e}", self.agreed.export));
                    }
                }
            }
        }
    }

    /// Carries a long write out as its data comes, so that memory is bounded. All data is read, even after an error.
    fn write_long(&self, requests: &mut Requests, r: &Request, buf: &mut Vec<u8>) -> io::Result<()> {
        let mut outcome = self.check(r);
        let (mut at, end) = (r.offset, r.offset.saturating_add(u64::from(r.len)));
        while at < end {
            buf.resize((end - at).min(PIECE_BYTES) as usize, 0);
            requests.socket.read_exact(buf)?;
            let _in_hand = self.activity.request();
            outcome = outcome.and_then(|()| Ok(self.agreed.device.write_at(at, buf)?));
            at += buf.len() as u64;
        }
        if r.flags & FLAG_FUA != 0 {
            let _in_hand = self.activity.request();
            outcome = outcome.and_then(|()| Ok(self.agreed.device.flush()?));
        }
        match outcome {
            Ok(()) => self.replies.done(r.cookie),
            Err(refusal) => self.refuse(r, refusal),
        }
    }

    /// Answers a small read that needs no waiting.
    fn answer_quickly(&self, r: &Request, buf: &mut Vec<u8>) -> io::Result<bool> {
        if r.command != CMD_READ || r.len > QUICK_BYTES || self.check(r).is_err() {
            return Ok(false);
        }
        buf.resize(r.len as usize, 0);
        if !self.agreed.device.read_ready(r.offset, buf) {
            return Ok(false);
        }
        self.replies.data(r.cookie, r.offset, buf, true)?;
        Ok(true)
    }

    fn refuse(&self, r: &Request, Refusal(number, why): Refusal) -> io::Result<()> {
        let what = match r.command {
            CMD_READ => "read",
            CMD_WRITE => "write",
            CMD_FLUSH => "flush",
            CMD_TRIM => "trim",
            CMD_WRITE_ZEROES => "write zeros",
            CMD_BLOCK_STATUS => "block status",
            CMD_CACHE => "cache",
            _ => "unknown command",
        };
        let (export, offset, len) = (&self.agreed.export, r.offset, r.len);
        (self.on_error)(&format!("export {export:?}: {what}, {len} bytes at offset {offset}: {why}"));
        self.replies.error(r.cookie, number, &why)
    }

    /// The flag that all commands may have where any can: it means something to those that write.
    fn fua(&self) -> u16 {
        if self.agreed.device.is_writable() {
            FLAG_FUA
        } else {
            0
        }
    }

    /// Whether a request may be carried out.
    fn check(&self, r: &Request) -> Result<(), Refusal> {
        let refuse = |number, why: &str| Err(Refusal(number, why.to_owned()));
        let allowed = match r.command {
            CMD_READ => FLAG_DF | self.fua(),
            CMD_WRITE | CMD_TRIM | CMD_FLUSH => FLAG_FUA,
            CMD_WRITE_ZEROES => FLAG_FUA | FLAG_NO_HOLE,
            CMD_CACHE => self.fua(),
            CMD_BLOCK_STATUS => FLAG_REQ_ONE | self.fua(),
            _ => return refuse(EINVAL, "is not known here"),
        };
        if r.flags & !allowed != 0 {
            return refuse(EINVAL, "has a flag that it cannot have");
        }
        if r.command == CMD_FLUSH {
            return match (r.offset, r.len) {
                (0, 0) => Ok(()),
                _ => refuse(EINVAL, "a flush has no range"),
            };
        }
        let writes = matches!(r.command, CMD_WRITE | CMD_TRIM | CMD_WRITE_ZEROES);
        if writes && !self.agreed.device.is_writable() {
            return refuse(EPERM, "the export is read-only");
        }
        if r.offset.checked_add(u64::from(r.len)).is_none_or(|end| end > self.agreed.device.size()) {
            return refuse(
                if r.command == CMD_WRITE { ENOSPC } else { EINVAL },
                "is beyond the end of the disk",
            );
        }
        match r.command {
            CMD_READ if r.len > PAYLOAD_BYTES_MAX => refuse(EINVAL, "is longer than 32 MiB"),
            CMD_READ if r.flags & FLAG_DF != 0 && u64::from(r.len) > PIECE_BYTES => {
                refuse(EOVERFLOW, "is longer than 1 MiB, and shall not come in pieces")
            }
            CMD_READ if r.len == 0 && self.agreed.structured => refuse(EINVAL, "has no length"),
            CMD_BLOCK_STATUS if self.agreed.contexts.is_empty() => refuse(EINVAL, "was not agreed on"),
            CMD_BLOCK_STATUS if r.len == 0 => refuse(EINVAL, "has no length"),
            _ => Ok(()),
        }
    }

    /// Carries a request out. `Err(_)` inside: the client cannot be answered.
    fn carry_out(&self, r: &Request, buf: &mut Vec<u8>) -> Result<io::Result<()>, Refusal> {
        self.check(r)?;
        let device = &self.agreed.device;
        match r.command {
            CMD_READ => return self.read(r, buf),
            CMD_BLOCK_STATUS => return self.status(r),
            CMD_CACHE => self.read_ahead(r.range(), buf)?,
            CMD_WRITE => device.write_at(r.offset, buf)?,
            CMD_TRIM if r.len > 0 => device.discard(r.range())?,
            CMD_WRITE_ZEROES if r.len > 0 => device.zero(r.range(), r.flags & FLAG_NO_HOLE == 0)?,
            _ => {}
        }
        if r.command == CMD_FLUSH || r.flags & FLAG_FUA != 0 {
            device.flush()?;
        }
        Ok(self.replies.done(r.cookie))
    }

    fn read(&self, r: &Request, buf: &mut Vec<u8>) -> Result<io::Result<()>, Refusal> {
        if !self.agreed.structured && u64::from(r.len) > PIECE_BYTES {
            return self.read_long(r, buf);
        }
        let (mut at, end) = (r.offset, r.range().end);
        loop {
            let next = end.min(at + PIECE_BYTES);
            buf.resize((next - at) as usize, 0);
            self.agreed.device.read_at(at, buf)?;
            let sent = self.replies.data(r.cookie, at, buf, next == end);
            if sent.is_err() || next == end {
                return Ok(sent);
            }
            at = next;
        }
    }

    /// Sends a long simple reply as it is read. An error after the first piece cannot be reported: the connection is closed.
    fn read_long(&self, r: &Request, buf: &mut Vec<u8>) -> Result<io::Result<()>, Refusal> {
        let (mut at, end) = (r.offset, r.range().end);
        buf.resize(PIECE_BYTES as usize, 0);
        self.agreed.device.read_at(at, buf)?;
        let sent = self.replies.long(r.cookie, &mut |out| loop {
            out(buf)?;
            at += buf.len() as u64;
            if at == end {
                return Ok(());
            }
            buf.resize((end - at).min(PIECE_BYTES) as usize, 0);
            if let Err(e) = self.agreed.device.read_at(at, buf) {
                let (export, len) = (&self.agreed.export, buf.len());
                (self.on_error)(&format!("export {export:?}: read, {len} bytes at offset {at}: {e}"));
                return Err(e);
            }
        });
        Ok(sent)
    }

    /// Reads what will be read soon, so that it is in the memory of the system or of the device.
    fn read_ahead(&self, range: Range<u64>, buf: &mut Vec<u8>) -> io::Result<()> {
        let mut at = range.start;
        // A client may ask for 4 GiB and leave.
        let end = range.end.min(at + AHEAD_BYTES_MAX);
        while at < end && !self.stopping.load(Ordering::Acquire) {
            buf.resize((end - at).min(PIECE_BYTES) as usize, 0);
            self.agreed.device.read_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Answers what the blocks of a range hold, in each context that was agreed on.
    fn status(&self, r: &Request) -> Result<io::Result<()>, Refusal> {
        let all: Vec<_> =
            self.agreed.contexts.iter().map(|c| self.status_in(c, r)).collect::<Result<_, _>>()?;
        let mut sent = Ok(());
        for (n, ranges) in (1..).zip(&all) {
            sent = sent.and_then(|()| self.replies.status(r.cookie, n, ranges, n as usize == all.len()));
        }
        Ok(sent)
    }

    fn status_in(&self, context: &Context, r: &Request) -> Result<Vec<(u32, u32)>, Refusal> {
        match context {
            Context::Allocation => self.allocation(r),
            Context::Changed(ranges) => Ok(dirty(ranges, r)),
        }
    }

    /// What the blocks of a range hold: length and flags, neighbours that hold the same joined.
    fn allocation(&self, r: &Request) -> Result<Vec<(u32, u32)>, Refusal> {
        let one = r.flags & FLAG_REQ_ONE != 0;
        let range = r.range();
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut at = range.start;
        self.agreed.device.extents(range.clone(), &mut |extent| {
            let end = extent.range.end.min(range.end);
            let flags = match extent.block {
                Block::Data => 0,
                Block::Hole => STATE_HOLE | STATE_ZERO,
                Block::Zeros => STATE_ZERO,
            };
            // No longer than the request, whose length is a u32.
            let len = end.saturating_sub(at) as u32;
            at = end;
            let full = found.len() == if one { 1 } else { RANGES_MAX };
            match found.last_mut() {
                Some(last) if last.1 == flags => last.0 += len,
                _ if full => return false,
                _ => found.push((len, flags)),
            }
            at < range.end
        })?;
        found.retain(|f| f.0 > 0);
        if found.is_empty() {
            return Err(Refusal(EIO, "nothing is known of these blocks".into()));
        }
        Ok(found)
    }
}

/// What of a request's range is among `changed`, which are in order: length and flags.
fn dirty(changed: &[Range<u64>], r: &Request) -> Vec<(u32, u32)> {
    let range = r.range();
    let most = if r.flags & FLAG_REQ_ONE != 0 { 1 } else { RANGES_MAX };
    let mut found = Vec::new();
    let mut at = range.start;
    let mut next = changed.partition_point(|c| c.end <= at);
    while at < range.end && found.len() < most {
        let (end, flags) = match changed.get(next) {
            Some(c) if c.start <= at => {
                next += 1;
                (c.end, STATE_DIRTY)
            }
            Some(c) => (c.start, 0),
            None => (range.end, 0),
        };
        let end = end.min(range.end);
        // No longer than the request, whose length is a u32.
        found.push(((end - at) as u32, flags));
        at = end;
    }
    found
}

impl Requests {
    /// Reads a request; `None` at the end.
    fn take(&mut self, buf: &mut Vec<u8>) -> io::Result<Option<Request>> {
        let mut head = [0; 28];
        let first = loop {
            match self.socket.read(&mut head) {
                Ok(n) => break n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        };
        if first == 0 {
            return Ok(None);
        }
        self.socket.read_exact(&mut head[first..])?;
        let (magic, rest) = (u32_at(&head, 0), &head[4..]);
        let r = Request {
            flags: (u32_at(rest, 0) >> 16) as u16,
            command: u32_at(rest, 0) as u16,
            cookie: u64_at(rest, 4),
            offset: u64_at(rest, 12),
            len: u32_at(rest, 20),
        };
        if magic != REQUEST_MAGIC {
            return Err(broken("no request where one was expected"));
        }
        if r.command == CMD_DISC {
            return Ok(None);
        }
        if r.command == CMD_WRITE {
            if r.len > PAYLOAD_BYTES_MAX {
                return Err(broken("a write of more than 32 MiB"));
            }
            if r.is_long_write() {
                return Ok(Some(r));
            }
            buf.resize(r.len as usize, 0);
            self.socket.read_exact(buf)?;
        }
        Ok(Some(r))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}
