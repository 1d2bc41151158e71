//! A socket for each disk in a directory, and the clients at them.

use super::rings::Rings;
use super::session::Session;
use crate::exports::Exports;
use crate::unix_socket::bind_unix;
use parking_lot::{Condvar, Mutex};
use percent_encoding::{utf8_percent_encode, AsciiSet};
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags};
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::BTreeSet;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vhost::vhost_user::{BackendReqHandler, Error};

/// How long the last requests may take when the server stops.
const LEAVE_TIME: Duration = Duration::from_secs(10);
/// What the name of a file cannot have, and the sign that stands for it.
const NOT_IN_FILE_NAMES: &AsciiSet = &percent_encoding::AsciiSet::EMPTY.add(b'/').add(b'%');

/// How a server works.
pub struct ServerOptions {
    /// Threads for each client: as many of its requests are carried out at once.
    pub threads: usize,
    /// Nothing that guests wrote can have been lost since they wrote it. Otherwise those that ran before this server started
    /// are refused until they restart: they would go on with a disk that is older than they know.
    pub nothing_was_lost: bool,
    /// Called with a message for each request that failed, and each client that was refused.
    pub on_error: Arc<dyn Fn(&str) + Send + Sync>,
    /// How long a client waits for the one before it to leave: a machine that starts again may come before its end is seen.
    pub patience: Duration,
}

/// A running server. Dropped, it stops.
pub struct Server {
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    directory: PathBuf,
    exports: Box<dyn Exports>,
    options: ServerOptions,
    doors: Mutex<BTreeMap<String, Arc<Door>>>,
    /// Readable when there is something else to look at than new clients.
    wake: OwnedFd,
    stopping: AtomicBool,
}

/// The socket of a disk.
struct Door {
    name: String,
    path: PathBuf,
    listener: UnixListener,
    client: Mutex<Option<Client>>,
    left: Condvar,
    /// A guest may go on where it was.
    may_go_on: Arc<AtomicBool>,
    /// Why the last client was refused: whoever tries again each second is told of once.
    refused: Mutex<Option<String>>,
}

/// Who uses a disk.
struct Client {
    socket: UnixStream,
    rings: Arc<Rings>,
}

impl Server {
    /// Makes the sockets in an existing directory, and starts to listen. Sockets that a dead server has left are replaced.
    pub fn start(directory: &Path, exports: Box<dyn Exports>, options: ServerOptions) -> io::Result<Server> {
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            exports,
            options,
            doors: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            stopping: AtomicBool::new(false),
        });
        shared.open_doors()?;
        let for_thread = Arc::clone(&shared);
        let listening =
            thread::Builder::new().name("vhost-listen".into()).spawn(move || listen(&for_thread))?;
        Ok(Server { shared, listening: Mutex::new(Some(listening)) })
    }

    /// Makes sockets for disks that are new, and removes those of disks that are gone.
    pub fn refresh(&self) -> io::Result<()> {
        let opened = self.shared.open_doors();
        self.shared.wake();
        opened
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        self.shared.doors.lock().values().filter(|door| door.client.lock().is_some()).count()
    }

    /// Where a disk of this name has its socket.
    pub fn path_of(directory: &Path, name: &str) -> PathBuf {
        directory.join(format!("{}.socket", utf8_percent_encode(name, NOT_IN_FILE_NAMES)))
    }

    /// Takes no more requests, and returns when those in hand are done. Guests that connect again to the next server go on.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.listening.lock().take() {
            // A panic in the thread was printed.
            drop(thread.join());
        }
        let doors: Vec<_> = std::mem::take(&mut *self.shared.doors.lock()).into_values().collect();
        for door in &doors {
            door.close();
        }
        for door in &doors {
            door.wait_until_left(LEAVE_TIME);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn wake(&self) {
        // It fails if nobody has looked 2^64 times.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn open_doors(&self) -> io::Result<()> {
        let names: BTreeSet<String> = self.exports.list().into_iter().map(|(name, _)| name).collect();
        let mut doors = self.doors.lock();
        doors.retain(|name, door| {
            let stays = names.contains(name);
            if !stays {
                door.close();
            }
            stays
        });
        for name in names {
            if let Entry::Vacant(place) = doors.entry(name) {
                let door = Door::open(&self.directory, place.key(), self.options.nothing_was_lost)?;
                place.insert(Arc::new(door));
            }
        }
        Ok(())
    }

    fn report(&self, door: &Door, what: &str) {
        (self.options.on_error)(&format!("volume {}: {what}", door.name));
    }
}

