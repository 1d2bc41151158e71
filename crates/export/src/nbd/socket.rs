//! The connection to a client: a Unix or a TCP socket, with TLS or without it.

use super::limits::Peer;
use super::tls::TlsSocket;
use rustix::net::sockopt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection.
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Arc<TlsSocket>),
}

impl Socket {
    /// Another handle to the same connection.
    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Unix(s) => s.try_clone().map(Socket::Unix),
            Socket::Tcp(s) => s.try_clone().map(Socket::Tcp),
            Socket::Tls(s) => Ok(Socket::Tls(Arc::clone(s))),
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        match self {
            Socket::Unix(s) => {
                sockopt::socket_peercred(s).map_or(Peer::Unknown, |c| Peer::User(c.uid.as_raw()))
            }
            Socket::Tcp(s) => s.peer_addr().map_or(Peer::Unknown, |a| Peer::of_address(a.ip())),
            Socket::Tls(s) => s.plain.peer(),
        }
    }

    /// How long one read or write may take; `None`: for ever.
    pub fn set_timeouts(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(s) => s.set_read_timeout(time).and_then(|()| s.set_write_timeout(time)),
            Socket::Tcp(s) => s.set_read_timeout(time).and_then(|()| s.set_write_timeout(time)),
            Socket::Tls(s) => s.plain.set_timeouts(time),
        }
    }

    /// Ends one or both directions. A connection that is gone is no error.
    pub fn shutdown(&self, how: Shutdown) {
        drop(match self {
            Socket::Unix(s) => s.shutdown(how),
            Socket::Tcp(s) => s.shutdown(how),
            Socket::Tls(s) => {
                s.plain.shutdown(how);
                Ok(())
            }
        });
    }

    /// [`Read::read`] of a connection that others have as well.
    pub fn read_shared(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => (&mut &*s).read(buf),
            Socket::Tcp(s) => (&mut &*s).read(buf),
            Socket::Tls(s) => s.read(buf),
        }
    }

    /// [`Write::write_vectored`] of a connection that others have as well.
    pub fn write_shared(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => (&mut &*s).write_vectored(bufs),
            Socket::Tcp(s) => (&mut &*s).write_vectored(bufs),
            Socket::Tls(s) => s.write_vectored(bufs),
        }
    }
}

/// A connection with a deadline for all reads and writes.
pub(super) struct DeadlineSocket<'a> {
    socket: &'a mut Socket,
    until: Instant,
}

/// Gives a connection time until then for all reads and writes.
pub(super) fn with_deadline(socket: &mut Socket, until: Instant) -> DeadlineSocket<'_> {
    DeadlineSocket { socket, until }
}

impl DeadlineSocket<'_> {
    fn in_time(&mut self) -> io::Result<&mut Socket> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_timeouts(Some(rest))?;
        Ok(self.socket)
    }
}

impl Read for DeadlineSocket<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.in_time()?.read(buf)
    }
}

impl Write for DeadlineSocket<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.in_time()?.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_shared(buf)
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_shared(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_shared(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
