//! A client that takes nothing for granted, and can break every rule.

use crate::nbd::Address;
use format::nbd::*;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

pub trait Duplex: Read + Write + Send {
    /// The same connection.
    fn another(&self) -> Box<dyn Duplex>;
}

impl Duplex for UnixStream {
    fn another(&self) -> Box<dyn Duplex> {
        Box::new(self.try_clone().unwrap())
    }
}

impl Duplex for TcpStream {
    fn another(&self) -> Box<dyn Duplex> {
        Box::new(self.try_clone().unwrap())
    }
}

pub struct Client {
    pub socket: Box<dyn Duplex>,
    structured: bool,
    cookies: u64,
    pending: HashMap<u64, Reply>,
}

/// What came of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub error: u32,
    pub text: String,
    pub data: Vec<u8>,
    /// Length and flags of ranges.
    pub status: Vec<(u32, u32)>,
    /// The same in the second context that was agreed on.
    pub second: Vec<(u32, u32)>,
    /// Pieces that it came in.
    pub chunks: usize,
    command: u16,
    offset: u64,
    len: u32,
}

impl Client {
    pub fn connect(address: &Address) -> Client {
        let socket: Box<dyn Duplex> = match address {
            Address::Unix(path) => {
                let socket = UnixStream::connect(path).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                Box::new(socket)
            }
            Address::Tcp(address) => {
                let socket = TcpStream::connect(address).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                Box::new(socket)
            }
        };
        Client { socket, structured: false, cookies: 0, pending: HashMap::new() }
    }

    /// From an address of this machine.
    pub fn connect_from(from: SocketAddr, to: SocketAddr) -> Client {
        use rustix::net::{bind, connect, socket, AddressFamily, SocketType};
        let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&tcp, &from).unwrap();
        connect(&tcp, &to).unwrap();
        let tcp = TcpStream::from(tcp);
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { socket: Box::new(tcp), structured: false, cookies: 0, pending: HashMap::new() }
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Whether the server greets it, and does not turn it away.
    pub fn is_greeted(&mut self) -> bool {
        self.socket.read_exact(&mut [0; 18]).is_ok()
    }

    /// What is read at `offset`, if the connection still stands.
    pub fn try_read(&mut self, offset: u64, len: u32) -> Option<Vec<u8>> {
        let ask = request(0, CMD_READ, 1 << 40, offset, len);
        self.socket.write_all(&ask).ok()?;
        let mut head = vec![0; if self.structured { 28 } else { 16 }];
        self.socket.read_exact(&mut head).ok()?;
        let mut data = vec![0; len as usize];
        self.socket.read_exact(&mut data).ok()?;
        Some(data)
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes())
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The server has ended the connection, without another word.
    pub fn expect_end(&mut self) {
        let mut one = [0];
        match self.socket.read(&mut one) {
            Ok(0) => {}
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => panic!("the connection goes on: {other:?} {one:?}"),
        }
    }

    /// The server has said who it is, and no more.
    pub fn greet_end(&mut self) {
        self.take(18);
        self.expect_end();
    }

    pub fn greet(&mut self, no_zeroes: bool) {
        assert_eq!((self.u64(), self.u64()), (MAGIC, OPTION_MAGIC));
        assert_eq!(self.u16(), FIXED_NEWSTYLE | NO_ZEROES);
        let flags = if no_zeroes { FIXED_NEWSTYLE | NO_ZEROES } else { FIXED_NEWSTYLE };
        self.send(&u32::from(flags).to_be_bytes());
    }

    pub fn option(&mut self, option: u32, data: &[u8]) {
        self.send(&option_bytes(option, data));
    }

    /// One answer to an option.
    pub fn answer(&mut self, option: u32) -> (u32, Vec<u8>) {
        assert_eq!((self.u64(), self.u32()), (OPTION_REPLY_MAGIC, option));
        let (kind, len) = (self.u32(), self.u32());
        (kind, self.take(len as usize))
    }

    /// All answers to an option, up to the one that ends them.
    pub fn answers(&mut self, option: u32, data: &[u8]) -> (u32, Vec<(u32, Vec<u8>)>) {
        self.option(option, data);
        let mut all = Vec::new();
        loop {
            let (kind, data) = self.answer(option);
            if kind == REP_ACK || kind >> 31 == 1 {
                return (kind, all);
            }
            all.push((kind, data));
        }
    }

    pub fn structured(&mut self) {
        assert_eq!(self.answers(OPT_STRUCTURED_REPLY, &[]), (REP_ACK, vec![]));
        self.structured = true;
    }

    /// Chooses contexts. Returns their names.
    pub fn set_contexts(&mut self, export: &str, queries: &[&str]) -> Vec<String> {
        let (end, found) = self.answers(OPT_SET_META_CONTEXT, &contexts(export, queries));
        assert_eq!(end, REP_ACK);
        found.iter().map(|(_, data)| String::from_utf8(data[4..].to_vec()).unwrap()).collect()
    }

