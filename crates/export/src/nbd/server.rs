//! Listening, and the clients that are there.

use super::activity::Activity;
use super::connection::Connection;
use super::handshake::negotiate;
use super::places::{Held, Limits, Peer, Room, State};
use crate::device::BlockDevice;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fs::{fchmod, Mode};
use rustix::net::{self, bind, socket_with, sockopt, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the server waits, at its end, for a client that does not take its answers.
const LEAVE_TIME: Duration = Duration::from_secs(5);
/// A TCP connection on which nothing comes is asked for a sign of life after this time, then so often, and so many times.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 6);

/// What a server serves.
pub trait Exports: Send + Sync {
    /// Names and descriptions.
    fn list(&self) -> Vec<(String, String)>;

    /// The device of an export.
    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>>;
}

/// One export, which also answers to the empty name.
pub struct Single {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: String,
    /// What it is.
    pub device: Arc<dyn BlockDevice>,
}

impl Exports for Single {
    fn list(&self) -> Vec<(String, String)> {
        vec![(self.name.clone(), self.description.clone())]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        (name.is_empty() || name == self.name).then(|| self.device.clone())
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// An address and a port; port 0 lets the system choose.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "nbd+unix:///?socket={}", escaped(path)),
            Address::Tcp(address) => write!(f, "nbd://{address}"),
        }
    }
}

/// A path as a part of a URI.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                text.push(*byte as char)
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// How a server works.
pub struct ServerOptions {
    /// Threads for each connection: as many requests of one client are carried out at once.
    pub threads: usize,
    /// How many clients there may be, and which of them give way to others.
    pub limits: Limits,
    /// Told of requests that failed, and of clients that had to give way.
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
    /// Clients that ever agreed on an export.
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
    /// It had to give way, and has no place any more.
    is_leaving: bool,
}

