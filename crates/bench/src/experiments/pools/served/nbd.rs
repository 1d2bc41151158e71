//! A small NBD client that keeps a number of requests under way, and decides what is in them.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::client::{Access, Client, Next};
use anyhow::{bail, ensure, Context as _, Result};
use format::nbd::{
    OPTION_MAGIC, OPTION_REPLY_MAGIC, OPT_GO, REP_ACK, REP_INFO, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC,
};

const HEADER_BYTES: usize = 28;

/// What is said to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Read,
    Write,
    Flush,
    /// There is no more.
    Disconnect,
}

/// A connection to one export.
pub struct NbdClient {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    /// Bytes of the export.
    size: u64,
}

impl Drop for NbdClient {
    fn drop(&mut self) {
        // Says good-bye; nothing answers.
        let _ = self.send(Command::Disconnect, 0, &mut [0; HEADER_BYTES]);
    }
}

impl NbdClient {
    /// Connects to the export called `name`.
    pub fn connect(socket: &Path, name: &str) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        let replies = BufReader::with_capacity(256 << 10, stream.try_clone()?);
        let mut client = NbdClient { stream, replies, size: 0 };
        let greeting: [u8; 18] = client.array()?;
        ensure!(greeting.starts_with(b"NBDMAGICIHAVEOPT"), "this is no server of NBD");
        let mut hello = Vec::new();
        // Fixed newstyle, no zeroes.
        hello.extend_from_slice(&3u32.to_be_bytes());
        hello.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        hello.extend_from_slice(&OPT_GO.to_be_bytes());
        hello.extend_from_slice(&(name.len() as u32 + 6).to_be_bytes());
        hello.extend_from_slice(&(name.len() as u32).to_be_bytes());
        hello.extend_from_slice(name.as_bytes());
        hello.extend_from_slice(&0u16.to_be_bytes());
        client.stream.write_all(&hello)?;
        loop {
            ensure!(u64::from_be_bytes(client.array()?) == OPTION_REPLY_MAGIC, "a reply without its magic");
            client.u32()?;
            let (kind, length) = (client.u32()?, client.u32()?);
            let mut data = vec![0; length as usize];
            client.replies.read_exact(&mut data)?;
            match kind {
                REP_ACK => return Ok(client),
                REP_INFO if data.starts_with(&[0, 0]) => {
                    let size = data.get(2..10).context("a short export reply")?;
                    client.size = u64::from_be_bytes(size.try_into()?);
                }
                REP_INFO => {}
                error => bail!("no export {name}: {error:#x} {}", String::from_utf8_lossy(&data)),
            }
        }
    }

    fn send(&mut self, command: Command, offset: u64, message: &mut [u8]) -> Result<()> {
        let bytes = (message.len() - HEADER_BYTES) as u32;
        let (kind, length, sent) = match command {
            Command::Read => (0u16, bytes, HEADER_BYTES),
            Command::Write => (1, bytes, message.len()),
            Command::Disconnect => (2, 0, HEADER_BYTES),
            Command::Flush => (3, 0, HEADER_BYTES),
        };
        message[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        message[4..6].fill(0);
        message[6..8].copy_from_slice(&kind.to_be_bytes());
        // The cookie tells how many bytes follow the reply.
        let follow = if command == Command::Read { u64::from(bytes) } else { 0 };
        message[8..16].copy_from_slice(&follow.to_be_bytes());
        message[16..24].copy_from_slice(&offset.to_be_bytes());
        message[24..28].copy_from_slice(&length.to_be_bytes());
        Ok(self.stream.write_all(&message[..sent])?)
    }

    fn receive(&mut self, data: &mut [u8]) -> Result<()> {
        let (magic, error) = (self.u32()?, self.u32()?);
        let follow = u64::from_be_bytes(self.array()?) as usize;
        ensure!(magic == SIMPLE_REPLY_MAGIC && follow <= data.len(), "a reply that fits no request");
        ensure!(error == 0, "the server answered with error {error}");
        Ok(self.replies.read_exact(&mut data[..follow])?)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.replies.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Client for NbdClient {
    fn size(&self) -> u64 {
        self.size
    }

    fn run(&mut self, depth: usize, bytes: usize, next: &mut Next<'_>) -> Result<u64> {
        let mut message = vec![0; HEADER_BYTES + bytes];
        let mut data = vec![0; bytes];
        let (mut under_way, mut done, mut has_ended) = (0, 0, false);
        loop {
            while under_way < depth && !has_ended {
                let Some((access, offset)) = next(&mut message[HEADER_BYTES..]) else {
                    has_ended = true;
                    break;
                };
                let command = match access {
                    Access::Read => Command::Read,
                    Access::Write => Command::Write,
                };
                self.send(command, offset, &mut message)?;
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(done);
            }
            self.receive(&mut data)?;
            under_way -= 1;
            done += 1;
        }
    }

    fn flush(&mut self) -> Result<()> {
        let mut message = [0; HEADER_BYTES];
        self.send(Command::Flush, 0, &mut message)?;
        self.receive(&mut [])
    }
}
