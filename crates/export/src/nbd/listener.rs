//! The socket that a server listens on.

use super::address::Address;
use super::plain_socket::PlainSocket;
use super::socket::Socket;
use crate::unix_socket::bind_unix;
use rustix::net::sockopt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
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
                Ok(PlainSocket::Unix(socket).into())
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
                Ok(PlainSocket::Tcp(socket).into())
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