impl Clients {
    /// Those that have a place.
    fn held(&self) -> Vec<Held> {
        let staying = self.by_id.iter().filter(|(_, c)| !c.is_leaving);
        staying.map(|(id, c)| Held { id: *id, peer: c.peer, state: c.activity.state() }).collect()
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Listens. A Unix socket that is there and nobody listens to is taken over.
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

    /// Clients that are there.
    pub fn clients(&self) -> usize {
        self.shared.clients().held().len()
    }

    /// Clients that agreed on an export since it started.
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// Takes no more clients and requests, and returns when those that were taken are answered.
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
        let clients = self.shared.clients();
        clients.by_id.values().for_each(|c| c.socket.shutdown(Shutdown::Read));
        let gone = |c: &mut Clients| !c.by_id.is_empty();
        let (clients, waited) = self
            .shared
            .left
            .wait_timeout_while(clients, LEAVE_TIME, gone)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            clients.by_id.values().for_each(|c| c.socket.shutdown(Shutdown::Both));
            drop(self.shared.left.wait_timeout_while(clients, LEAVE_TIME, gone));
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
            // Out of descriptors, say: the next one may find some.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn welcome(socket: Socket, shared: &Arc<Shared>) {
    let Some((id, activity)) = admit(&socket, shared) else { return };
    let leaving = Leaving(shared.clone(), id);
    let thread = std::thread::Builder::new().name("nbd-client".into());
    drop(thread.spawn(move || {
        let Leaving(shared, _) = &leaving;
        // A client that leaves within the handshake is none.
        drop(serve(socket, shared, &activity));
    }));
}

/// Gives a client a place, perhaps that of another one.
fn admit(socket: &Socket, shared: &Shared) -> Option<(u64, Arc<Activity>)> {
    let (for_listener, peer) = (socket.try_clone().ok()?, socket.peer());
    let mut clients = shared.clients();
    match shared.options.limits.room_for(peer, &clients.held(), Instant::now()) {
        Room::Free => {}
        Room::None => return None,
        Room::InsteadOf(other) => {
            let other = clients.by_id.get_mut(&other)?;
            if !matches!(other.activity.state(), State::Handshake(_)) {
                let whose = other.peer;
                (shared.options.on_error)(&format!(
                    "no connection is free: the one of {whose} that was idle the longest gave way to one of {peer}"
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
struct Leaving(Arc<Shared>, u64);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.clients().by_id.remove(&self.1);
        self.0.left.notify_all();
    }
}

fn serve(mut socket: Socket, shared: &Shared, activity: &Activity) -> io::Result<()> {
    let mut limited = within(&mut socket, shared.options.limits.handshake);
    let Some(agreed) = negotiate(&mut limited, &*shared.exports)? else { return Ok(()) };
    socket.set_timeouts(None)?;
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

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn bind(address: &Address) -> io::Result<Listener> {
        let listener = match address {
            Address::Unix(path) => Listener::Unix(bind_unix(path)?),
            Address::Tcp(address) => Listener::Tcp(TcpListener::bind(address)?),
        };
        match &listener {
            Listener::Unix(l) => l.set_nonblocking(true)?,
            Listener::Tcp(l) => l.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    fn address(&self, asked: &Address) -> io::Result<Address> {
        match self {
            Listener::Unix(_) => Ok(asked.clone()),
            Listener::Tcp(l) => l.local_addr().map(Address::Tcp),
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Unix(l) => {
                let (socket, _) = l.accept()?;
                socket.set_nonblocking(false)?;
                Ok(Socket::Unix(socket))
            }
            Listener::Tcp(l) => {
                let (socket, _) = l.accept()?;
                socket.set_nonblocking(false)?;
                socket.set_nodelay(true)?;
                let (after, every, times) = KEEP_ALIVE;
                sockopt::set_socket_keepalive(&socket, true)?;
                sockopt::set_tcp_keepidle(&socket, after)?;
                sockopt::set_tcp_keepintvl(&socket, every)?;
                sockopt::set_tcp_keepcnt(&socket, times)?;
                Ok(Socket::Tcp(socket))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(l) => l.as_fd(),
            Listener::Tcp(l) => l.as_fd(),
        }
    }
}

/// Makes a socket that only its owner may use, from the first moment.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux gives the permissions of the open socket, less the umask, to the file that binding makes.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Clients that wait to be accepted; as many as the standard library lets wait.
const BACKLOG: i32 = 128;

/// Binds to a path; a socket there that a server has left behind is removed.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match bind_private(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            // Of any other file it is said, too, that nobody listens.
            let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
            let refused = UnixStream::connect(path).err().map(|e| e.kind());
            if !is_socket || refused != Some(io::ErrorKind::ConnectionRefused) {
                return Err(e);
            }
            std::fs::remove_file(path)?;
            bind_private(path)
        }
        other => other,
    }
}

/// A connection.
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Unix(s) => s.try_clone().map(Socket::Unix),
            Socket::Tcp(s) => s.try_clone().map(Socket::Tcp),
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        match self {
            Socket::Unix(s) => {
                sockopt::socket_peercred(s).map_or(Peer::Unknown, |c| Peer::User(c.uid.as_raw()))
            }
            Socket::Tcp(s) => s.peer_addr().map_or(Peer::Unknown, |a| Peer::of_address(a.ip())),
        }
    }

    fn set_timeouts(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(s) => s.set_read_timeout(time).and_then(|()| s.set_write_timeout(time)),
            Socket::Tcp(s) => s.set_read_timeout(time).and_then(|()| s.set_write_timeout(time)),
        }
    }

    pub fn shutdown(&self, how: Shutdown) {
        drop(match self {
            Socket::Unix(s) => s.shutdown(how),
            Socket::Tcp(s) => s.shutdown(how),
        });
    }
}

/// A connection that ends when its time is over.
pub(super) struct Within<'a> {
    socket: &'a mut Socket,
    until: Instant,
}

/// Gives a connection so much time, for all that is read and written.
pub(super) fn within(socket: &mut Socket, time: Duration) -> Within<'_> {
    Within { socket, until: Instant::now() + time }
}

impl Within<'_> {
    fn in_time(&mut self) -> io::Result<&mut Socket> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_timeouts(Some(rest))?;
        Ok(self.socket)
    }
}

impl Read for Within<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.in_time()?.read(buf)
    }
}

impl Write for Within<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.in_time()?.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => s.read(buf),
            Socket::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => s.write(buf),
            Socket::Tcp(s) => s.write(buf),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => s.write_vectored(bufs),
            Socket::Tcp(s) => s.write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
