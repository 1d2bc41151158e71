//! A socket for each disk in a directory, and the clients at them.

use super::permission::Permission;
use super::rings::Rings;
use super::session::Session;
use crate::exports::Exports;
use crate::unix_socket::bind_unix;
use parking_lot::{Condvar, Mutex};
use percent_encoding::{utf8_percent_encode, AsciiSet};
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags};
use std::collections::{BTreeMap, BTreeSet};
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
/// Clients of a disk that wait until another one has left; more are refused at once.
const WAITING_MAX: usize = 8;
/// What the name of a file cannot have, and the sign that stands for it.
const NOT_IN_FILE_NAMES: &AsciiSet = &percent_encoding::AsciiSet::EMPTY.add(b'/').add(b'%');

/// How a server works.
pub struct ServerOptions {
    /// Threads for each client: as many of its requests are carried out at once.
    pub threads: usize,
    /// Another one whenever something that guests have written may have been lost. Those that began with another one are refused
    /// until they restart: they would go on with a disk that is older than they know.
    pub lineage: String,
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
    doors: Mutex<Doors>,
    /// Readable when there is something else to look at than new clients.
    wake: OwnedFd,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Doors {
    open: BTreeMap<String, Arc<Door>>,
    /// Disks that have no socket, and that was said.
    failed: BTreeSet<String>,
}

/// The socket of a disk.
struct Door {
    name: String,
    path: PathBuf,
    listener: UnixListener,
    place: Mutex<Place>,
    left: Condvar,
    /// A guest may go on where it was.
    may_go_on: Arc<Permission>,
    /// Why the last client was refused: the same reason is reported once, since QEMU tries again each second.
    refused: Mutex<Option<String>>,
}

/// The place of the one client of a disk.
#[derive(Default)]
struct Place {
    is_taken: bool,
    /// Clients that wait for it.
    waiting: usize,
    client: Option<Client>,
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
        self.shared.doors.lock().open.values().filter(|door| door.place.lock().is_taken).count()
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
        let doors: Vec<_> = std::mem::take(&mut self.shared.doors.lock().open).into_values().collect();
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

    /// Opens the doors of new disks. One that cannot be opened is reported once, and the others are opened; an error where there are no others.
    fn open_doors(&self) -> io::Result<()> {
        let names: BTreeSet<String> = self.exports.list().into_iter().map(|(name, _)| name).collect();
        let mut doors = self.doors.lock();
        doors.open.retain(|name, door| {
            let stays = names.contains(name);
            if !stays {
                door.close();
                door.may_go_on.forget();
            }
            stays
        });
        doors.failed.retain(|name| names.contains(name));
        let mut failed = Vec::new();
        for name in names {
            if doors.open.contains_key(&name) || doors.failed.contains(&name) {
                continue;
            }
            match Door::open(&self.directory, &name, &self.options.lineage) {
                Ok(door) => drop(doors.open.insert(name, Arc::new(door))),
                Err(error) => failed.push((name, error)),
            }
        }
        // Where there is not one, it is not the name's fault.
        if let (true, Some((_, error))) = (doors.open.is_empty(), failed.first()) {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        for (name, error) in failed {
            (self.options.on_error)(&format!("volume {name} has no socket: {error}"));
            doors.failed.insert(name);
        }
        Ok(())
    }

    fn report(&self, door: &Door, what: &str) {
        (self.options.on_error)(&format!("volume {}: {what}", door.name));
    }
}

impl Door {
    fn open(directory: &Path, name: &str, lineage: &str) -> io::Result<Door> {
        let path = Server::path_of(directory, name);
        let listener = bind_unix(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("listening on {}: {e}", path.display())))?;
        listener.set_nonblocking(true)?;
        let may_go_on = Arc::new(Permission::new(path.with_extension("began"), lineage));
        Ok(Door {
            name: name.to_owned(),
            path,
            listener,
            place: Mutex::default(),
            left: Condvar::new(),
            may_go_on,
            refused: Mutex::default(),
        })
    }

    /// Lets nobody in, and sends its client away when its requests are done.
    fn close(&self) {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(&self.path);
        if let Some(client) = &self.place.lock().client {
            // Before the client sees that the server leaves: it must know what was done.
            if !client.rings.end(LEAVE_TIME) {
                self.may_go_on.take_back();
            }
            let _ = client.socket.shutdown(Shutdown::Both);
        }
    }

    /// Waits until nobody uses the disk.
    fn wait_until_left(&self, patience: Duration) {
        self.left.wait_while_for(&mut self.place.lock(), |p| p.is_taken, patience);
    }

    /// Takes the place of the disk's client, when the one before has left. A few may wait for it.
    fn enter(&self, patience: Duration) -> Option<PlaceGuard<'_>> {
        let mut place = self.place.lock();
        if place.is_taken {
            if place.waiting == WAITING_MAX {
                return None;
            }
            place.waiting += 1;
            self.left.wait_while_for(&mut place, |p| p.is_taken, patience);
            place.waiting -= 1;
            if place.is_taken {
                return None;
            }
        }
        place.is_taken = true;
        Some(PlaceGuard(self))
    }
}

/// Gives the place back, however its client's thread ends.
struct PlaceGuard<'a>(&'a Door);

impl Drop for PlaceGuard<'_> {
    fn drop(&mut self) {
        let mut place = self.0.place.lock();
        place.is_taken = false;
        place.client = None;
        self.0.left.notify_all();
    }
}

fn listen(shared: &Arc<Shared>) {
    while !shared.stopping.load(Ordering::Acquire) {
        let doors: Vec<_> = shared.doors.lock().open.values().cloned().collect();
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
    let Some(_leaving) = door.enter(shared.options.patience) else {
        return Err(io::Error::other("it is in use by another machine: a second one was refused"));
    };
    // What cannot be opened was reported.
    let Some(device) = shared.exports.open(&door.name) else { return Ok(()) };
    let on_error = Arc::clone(&shared.options.on_error);
    let rings = Rings::new(device, door.name.clone(), Box::new(move |line: &str| on_error(line)))?;
    let rings = Arc::new(rings);
    door.place.lock().client = Some(Client { socket: socket.try_clone()?, rings: Arc::clone(&rings) });
    // Who stops the server after this finds the client.
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
        rings.client_left();
        rings.end(LEAVE_TIME);
        ended
    })
}
