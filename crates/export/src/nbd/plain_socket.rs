//! A connection without TLS: a Unix or a TCP socket. Several threads may have it.

use super::limits::Peer;
use rustix::net::sockopt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// A socket.
pub(super) enum PlainSocket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl PlainSocket {
    /// Another handle to the same connection.
    pub fn try_clone(&self) -> io::Result<PlainSocket> {
        match self {
            PlainSocket::Unix(s) => s.try_clone().map(PlainSocket::Unix),
            PlainSocket::Tcp(s) => s.try_clone().map(PlainSocket::Tcp),
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        match self {
            PlainSocket::Unix(s) => {
                sockopt::socket_peercred(s).map_or(Peer::Unknown, |c| Peer::User(c.uid.as_raw()))
            }
            PlainSocket::Tcp(s) => s.peer_addr().map_or(Peer::Unknown, |a| Peer::of_address(a.ip())),
        }
    }

    /// Gives the reads and writes that follow time until then, all of them together as long as this is called before each;
    /// `None`: for ever.
    pub fn set_deadline(&self, until: Option<Instant>) -> io::Result<()> {
        let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
        if rest.is_some_and(|rest| rest.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self {
            PlainSocket::Unix(s) => s.set_read_timeout(rest).and_then(|()| s.set_write_timeout(rest)),
            PlainSocket::Tcp(s) => s.set_read_timeout(rest).and_then(|()| s.set_write_timeout(rest)),
        }
    }

    /// Ends one or both directions. A connection that is gone is no error.
    pub fn shutdown(&self, how: Shutdown) {
        drop(match self {
            PlainSocket::Unix(s) => s.shutdown(how),
            PlainSocket::Tcp(s) => s.shutdown(how),
        });
    }

    /// [`Read::read`].
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            PlainSocket::Unix(s) => (&mut &*s).read(buf),
            PlainSocket::Tcp(s) => (&mut &*s).read(buf),
        }
    }

    /// [`Write::write_vectored`].
    pub fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            PlainSocket::Unix(s) => (&mut &*s).write_vectored(bufs),
            PlainSocket::Tcp(s) => (&mut &*s).write_vectored(bufs),
        }
    }
}
