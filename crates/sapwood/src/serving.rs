//! Serving one disk over NBD, while a command runs or until a signal comes.

use crate::args::Serve;
use crate::commands::scratch;
use crate::give_way::bytes_of;
use crate::signals::EndSignal;
use anyhow::{Context, Result};
use export::nbd::{Address, Server, ServerOptions, Single};
use rustix::process::{kill_process, Pid, Signal};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;

/// Clients at once: several machines, each with several connections.
const CONNECTIONS_MAX: usize = 64;
/// Memory for decompressed data, where nothing is known of what is available.
const CACHE_BYTES: u64 = 256 << 20;
/// How often it is looked whether there is anything left to wait for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A disk that is being served.
pub struct Serving {
    server: Server,
    command: Option<Child>,
    /// Made for the socket.
    _directory: Option<TempDir>,
}

impl Serving {
    /// Serves an export.
    pub fn start(at: &Serve, export: Single) -> Result<Serving> {
        let (address, directory) = address(at)?;
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get()) + 2;
        let on_error = Box::new(|line: &str| eprintln!("sapwood: {line}"));
        let options = ServerOptions { threads, connections_max: CONNECTIONS_MAX, on_error };
        let server = Server::start(&address, Box::new(export), options)
            .with_context(|| format!("listening on {address}"))?;
        Ok(Serving { server, command: None, _directory: directory })
    }

    /// Where it is served, as a URI that clients understand.
    pub fn uri(&self) -> String {
        self.server.address().to_string()
    }

    /// Clients that are there.
    pub fn clients(&self) -> usize {
        self.server.clients()
    }

    /// Starts what the disk is served for, if that was given.
    pub fn run(&mut self, command: &[OsString]) -> Result<()> {
        let Some((program, arguments)) = command.split_first() else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(arguments).env("NBD_URI", self.uri());
        if let Address::Unix(path) = self.server.address() {
            command.env("NBD_SOCKET", path);
        }
        let child = command.spawn().with_context(|| format!("running {}", program.to_string_lossy()))?;
        self.command = Some(child);
        Ok(())
    }

    /// Waits until the command has ended, a signal has come (which the command is told), or `enough` says so.
    pub fn wait(&mut self, end: &mut EndSignal, mut enough: impl FnMut(&Serving) -> bool) -> Result<Ended> {
        let mut told = false;
        loop {
            let signal = end.wait_for(LOOK_EVERY);
            if let Some(child) = &mut self.command {
                if let Some(status) = child.try_wait().context("waiting for the command")? {
                    self.command = None;
                    return Ok(Ended::Command(status));
                }
                if signal && !told {
                    // It is ours and was not waited for: the number is still its own.
                    let pid = Pid::from_raw(child.id() as i32);
                    pid.map(|pid| kill_process(pid, Signal::TERM));
                    told = true;
                }
                if signal {
                    std::thread::sleep(LOOK_EVERY);
                }
            } else if signal {
                return Ok(Ended::Signal);
            } else if enough(self) {
                return Ok(Ended::Enough);
            }
        }
    }

    /// Takes no more clients and requests; returns when those that were taken are answered.
    pub fn stop(self) {
        self.server.stop();
    }
}

/// Why there is nothing more to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The command has.
    Command(ExitStatus),
    /// A signal came.
    Signal,
    /// It was said to be enough.
    Enough,
}

impl Ended {
    /// The command's exit code; 0 where there was none.
    pub fn code(&self) -> ExitCode {
        match self {
            Ended::Command(status) => ExitCode::from(status.code().map_or(1, |c| c as u8)),
            Ended::Signal | Ended::Enough => ExitCode::SUCCESS,
        }
    }
}

/// Parses a size in bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    bytes_of(text).ok_or_else(|| format!("{text:?} is no size: 64M, 1.5G, 512MiB, bytes"))
}

/// Bytes of memory for decompressed data.
pub fn cache_bytes(asked: Option<u64>) -> u64 {
    let quarter = || {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
        let kib = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map_or(CACHE_BYTES, |k| (k << 10) / 4).max(CACHE_BYTES / 4)
    };
    asked.unwrap_or_else(quarter)
}

/// Where to listen, and a directory that was made for it.
fn address(at: &Serve) -> Result<(Address, Option<TempDir>)> {
    match (&at.socket, at.listen) {
        (Some(path), _) => Ok((Address::Unix(std::path::absolute(path)?), None)),
        (None, Some(address)) => Ok((Address::Tcp(address), None)),
        (None, None) => {
            let below = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| scratch(None), PathBuf::from);
            let made = tempfile::Builder::new().prefix("sapwood-nbd-").tempdir_in(&below);
            let directory = made.with_context(|| format!("making a directory in {}", below.display()))?;
            Ok((Address::Unix(directory.path().join("socket")), Some(directory)))
        }
    }
}
