//! Replies, simple and structured.

use super::activity::Activity;
use super::socket::Socket;
use format::nbd::*;
use parking_lot::Mutex;
use std::io::{self, IoSlice, Write};
use std::net::Shutdown;

/// Produces data and passes each piece to the function that it is given.
type Pieces<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> + 'a;

/// Where the replies of a connection go, whole ones, one after the other.
pub(super) struct Replies<'a> {
    socket: Mutex<Socket>,
    activity: &'a Activity,
    /// Whether replies are structured.
    pub structured: bool,
}

impl<'a> Replies<'a> {
    /// Replies that go to `socket`.
    pub fn new(socket: Socket, structured: bool, activity: &'a Activity) -> Self {
        Replies { socket: Mutex::new(socket), activity, structured }
    }

    /// Success, without data.
    pub fn done(&self, cookie: u64) -> io::Result<()> {
        if self.structured {
            self.chunk(cookie, CHUNK_DONE, TYPE_NONE, &[], &[])
        } else {
            self.simple(cookie, 0, &[])
        }
    }

    /// Data from `offset` on; `last` where nothing more of it will come.
    pub fn data(&self, cookie: u64, offset: u64, data: &[u8], last: bool) -> io::Result<()> {
        if !self.structured {
            return self.simple(cookie, 0, data);
        }
        let flags = if last { CHUNK_DONE } else { 0 };
        self.chunk(cookie, flags, TYPE_OFFSET_DATA, &offset.to_be_bytes(), data)
    }

    /// The status of consecutive ranges, length and flags, in the context of a number; `last` where no other one follows.
    pub fn status(&self, cookie: u64, context: u32, ranges: &[(u32, u32)], last: bool) -> io::Result<()> {
        let pairs: Vec<u8> = ranges
            .iter()
            .flat_map(|(len, flags)| [len.to_be_bytes(), flags.to_be_bytes()].concat())
            .collect();
        let flags = if last { CHUNK_DONE } else { 0 };
        self.chunk(cookie, flags, TYPE_BLOCK_STATUS, &context.to_be_bytes(), &pairs)
    }

    /// Failure, with an error number of the protocol and a message.
    pub fn error(&self, cookie: u64, number: u32, why: &str) -> io::Result<()> {
        if !self.structured {
            return self.simple(cookie, number, &[]);
        }
        let why = &why.as_bytes()[..why.floor_char_boundary_at(NAME_BYTES_MAX)];
        let head = [&number.to_be_bytes()[..], &(why.len() as u16).to_be_bytes()].concat();
        self.chunk(cookie, CHUNK_DONE, TYPE_ERROR, &head, why)
    }

    /// A simple reply whose data is written as `pieces` gives it. If that fails the connection is at its end.
    pub fn long(&self, cookie: u64, pieces: &mut Pieces<'_>) -> io::Result<()> {
        let mut socket = self.socket.lock();
        let sent = socket.write_all(&simple_head(cookie, 0)).and_then(|()| {
            pieces(&mut |data| {
                let _replying = self.activity.reply();
                socket.write_all(data)
            })
        });
        if sent.is_err() {
            socket.shutdown(Shutdown::Both);
        }
        sent
    }

    fn simple(&self, cookie: u64, error: u32, data: &[u8]) -> io::Result<()> {
        self.write(&simple_head(cookie, error), data)
    }

    fn chunk(&self, cookie: u64, flags: u16, kind: u16, more: &[u8], data: &[u8]) -> io::Result<()> {
        let mut head = Vec::with_capacity(20 + more.len());
        head.extend(CHUNK_MAGIC.to_be_bytes());
        head.extend(flags.to_be_bytes());
        head.extend(kind.to_be_bytes());
        head.extend(cookie.to_be_bytes());
        head.extend(((more.len() + data.len()) as u32).to_be_bytes());
        head.extend(more);
        self.write(&head, data)
    }

    fn write(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let _replying = self.activity.reply();
        let mut socket = self.socket.lock();
        let mut done = 0;
        while done < head.len() {
            match socket.write_vectored(&[IoSlice::new(&head[done..]), IoSlice::new(data)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) if done + n >= head.len() => return socket.write_all(&data[done + n - head.len()..]),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn simple_head(cookie: u64, error: u32) -> [u8; 16] {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&error.to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    head
}

trait Boundary {
    fn floor_char_boundary_at(&self, max: usize) -> usize;
}

impl Boundary for str {
    /// The end of the longest part of at most `max` bytes that is whole characters.
    fn floor_char_boundary_at(&self, max: usize) -> usize {
        (0..=self.len().min(max)).rev().find(|n| self.is_char_boundary(*n)).unwrap_or(0)
    }
}
