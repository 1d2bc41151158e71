//! The socket that a server listens on.

use super::address::Address;
use super::socket::Socket;
use rustix::fs::{fchmod, Mode};
use rustix::net::{self, bind, socket_with, sockopt, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// A TCP connection on which nothing comes is asked for a sign of life after this time, then so often, and so many times.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 6);

/// A socket that clients connect to. It does not block.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on `address`. A Unix socket that nobody listens on is replaced.
    pub fn bind(address: &Address) -> io::Result<Listener> {
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

    /// Where it listens: as asked for, with the port that the system chose.
    pub fn address(&self, asked: &Address) -> io::Result<Address> {
        match self {
            Listener::Unix(_) => Ok(asked.clone()),
            Listener::Tcp(l) => l.local_addr().map(Address::Tcp),
        }
    }

    /// The next client; `WouldBlock` where there is none.
    pub fn accept(&self) -> io::Result<Socket> {
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

/// Binds to a path; a socket that a dead server has left there is removed.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match bind_private(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            // Connecting to any other kind of file is refused, too.
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
