//! A small client of NBD: one request at a time, simple replies.

use super::{Bench, Child};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

const OPTION_MAGIC: &[u8] = b"IHAVEOPT";
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;

pub struct Nbd {
    socket: UnixStream,
    pub size: u64,
}

impl Nbd {
    /// Connects to the default export.
    pub fn connect(socket: &Path) -> io::Result<Nbd> {
        let mut socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut hello = [0; 18];
        socket.read_exact(&mut hello)?;
        let go = [&3u32.to_be_bytes()[..], OPTION_MAGIC, &OPT_GO.to_be_bytes(), &6u32.to_be_bytes(), &[0; 6]];
        socket.write_all(&go.concat())?;
        let mut size = 0;
        loop {
            let mut head = [0; 20];
            socket.read_exact(&mut head)?;
            let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            let mut data = vec![0; number(16) as usize];
            socket.read_exact(&mut data)?;
            match number(12) {
                REP_ACK => return Ok(Nbd { socket, size }),
                REP_INFO if data[..2] == [0, 0] => size = u64::from_be_bytes(data[2..10].try_into().unwrap()),
                REP_INFO => {}
                other => return Err(io::Error::other(format!("the export is refused: {other:#x}"))),
            }
        }
    }

    /// Connects as soon as somebody listens; `None` where `child` ends before.
    pub fn connect_to(child: &mut Child, socket: &Path) -> Option<Nbd> {
        let start = Instant::now();
        loop {
            match Nbd::connect(socket) {
                Ok(client) => return Some(client),
                Err(_) if child.has_ended() => return None,
                Err(e) => assert!(start.elapsed() < PATIENCE, "nobody listens: {e}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a request and takes its reply. An error of the server has the number of the system's.
    fn request(&mut self, command: u16, at: u64, len: u32, data: &[u8], buf: &mut [u8]) -> io::Result<()> {
        let mut head = Vec::with_capacity(28);
        head.extend(REQUEST_MAGIC.to_be_bytes());
        head.extend([0, 0]);
        head.extend(command.to_be_bytes());
        head.extend(at.to_be_bytes());
        head.extend(at.to_be_bytes());
        head.extend(len.to_be_bytes());
        head.extend(data);
        self.socket.write_all(&head)?;
        let mut reply = [0; 16];
        self.socket.read_exact(&mut reply)?;
        assert_eq!(reply[..4], REPLY_MAGIC.to_be_bytes());
        assert_eq!(reply[8..], at.to_be_bytes());
        match i32::from_be_bytes(reply[4..8].try_into().unwrap()) {
            0 => self.socket.read_exact(buf),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }

    pub fn read(&mut self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut buf = vec![0; len];
        self.request(READ, at, len as u32, &[], &mut buf).map(|()| buf)
    }

    pub fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        self.request(WRITE, at, data.len() as u32, data, &mut [])
    }

    pub fn zero(&mut self, at: u64, len: usize) -> io::Result<()> {
        self.request(WRITE_ZEROES, at, len as u32, &[], &mut [])
    }

    pub fn trim(&mut self, at: u64, len: usize) -> io::Result<()> {
        self.request(TRIM, at, len as u32, &[], &mut [])
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.request(FLUSH, 0, 0, &[], &mut [])
    }

    /// Asks for more than sockets have room for, and never takes an answer.
    pub fn ask_much_and_take_nothing(self) {
        let mut socket = self.socket;
        let len = self.size.min(8 << 20) as u32;
        for cookie in 0..20u64 {
            let head = [
                &REQUEST_MAGIC.to_be_bytes()[..],
                &[0; 4],
                &cookie.to_be_bytes(),
                &[0; 8],
                &len.to_be_bytes(),
            ];
            socket.write_all(&head.concat()).unwrap();
        }
        // Open until the test's process ends.
        std::mem::forget(socket);
    }

    /// All of the disk.
    pub fn whole(&mut self) -> Vec<u8> {
        let step = 1 << 20;
        let parts = (0..self.size).step_by(step);
        parts.flat_map(|at| self.read(at, step.min((self.size - at) as usize)).unwrap()).collect()
    }
}

/// Runs one of libnbd's tools, which must succeed. Returns what it said.
pub fn libnbd(name: &str, args: &[&str]) -> String {
    let out = Command::new(name).args(args).output();
    let out = out.unwrap_or_else(|e| panic!("{name} is needed by this test (libnbd-bin): {e}"));
    assert!(out.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Starts the binary with `--socket` beside the vault.
pub fn start(bench: &Bench, args: &[&str]) -> Child {
    let socket = bench.arg("socket");
    let at = args.iter().position(|a| *a == "--").unwrap_or(args.len());
    let all = [&args[..at], &["--socket", &socket], &args[at..]].concat();
    Child::start(bench.command(&all), &all.join(" "))
}