impl Door {
    fn open(directory: &Path, name: &str, may_go_on: bool) -> io::Result<Door> {
        let path = Server::path_of(directory, name);
        let listener = bind_unix(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("listening on {}: {e}", path.display())))?;
        listener.set_nonblocking(true)?;
        Ok(Door {
            name: name.to_owned(),
            path,
            listener,
            client: Mutex::default(),
            left: Condvar::new(),
            may_go_on: Arc::new(AtomicBool::new(may_go_on)),
            refused: Mutex::default(),
        })
    }

    /// Lets nobody in, and sends its client away when its requests are done.
    fn close(&self) {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(&self.path);
        if let Some(client) = &*self.client.lock() {
            // Before the client sees that the server leaves: it must know what was done.
            client.rings.end(LEAVE_TIME);
            let _ = client.socket.shutdown(Shutdown::Both);
        }
    }

    /// Waits until nobody uses the disk. Returns whether that is so.
    fn wait_until_left(&self, patience: Duration) -> bool {
        let mut client = self.client.lock();
        !self.left.wait_while_for(&mut client, |c| c.is_some(), patience).timed_out()
    }

    /// Makes somebody the disk's client, when the one before it has left.
    fn enter(&self, client: Client, patience: Duration) -> bool {
        let mut place = self.client.lock();
        if self.left.wait_while_for(&mut place, |c| c.is_some(), patience).timed_out() {
            return false;
        }
        *place = Some(client);
        true
    }

    fn leave(&self) {
        *self.client.lock() = None;
        self.left.notify_all();
    }
}

fn listen(shared: &Arc<Shared>) {
    while !shared.stopping.load(Ordering::Acquire) {
        let doors: Vec<_> = shared.doors.lock().values().cloned().collect();
        let listeners = doors.iter().map(|door| PollFd::new(&door.listener, PollFlags::IN));
        let mut fds: Vec<_> =
            std::iter::once(PollFd::new(&shared.wake, PollFlags::IN)).chain(listeners).collect();
        if poll(&mut fds, None).is_err() {
            continue;
        }
        // Nothing is there if it was a client that came.
        let _ = rustix::io::read(&shared.wake, &mut [0_u8; 8]);
        let called: Vec<_> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
        for (door, _) in doors.iter().zip(called).filter(|(_, called)| *called) {
            match door.listener.accept() {
                Ok((socket, _)) => welcome(socket, door, shared),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // Out of descriptors, for example: the next try may succeed.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

fn welcome(socket: UnixStream, door: &Arc<Door>, shared: &Arc<Shared>) {
    let (door, shared) = (Arc::clone(door), Arc::clone(shared));
    let thread = thread::Builder::new().name("vhost-client".into());
    // Where the system has no room for one more thread, the client finds the socket closed.
    drop(thread.spawn(move || {
        let served = serve(socket, &door, &shared);
        let mut refused = door.refused.lock();
        let why = served.err().map(|e| e.to_string());
        if why.is_some() && why != *refused {
            shared.report(&door, why.as_deref().unwrap_or_default());
        }
        *refused = why;
    }));
}

fn serve(socket: UnixStream, door: &Door, shared: &Shared) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    // What cannot be opened was reported.
    let Some(device) = shared.exports.open(&door.name) else { return Ok(()) };
    let on_error = Arc::clone(&shared.options.on_error);
    let on_error = Box::new(move |line: &str| on_error(line));
    let rings = Arc::new(Rings::new(device, door.name.clone(), on_error)?);
    let client = Client { socket: socket.try_clone()?, rings: Arc::clone(&rings) };
    if !door.enter(client, shared.options.patience) {
        return Err(io::Error::other("it is in use by another machine: a second one was refused"));
    }
    let _leaving = ClientGuard(door);
    if shared.stopping.load(Ordering::Acquire) {
        return Ok(());
    }
    let session = Session::new(Arc::clone(&rings), Arc::clone(&door.may_go_on));
    let mut handler = BackendReqHandler::from_stream(socket, Arc::new(std::sync::Mutex::new(session)));
    thread::scope(|scope| {
        for number in 0..shared.options.threads.max(1) {
            let thread = thread::Builder::new().name("vhost-worker".into());
            let spawned = thread.spawn_scoped(scope, || rings.work());
            // Where the system has no room for more threads, fewer do the work.
            if let (Err(error), 0) = (spawned, number) {
                return Err(error);
            }
        }
        let ended = loop {
            match handler.handle_request() {
                Ok(()) | Err(Error::SocketRetry(_)) => {}
                Err(Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_)) => break Ok(()),
                Err(_) if shared.stopping.load(Ordering::Acquire) => break Ok(()),
                Err(Error::ReqHandlerError(error)) => break Err(error),
                Err(error) => break Err(io::Error::other(format!("a client was refused: {error}"))),
            }
        };
        rings.end(LEAVE_TIME);
        ended
    })
}

/// Takes a client off its disk, however its thread ends.
struct ClientGuard<'a>(&'a Door);

impl Drop for ClientGuard<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