    /// Chooses an export. Returns its size and flags.
    pub fn go(&mut self, export: &str) -> (u64, u16) {
        let (end, infos) = self.answers(OPT_GO, &export_infos(export, &[]));
        assert_eq!((end, infos.len()), (REP_ACK, 1));
        let info = &infos[0].1;
        assert_eq!(info[..2], INFO_EXPORT.to_be_bytes());
        let size = u64::from_be_bytes(info[2..10].try_into().unwrap());
        (size, u16::from_be_bytes(info[10..12].try_into().unwrap()))
    }

    /// Sends a request. Returns its cookie.
    pub fn ask(&mut self, command: u16, flags: u16, offset: u64, len: u32, payload: &[u8]) -> u64 {
        self.cookies += 1;
        let cookie = self.cookies.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let reply = Reply { command, offset, len, ..Reply::default() };
        self.pending.insert(cookie, reply);
        let head = request(flags, command, cookie, offset, len);
        self.send(&[&head[..], payload].concat());
        cookie
    }

    /// Takes replies until one request is done. Returns its cookie too.
    pub fn next_done(&mut self) -> (u64, Reply) {
        loop {
            let magic = self.u32();
            let (cookie, is_done) = match magic {
                SIMPLE_REPLY_MAGIC => self.simple_reply(),
                CHUNK_MAGIC => self.chunk(),
                other => panic!("no reply: {other:#x}"),
            };
            if is_done {
                return (cookie, self.pending.remove(&cookie).unwrap());
            }
        }
    }

    fn simple_reply(&mut self) -> (u64, bool) {
        assert!(!self.structured);
        let (error, cookie) = (self.u32(), self.u64());
        let reply = self.pending.get(&cookie).expect("a cookie that was given").clone();
        let len = if error == 0 && reply.command == CMD_READ { reply.len } else { 0 };
        let data = self.take(len as usize);
        self.pending.insert(cookie, Reply { error, data, ..reply });
        (cookie, true)
    }

    fn chunk(&mut self) -> (u64, bool) {
        assert!(self.structured);
        let (flags, kind, cookie, len) = (self.u16(), self.u16(), self.u64(), self.u32());
        let body = self.take(len as usize);
        let reply = self.pending.get_mut(&cookie).expect("a cookie that was given");
        reply.chunks += 1;
        match kind {
            TYPE_NONE => assert!(body.is_empty()),
            TYPE_OFFSET_DATA => {
                let at = u64::from_be_bytes(body[..8].try_into().unwrap());
                assert_eq!(at, reply.offset + reply.data.len() as u64, "pieces come in order");
                reply.data.extend(&body[8..]);
            }
            TYPE_BLOCK_STATUS => {
                // One chunk for each context, in their order.
                let number = |b: &[u8]| u32::from_be_bytes(b.try_into().unwrap());
                let context = number(&body[..4]);
                assert_eq!(context as usize, reply.chunks);
                let ranges = body[4..].chunks_exact(8).map(|p| (number(&p[..4]), number(&p[4..])));
                match context {
                    1 => reply.status.extend(ranges),
                    _ => reply.second.extend(ranges),
                }
            }
            TYPE_ERROR => {
                reply.error = u32::from_be_bytes(body[..4].try_into().unwrap());
                let len = u16::from_be_bytes(body[4..6].try_into().unwrap());
                assert_eq!(body.len(), 6 + usize::from(len));
                reply.text = String::from_utf8(body[6..].to_vec()).unwrap();
            }
            other => panic!("a chunk of type {other}"),
        }
        (cookie, flags & CHUNK_DONE != 0)
    }

    /// Asks, and waits for what comes of it.
    pub fn done(&mut self, command: u16, flags: u16, offset: u64, len: u32, payload: &[u8]) -> Reply {
        let cookie = self.ask(command, flags, offset, len, payload);
        let (found, reply) = self.next_done();
        assert_eq!(found, cookie);
        reply
    }

    pub fn read(&mut self, offset: u64, len: u32) -> Reply {
        self.done(CMD_READ, 0, offset, len, &[])
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Reply {
        self.done(CMD_WRITE, 0, offset, data.len() as u32, data)
    }

    /// Says goodbye, and the server ends the connection.
    pub fn leave(mut self) {
        self.send(&request(0, CMD_DISC, 0, 0, 0));
        self.expect_end();
    }
}

pub fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u32).to_be_bytes();
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &len, data].concat()
}

pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let numbers = [flags.to_be_bytes(), command.to_be_bytes()].concat();
    let magic = REQUEST_MAGIC.to_be_bytes();
    [&magic[..], &numbers, &cookie.to_be_bytes(), &offset.to_be_bytes(), &len.to_be_bytes()].concat()
}

fn text(t: &str) -> Vec<u8> {
    [&(t.len() as u32).to_be_bytes()[..], t.as_bytes()].concat()
}

/// Data of the options GO and INFO.
pub fn export_infos(export: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = text(export);
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|i| data.extend(i.to_be_bytes()));
    data
}

/// Data of the options about contexts.
pub fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = text(export);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|q| data.extend(text(q)));
    data
}
