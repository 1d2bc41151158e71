//! A server that keeps to the protocol, and servers that do not.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use super::NbdSource;
use crate::disk::Source;
use crate::error::Result;
use crate::source::changes::Changes;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

const BYTES: usize = 5 << 20;

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mischief {
    None,
    /// Only simple replies: allowed.
    Simple,
    /// Its data comes as holes and pieces, out of order: allowed.
    Pieces,
    Greeting,
    NoSize,
    EndlessReply,
    OutsideOfTheRead,
    TooLittle,
    /// As many bytes as were asked for, but some of them twice.
    Twice,
    /// A simple reply, although structured ones were agreed on.
    SimpleAllTheSame,
    WrongCookie,
    NoSuchChunk,
    NoStatus,
    ReadError,
    HangsUp,
}

fn content() -> Vec<u8> {
    // A megabyte of zeros in the middle.
    (0..BYTES).map(|n| if n >> 20 == 2 { 0 } else { (n % 251) as u8 + 1 }).collect()
}

struct Server {
    socket: UnixStream,
    mischief: Mischief,
}

impl Server {
    fn start(mischief: Mischief) -> (tempfile::TempDir, String, JoinHandle<()>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            let mut server = Server { socket: listener.accept().unwrap().0, mischief };
            // It ends when the client has gone.
            let _ = server.serve();
        });
        (dir, format!("nbd+unix:///vda?socket={}", path.display()), thread)
    }

    fn take(&mut self, len: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.socket.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self, len: usize) -> std::io::Result<u64> {
        Ok(self.take(len)?.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn put(&mut self, parts: &[&[u8]]) -> std::io::Result<()> {
        self.socket.write_all(&parts.concat())
    }

    fn reply(&mut self, option: u64, kind: u32, data: &[u8]) -> std::io::Result<()> {
        let len = if self.mischief == Mischief::EndlessReply { u32::MAX } else { data.len() as u32 };
        let magic = 0x0003_e889_0455_65a9u64.to_be_bytes();
        self.put(&[&magic, &(option as u32).to_be_bytes(), &kind.to_be_bytes(), &len.to_be_bytes(), data])
    }

    fn chunk(&mut self, last: bool, kind: u16, cookie: u64, data: &[u8]) -> std::io::Result<()> {
        let len = (data.len() as u32).to_be_bytes();
        let flags = u16::from(last).to_be_bytes();
        self.put(&[
            &0x668e_33efu32.to_be_bytes(),
            &flags,
            &kind.to_be_bytes(),
            &cookie.to_be_bytes(),
            &len,
            data,
        ])
    }

    fn serve(&mut self) -> std::io::Result<()> {
        let greeting: &[u8] = if self.mischief == Mischief::Greeting { b"NBDMAGOC" } else { b"NBDMAGIC" };
        self.put(&[greeting, b"IHAVEOPT", &3u16.to_be_bytes()])?;
        assert_eq!(self.number(4)?, 3);
        loop {
            assert_eq!(self.take(8)?, b"IHAVEOPT");
            let (option, len) = (self.number(4)?, self.number(4)?);
            let data = self.take(len as usize)?;
            match option {
                8 if self.mischief == Mischief::Simple => self.reply(option, (1 << 31) + 1, b"")?,
                8 => self.reply(option, 1, b"")?,
                10 => {
                    let with_bitmap = String::from_utf8_lossy(&data).contains("qemu:dirty-bitmap:b0");
                    self.reply(option, 4, &[&7u32.to_be_bytes()[..], b"base:allocation"].concat())?;
                    if with_bitmap {
                        self.reply(option, 4, &[&9u32.to_be_bytes()[..], b"qemu:dirty-bitmap:b0"].concat())?;
                    }
                    self.reply(option, 1, b"")?;
                }
                7 => {
                    if self.mischief != Mischief::NoSize {
                        let size = (BYTES as u64).to_be_bytes();
                        self.reply(option, 3, &[&[0, 0], &size[..], &[0, 1]].concat())?;
                    }
                    self.reply(option, 1, b"")?;
                    break;
                }
                _ => self.reply(option, (1 << 31) + 1, b"")?,
            }
        }
        loop {
            assert_eq!(self.number(4)?, 0x2560_9513);
            let (_, command, cookie) = (self.number(2)?, self.number(2)?, self.number(8)?);
            let (offset, len) = (self.number(8)?, self.number(4)? as usize);
            match command {
                0 => self.answer_read(cookie, offset as usize, len)?,
                7 => self.answer_status(cookie, offset as usize, len)?,
                _ => return Ok(()),
            }
        }
    }

    fn answer_read(&mut self, cookie: u64, offset: usize, len: usize) -> std::io::Result<()> {
        let all = content();
        let data = &all[offset..offset + len];
        let at = |n: usize| ((offset + n) as u64).to_be_bytes();
        match self.mischief {
            Mischief::Simple | Mischief::SimpleAllTheSame => {
                self.put(&[&0x6744_6698u32.to_be_bytes(), &[0; 4], &cookie.to_be_bytes(), data])
            }
            Mischief::Pieces => {
                let half = len / 2;
                let zeros = data[half..].iter().all(|b| *b == 0);
                if zeros {
                    self.chunk(
                        false,
                        2,
                        cookie,
                        &[&at(half)[..], &((len - half) as u32).to_be_bytes()].concat(),
                    )?
                } else {
                    self.chunk(false, 1, cookie, &[&at(half)[..], &data[half..]].concat())?
                }
                self.chunk(false, 1, cookie, &[&at(0)[..], &data[..half]].concat())?;
                self.chunk(true, 0, cookie, b"")
            }
            Mischief::OutsideOfTheRead => self.chunk(true, 1, cookie, &[&at(1)[..], data].concat()),
            Mischief::TooLittle => self.chunk(true, 1, cookie, &[&at(0)[..], &data[1..]].concat()),
            Mischief::Twice => {
                let half = len / 2;
                self.chunk(false, 1, cookie, &[&at(0)[..], &data[..half]].concat())?;
                self.chunk(true, 1, cookie, &[&at(half - 1)[..], &data[half - 1..len - 1]].concat())
            }
            Mischief::WrongCookie => self.chunk(true, 1, cookie ^ 0x5555, &[&at(0)[..], data].concat()),
            Mischief::NoSuchChunk => self.chunk(true, 77, cookie, b"????"),
            Mischief::ReadError => {
                let why = [&5u32.to_be_bytes()[..], &3u16.to_be_bytes(), b"bad"].concat();
                self.chunk(true, (1 << 15) + 1, cookie, &why)
            }
            Mischief::HangsUp => Err(std::io::ErrorKind::ConnectionReset.into()),
            _ => self.chunk(true, 1, cookie, &[&at(0)[..], data].concat()),
        }
    }

    /// Zeros in the third megabyte, dirty blocks in the second, by both contexts.
    fn answer_status(&mut self, cookie: u64, offset: usize, len: usize) -> std::io::Result<()> {
        if self.mischief == Mischief::NoStatus {
            return self.chunk(true, 5, cookie, &7u32.to_be_bytes());
        }
        for (context, megabyte, flag) in [(7u32, 2, 3u32), (9, 1, 1)] {
            let mut data = context.to_be_bytes().to_vec();
            let mut at = offset;
            while at < offset + len {
                // The last range may reach further than was asked for.
                let end = (at / (1 << 20) + 1) << 20;
                data.extend(((end - at) as u32).to_be_bytes());
                data.extend(if at >> 20 == megabyte { flag } else { 0 }.to_be_bytes());
                at = end;
            }
            self.chunk(context == 9, 5, cookie, &data)?;
        }
        Ok(())
    }
}

/// Content, the ranges that were data, and what the bitmap says.
type Seen = (Vec<u8>, Vec<std::ops::Range<u64>>, Option<Changes>);

fn read_all(mischief: Mischief, bitmap: Option<&str>) -> Result<Seen> {
    let (_dir, uri, thread) = Server::start(mischief);
    let read = || {
        let mut source = NbdSource::connect(&uri, bitmap)?;
        assert_eq!(source.size(), Some(BYTES as u64));
        let changes = bitmap.map(|_| source.changes()).transpose()?;
        let (mut bytes, mut ranges, mut at) = (vec![0; BYTES], Vec::new(), 0);
        while let Some(range) = source.next_data(at)? {
            let part = &mut bytes[range.start as usize..range.end as usize];
            assert_eq!(source.read_at(range.start, part)?, part.len());
            at = range.end;
            ranges.push(range);
        }
        // And backwards.
        assert_eq!(source.next_data(10)?.map(|r| r.start), Some(10));
        let mut tail = [0; 10];
        assert_eq!(source.read_at(BYTES as u64 - 4, &mut tail)?, 4);
        Ok((bytes, ranges, changes))
    };
    let done = read();
    thread.join().unwrap();
    done
}

#[test]
fn disks_are_read_whole_and_holes_are_passed_over() {
    for mischief in [Mischief::None, Mischief::Simple, Mischief::Pieces] {
        let (bytes, ranges, _) = read_all(mischief, None).unwrap();
        assert!(bytes == content(), "{mischief:?}");
        let read: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        let passed = if mischief == Mischief::Simple { 0 } else { 1 << 20 };
        assert_eq!(read, BYTES as u64 - passed, "{mischief:?}");
    }
    let (bytes, _, changes) = read_all(Mischief::Pieces, Some("b0")).unwrap();
    assert!(bytes == content());
    assert_eq!(changes.unwrap().ranges(), [1 << 20..2 << 20]);
}

#[test]
fn what_a_server_must_not_do_is_told() {
    use Mischief::{
        EndlessReply, Greeting, HangsUp, NoSize, NoStatus, NoSuchChunk, OutsideOfTheRead, ReadError, Simple,
        SimpleAllTheSame, TooLittle, Twice, WrongCookie,
    };
    for (mischief, why) in [
        (Greeting, "newstyle"),
        (NoSize, "size of the export"),
        (EndlessReply, "something other than the reply"),
        (OutsideOfTheRead, "for a read at"),
        (TooLittle, "bytes of"),
        (Twice, "for a read at"),
        (SimpleAllTheSame, "structured"),
        (WrongCookie, "a request that was not made"),
        (NoSuchChunk, "type 77"),
        (NoStatus, "did not describe the blocks"),
        (ReadError, "Input/output error"),
        (HangsUp, "read from the NBD server"),
    ] {
        let e = read_all(mischief, None).unwrap_err().to_string();
        assert!(e.contains(why), "{mischief:?}: {e}");
        assert!(e.contains("nbd+unix:///vda"), "{mischief:?}: {e}");
    }
    let e = read_all(Mischief::None, Some("b1")).unwrap_err().to_string();
    assert!(e.contains("no dirty bitmap \"b1\""), "{e}");
    let e = read_all(Simple, Some("b0")).unwrap_err().to_string();
    assert!(e.contains("no dirty bitmap \"b0\""), "{e}");
}
