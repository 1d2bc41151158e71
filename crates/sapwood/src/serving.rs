//! Serves one disk over NBD, for several commands.

use crate::args::Serve;
use crate::system::own_directory::{self, scratch, OwnDirectory};
use crate::system::purpose::{End, Purpose};
use crate::system::signals::EndSignal;
use crate::terminal::streams::errln;
use anyhow::{Context, Result};
use export::nbd::{Address, Limits, Server, ServerOptions, Tls};
use export::SingleExport;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Clients of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// Clients that are connected.
    pub now: usize,
    /// Clients that have finished a handshake since the start.
    pub ever: u64,
}

/// A disk that is being served.
pub struct Serving {
    server: Server,
    is_tls: bool,
    purpose: Purpose,
    /// Made for the socket.
    _directory: Option<OwnDirectory>,
}

impl Serving {
    /// Serves an export.
    pub fn start(at: &Serve, tls: Option<Tls>, export: SingleExport) -> Result<Serving> {
        let (address, directory) = address(at)?;
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get()) + 2;
        let on_error = Box::new(|line: &str| errln!("sapwood: {line}"));
        warn_of_strangers(&address, tls.as_ref(), "the disk");
        let is_tls = tls.is_some();
        let options = ServerOptions { threads, limits: Limits::default(), tls, on_error };
        let server = Server::start(&address, Box::new(export), options)
            .with_context(|| format!("listening on {address}"))?;
        Ok(Serving { server, is_tls, purpose: Purpose::default(), _directory: directory })
    }

    /// Where it is served, as a URI that clients understand.
    pub fn uri(&self) -> String {
        self.server.address().uri("", self.is_tls)
    }

    /// Starts the command that the disk is served for, if one was given.
    pub fn run(&mut self, command: &[OsString]) -> Result<()> {
        let uri = self.uri();
        let mut environment = vec![("NBD_URI", OsStr::new(&uri))];
        if let Address::Unix(path) = self.server.address() {
            environment.push(("NBD_SOCKET", path.as_os_str()));
        }
        self.purpose = Purpose::start(command, &environment)?;
        Ok(())
    }

    /// Waits until the command has ended, or a signal has come, or `enough` says so of the clients.
    pub fn wait(&mut self, end: &EndSignal, mut enough: impl FnMut(Clients) -> bool) -> Result<End> {
        let Serving { server, purpose, .. } = self;
        purpose.wait(end, || enough(Clients { now: server.clients(), ever: server.served() }))
    }

    /// Whether there are clients.
    pub fn is_in_use(&self) -> bool {
        self.server.clients() > 0
    }

    /// Accepts no more clients and requests; returns when the requests under way are answered.
    pub fn stop(self) {
        self.server.stop();
    }
}

/// What is needed for TLS, if that is wanted. Read before anything is made.
pub fn tls_of(at: &Serve) -> Result<Option<Tls>> {
    Ok(at.tls.as_deref().map(Tls::load).transpose()?)
}

/// Says so where anyone on the network may use what is served.
pub fn warn_of_strangers(address: &Address, tls: Option<&Tls>, what: &str) {
    let Address::Tcp(tcp) = address else { return };
    if !tcp.ip().is_loopback() && !tls.is_some_and(Tls::knows_clients) {
        errln!("sapwood: {tcp}: anyone who can reach this address can use {what}: clients are not authenticated (--tls DIR with ca-cert.pem)");
    }
}

/// Where to listen, and a directory that was made for it.
fn address(at: &Serve) -> Result<(Address, Option<OwnDirectory>)> {
    match (&at.socket, at.listen) {
        (Some(path), _) => Ok((Address::Unix(std::path::absolute(path)?), None)),
        (None, Some(address)) => Ok((Address::Tcp(address), None)),
        (None, None) => {
            let below = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| scratch(None), PathBuf::from);
            let made = OwnDirectory::create(&below, own_directory::NBD);
            let directory = made.with_context(|| format!("making a directory in {}", below.display()))?;
            Ok((Address::Unix(directory.path().join("socket")), Some(directory)))
        }
    }
}
