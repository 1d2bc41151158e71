//! The server against a client that says exactly what a test wants it to say.
#![allow(clippy::unwrap_used)]

mod client;
mod clients;
mod handshake;
mod hostile;
mod limits;
mod requests;
mod stopping;

use super::limits::Limits;
use super::{Address, Server, ServerOptions};
use crate::memory_device::Memory;
use crate::SingleExport;
use client::Client;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes of the device that most tests use: no multiple of a sector.
const SIZE: u64 = (3 << 20) + 123;
/// More than any test has that is not about their number: a client counts until the server has seen that it is gone.
const CONNECTIONS_MAX: usize = 256;
/// How long a stopping server waits for clients that take no answers: a test that is not about them sees by it whether it
/// has waited, however busy the machine is.
const LEAVE: Duration = Duration::from_secs(120);

/// A server of one memory device on a Unix socket.
struct Bench {
    server: Option<Server>,
    device: Arc<Memory>,
    errors: Arc<Mutex<Vec<String>>>,
    _dir: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench::of(Memory::new(SIZE), CONNECTIONS_MAX)
    }

    fn of(device: Memory, connections_max: usize) -> Bench {
        let all = connections_max;
        Bench::with(device, Limits { connections: all, per_peer: all, leave: LEAVE, ..Limits::default() })
    }

    fn with(device: Memory, limits: Limits) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let (device, errors) = (Arc::new(device), Arc::new(Mutex::new(Vec::new())));
        let address = Address::Unix(dir.path().join("socket"));
        let server = start_with(&address, device.clone(), errors.clone(), limits).unwrap();
        Bench { server: Some(server), device, errors, _dir: dir }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// A client that has said nothing yet.
    fn raw(&self) -> Client {
        Client::connect(self.server().address())
    }

    /// A client that has agreed on structured replies, block status and the export.
    fn client(&self) -> Client {
        let mut client = self.raw();
        client.greet(true);
        client.structured();
        assert_eq!(client.set_contexts("disk", &["base:allocation"]), ["base:allocation"]);
        client.go("disk");
        client
    }

    /// A client that has agreed on the export only.
    fn simple(&self) -> Client {
        let mut client = self.raw();
        client.greet(true);
        client.go("disk");
        client
    }

    fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap().clone()
    }

    /// Waits until as many clients are there.
    fn wait_for_clients(&self, count: usize) {
        wait_until("the clients that are expected", || self.server().clients() == count);
    }

    fn stop(&mut self) -> Duration {
        let start = Instant::now();
        self.server.take().unwrap().stop();
        start.elapsed()
    }
}

fn start(
    address: &Address,
    device: Arc<Memory>,
    errors: Arc<Mutex<Vec<String>>>,
    connections_max: usize,
) -> std::io::Result<Server> {
    let (connections, per_peer) = (connections_max, connections_max);
    let limits = Limits { connections, per_peer, leave: LEAVE, ..Limits::default() };
    start_with(address, device, errors, limits)
}

fn start_with(
    address: &Address,
    device: Arc<Memory>,
    errors: Arc<Mutex<Vec<String>>>,
    limits: Limits,
) -> std::io::Result<Server> {
    let on_error = Box::new(move |line: &str| errors.lock().unwrap().push(line.to_owned()));
    let options = ServerOptions { threads: 4, limits, tls: None, on_error };
    let export = SingleExport { name: "disk".into(), description: "a disk in memory".into(), device };
    Server::start(address, Box::new(export), options)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
