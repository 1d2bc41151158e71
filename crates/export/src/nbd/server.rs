//! Listening for clients, and keeping track of them.

use super::activity::Activity;
use super::address::Address;
use super::connection::Connection;
use super::handshake::{greet, negotiate, Negotiated, Security};
use super::limits::{Admission, ConnectionInfo, Limits, Peer, State};
use super::listener::Listener;
use super::socket::{with_deadline, Socket};
use super::tls::Tls;
use crate::exports::Exports;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{poll, PollFd, PollFlags};
use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How a server works.
pub struct ServerOptions {
    /// Threads for each connection: as many requests of one client are carried out at once.
    pub threads: usize,
    /// How many clients there may be, and when idle ones are closed for new ones.
    pub limits: Limits,
    /// Where it is given, clients must use TLS.
    pub tls: Option<Tls>,
    /// Called with a message for each request that failed, and each idle client that was closed for a new one.
    pub on_error: Box<dyn Fn(&str) + Send + Sync>,
}

/// A running server. Dropped, it stops.
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
    /// Closed to end the thread that listens.
    stop: Option<UnixStream>,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    exports: Box<dyn Exports>,
    options: ServerOptions,
    clients: Mutex<Clients>,
    left: Condvar,
    /// No more clients and requests are taken.
    stopping: AtomicBool,
    /// Clients that have finished a handshake since the start.
    served: AtomicU64,
}

#[derive(Default)]
struct Clients {
    next: u64,
    by_id: HashMap<u64, Client>,
}

/// A connection, as the thread that listens sees it.
struct Client {
    socket: Socket,
    peer: Peer,
    activity: Arc<Activity>,
    /// It is being closed for another client, and does not count any more.
    is_leaving: bool,
}

impl Clients {
    /// The connections that count.
    fn held(&self) -> Vec<ConnectionInfo> {
        let staying = self.by_id.iter().filter(|(_, c)| !c.is_leaving);
        staying.map(|(id, c)| ConnectionInfo { id: *id, peer: c.peer, state: c.activity.state() }).collect()
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock()
    }
}

impl Server {
    /// Starts to listen. A Unix socket that a dead server has left is replaced.
    pub fn start(address: &Address, exports: Box<dyn Exports>, options: ServerOptions) -> io::Result<Server> {
        let listener = Listener::bind(address)?;
        let address = listener.address(address)?;
        let (stop, stopped) = UnixStream::pair()?;
        let (clients, left) = (Mutex::default(), Condvar::new());
        let (stopping, served) = Default::default();
        let shared = Arc::new(Shared { exports, options, clients, left, stopping, served });
        let for_thread = shared.clone();
        let listening = std::thread::Builder::new()
            .name("nbd-listen".into())
            .spawn(move || listen(&listener, &stopped, &for_thread))?;
        Ok(Server { address, shared, stop: Some(stop), listening: Some(listening) })
    }

    /// Where it listens; the port that the system chose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        self.shared.clients().held().len()
    }

    /// Clients that have finished a handshake since the start.
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// Accepts no more clients and requests, and returns when the requests under way are answered.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.listening.take() {
            drop(thread.join());
            if let Address::Unix(path) = &self.address {
                drop(std::fs::remove_file(path));
            }
        }
        self.shared.stopping.store(true, Ordering::Release);
        let mut clients = self.shared.clients();
        clients.by_id.values().for_each(|c| c.socket.shutdown(Shutdown::Read));
        let are_there = |c: &mut Clients| !c.by_id.is_empty();
        let leave = self.shared.options.limits.leave;
        if self.shared.left.wait_while_for(&mut clients, are_there, leave).timed_out() {
            clients.by_id.values().for_each(|c| c.socket.shutdown(Shutdown::Both));
            self.shared.left.wait_while_for(&mut clients, are_there, leave);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen(listener: &Listener, stopped: &UnixStream, shared: &Arc<Shared>) {
    loop {
        let mut fds =
            [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok(socket) => welcome(socket, shared),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // Out of descriptors, for example: the next try may succeed.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn welcome(socket: Socket, shared: &Arc<Shared>) {
    let Some((id, activity)) = admit(&socket, shared) else { return };
    let leaving = ClientGuard(shared.clone(), id);
    let thread = std::thread::Builder::new().name("nbd-client".into());
    drop(thread.spawn(move || {
        let ClientGuard(shared, _) = &leaving;
        // A client that leaves during the handshake is no error.
        drop(serve(socket, shared, &activity));
    }));
}

/// Accepts a client if there is room, or if an idle one can be closed for it.
fn admit(socket: &Socket, shared: &Shared) -> Option<(u64, Arc<Activity>)> {
    let (for_listener, peer) = (socket.try_clone().ok()?, socket.peer());
    let mut clients = shared.clients();
    match shared.options.limits.admit(peer, &clients.held(), Instant::now()) {
        Admission::Accept => {}
        Admission::Refuse => return None,
        Admission::Replace(other) => {
            let other = clients.by_id.get_mut(&other)?;
            if !matches!(other.activity.state(), State::Handshake(_)) {
                let whose = other.peer;
                (shared.options.on_error)(&format!(
                    "all connections are taken: the one of {whose} that was idle the longest is closed for one of {peer}"
                ));
            }
            other.is_leaving = true;
            other.socket.shutdown(Shutdown::Both);
        }
    }
    clients.next += 1;
    let (id, activity) = (clients.next, Arc::new(Activity::new()));
    let client = Client { socket: for_listener, peer, activity: activity.clone(), is_leaving: false };
    clients.by_id.insert(id, client);
    Some((id, activity))
}

/// Takes a client off the list, however its thread ends.
struct ClientGuard(Arc<Shared>, u64);

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0.clients().by_id.remove(&self.1);
        self.0.left.notify_all();
    }
}

fn serve(mut socket: Socket, shared: &Shared, activity: &Activity) -> io::Result<()> {
    let until = Instant::now() + shared.options.limits.handshake;
    let tls = shared.options.tls.as_ref();
    let mut limited = with_deadline(&mut socket, until);
    let greeting = greet(&mut limited)?;
    let security = if tls.is_some() { Security::WantsTls } else { Security::Plain };
    let mut negotiated = negotiate(&mut limited, &*shared.exports, greeting, security)?;
    if let (Negotiated::StartsTls(greeting), Some(tls)) = (&negotiated, tls) {
        let keys = tls.accept(&mut limited).map_err(|e| {
            let peer = limited.peer();
            (shared.options.on_error)(&format!("TLS with {peer}: {e}"));
            e
        })?;
        socket = socket.with_tls(keys);
        let mut limited = with_deadline(&mut socket, until);
        negotiated = negotiate(&mut limited, &*shared.exports, *greeting, Security::Tls)?;
    }
    let Negotiated::Export(agreed) = negotiated else { return Ok(()) };
    socket.set_deadline(None)?;
    activity.agreed();
    shared.served.fetch_add(1, Ordering::Relaxed);
    let connection = Connection::new(socket, agreed, activity, &*shared.options.on_error, &shared.stopping)?;
    std::thread::scope(|scope| {
        for _ in 1..shared.options.threads {
            // Where the system has no room for more threads, fewer do the work.
            drop(thread::Builder::new().spawn_scoped(scope, || connection.work()));
        }
        connection.work();
    });
    Ok(())
}
