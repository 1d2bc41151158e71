//! The connection to a client: a Unix or a TCP socket, with TLS or without it.

use super::limits::Peer;
use super::tls::TlsSocket;
use rustix::net::sockopt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

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

    /// Gives the reads and writes that follow time until then, all of them together as long as this is called before each;
    /// `None`: for ever.
    pub fn set_deadline(&self, until: Option<Instant>) -> io::Result<()> {
        let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
        if rest.is_some_and(|rest| rest.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self {
            Socket::Unix(s) => s.set_read_timeout(rest).and_then(|()| s.set_write_timeout(rest)),
            Socket::Tcp(s) => s.set_read_timeout(rest).and_then(|()| s.set_write_timeout(rest)),
            Socket::Tls(s) => s.set_deadline(until),
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
    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.socket.peer()
    }

    fn in_time(&mut self) -> io::Result<&mut Socket> {
        self.socket.set_deadline(Some(self.until))?;
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
