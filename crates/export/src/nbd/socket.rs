//! The connection to a client, with TLS or without it.

use super::limits::Peer;
use super::plain_socket::PlainSocket;
use super::tls::TlsSocket;
use rustls::ServerConnection;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

/// A connection.
pub(super) enum Socket {
    Plain(PlainSocket),
    Tls(Arc<TlsSocket>),
}

impl From<PlainSocket> for Socket {
    fn from(plain: PlainSocket) -> Socket {
        Socket::Plain(plain)
    }
}

impl Socket {
    /// Goes on with TLS, after both sides have agreed on keys.
    pub fn with_tls(self, keys: ServerConnection) -> Socket {
        match self {
            Socket::Plain(plain) => Socket::Tls(Arc::new(TlsSocket::new(plain, keys))),
            tls @ Socket::Tls(_) => tls,
        }
    }

    /// Another handle to the same connection.
    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Plain(s) => s.try_clone().map(Socket::Plain),
            Socket::Tls(s) => Ok(Socket::Tls(Arc::clone(s))),
        }
    }

    fn plain(&self) -> &PlainSocket {
        match self {
            Socket::Plain(s) => s,
            Socket::Tls(s) => &s.plain,
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.plain().peer()
    }

    /// Gives the reads and writes that follow time until then, all of them together as long as this is called before each;
    /// `None`: for ever.
    pub fn set_deadline(&self, until: Option<Instant>) -> io::Result<()> {
        match self {
            Socket::Plain(s) => s.set_deadline(until),
            Socket::Tls(s) => s.set_deadline(until),
        }
    }

    /// Ends one or both directions. A connection that is gone is no error.
    pub fn shutdown(&self, how: Shutdown) {
        self.plain().shutdown(how);
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
        match self {
            Socket::Plain(s) => s.read(buf),
            Socket::Tls(s) => s.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Plain(s) => s.write_vectored(bufs),
            Socket::Tls(s) => s.write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
