//! TLS: a server proves by a certificate who it is, clients by theirs that they may connect, and nobody in between reads or
//! changes what they say.
//!
//! The files have the names that QEMU, libvirt, nbdkit and libnbd give them.

use super::plain_socket::PlainSocket;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The server's certificate, and those that it depends on.
const CERTIFICATE: &str = "server-cert.pem";
/// Its private key.
const KEY: &str = "server-key.pem";
/// Who signs certificates of clients.
const AUTHORITY: &str = "ca-cert.pem";
/// Certificates that it has taken back.
const REVOKED: &str = "ca-crl.pem";
/// How long a goodbye may take.
const GOODBYE_TIME: Duration = Duration::from_secs(1);
/// Bytes that are taken from the socket at once.
const TAKEN_BYTES: usize = 64 << 10;

/// What a server needs for TLS. Its clients can then only connect with TLS.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    knows_clients: bool,
}

impl Tls {
    /// Reads `server-cert.pem` and `server-key.pem` in a directory. If there is a `ca-cert.pem`, only clients may connect that
    /// have a certificate signed by it, which `ca-crl.pem` does not take back.
    ///
    /// # Errors
    /// A file that cannot be read or used, with its name.
    pub fn load(directory: &Path) -> io::Result<Tls> {
        let wrong = |name: &str, why: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {why}", directory.join(name).display()))
        };
        let certificates = |name: &str| {
            let all = CertificateDer::pem_file_iter(directory.join(name)).map_err(|e| wrong(name, &e))?;
            let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| wrong(name, &e))?;
            if all.is_empty() {
                return Err(wrong(name, &"there is no certificate in it"));
            }
            Ok(all)
        };
        let own = certificates(CERTIFICATE)?;
        let key = PrivateKeyDer::from_pem_file(directory.join(KEY)).map_err(|e| wrong(KEY, &e))?;
        // A link that leads nowhere is no permission for everybody.
        let is_there = |name: &str| directory.join(name).symlink_metadata().is_ok();
        let knows_clients = is_there(AUTHORITY);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        // TLS 1.2 must end a connection after 2^24 records.
        let builder = builder.with_protocol_versions(&[&TLS13]).map_err(|e| wrong(CERTIFICATE, &e))?;
        let builder = if knows_clients {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(AUTHORITY)? {
                roots.add(certificate).map_err(|e| wrong(AUTHORITY, &e))?;
            }
            let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            if is_there(REVOKED) {
                let lists = CertificateRevocationListDer::pem_file_iter(directory.join(REVOKED));
                let lists = lists.and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let lists = lists.map_err(|e| wrong(REVOKED, &e))?;
                if lists.is_empty() {
                    // Without a list nothing would be taken back.
                    return Err(wrong(REVOKED, &"there is no list in it (PEM)"));
                }
                verifier = verifier.with_crls(lists).only_check_end_entity_revocation();
            }
            let of = if is_there(REVOKED) { REVOKED } else { AUTHORITY };
            builder.with_client_cert_verifier(verifier.build().map_err(|e| wrong(of, &e))?)
        } else {
            builder.with_no_client_auth()
        };
        let config = builder.with_single_cert(own, key).map_err(|e| wrong(KEY, &e))?;
        Ok(Tls { config: Arc::new(config), knows_clients })
    }

    /// Whether clients must prove who they are.
    pub fn knows_clients(&self) -> bool {
        self.knows_clients
    }

    /// Agrees with a client on keys. `limited` is the same connection, with a deadline.
    pub(super) fn accept<S: Read + Write>(&self, limited: &mut S) -> io::Result<ServerConnection> {
        let mut tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(limited)?;
        }
        while tls.wants_write() {
            tls.write_tls(limited)?;
        }
        Ok(tls)
    }
}

/// A connection on which both sides have agreed on keys. One thread may read while others write.
pub(super) struct TlsSocket {
    pub plain: PlainSocket,
    /// When all that is under way must be done.
    until: Mutex<Option<Instant>>,
    tls: Mutex<ServerConnection>,
    /// Held while records are made and sent, in their order; taken before `tls`.
    sending: Mutex<Vec<u8>>,
    /// Held by the thread that reads.
    taken: Mutex<Taken>,
}

/// Bytes from the socket, some of which the connection does not take before the data in the others is read.
struct Taken {
    bytes: Vec<u8>,
    rest: Range<usize>,
}

impl TlsSocket {
    pub fn new(plain: PlainSocket, tls: ServerConnection) -> TlsSocket {
        let taken = Mutex::new(Taken { bytes: vec![0; TAKEN_BYTES], rest: 0..0 });
        TlsSocket { plain, until: Mutex::default(), tls: Mutex::new(tls), sending: Mutex::default(), taken }
    }

    /// Gives all reads and writes time until then; `None`: for ever.
    pub fn set_deadline(&self, until: Option<Instant>) -> io::Result<()> {
        *self.until.lock() = until;
        self.plain.set_deadline(until)
    }

    /// Before each wait for the socket: what a client sends now and then must not give it more time.
    fn keep_deadline(&self) -> io::Result<()> {
        let until = *self.until.lock();
        until.map_or(Ok(()), |until| self.plain.set_deadline(Some(until)))
    }

    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut taken = self.taken.lock();
        loop {
            match self.tls.lock().reader().read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // It left without a goodbye, as clients do that are killed.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            let Taken { bytes, rest } = &mut *taken;
            if Range::is_empty(rest) {
                self.keep_deadline()?;
                *rest = 0..self.plain.read(bytes)?;
            }
            let mut tls = self.tls.lock();
            // Where there is nothing, that is the end, and it is told.
            rest.start += tls.read_tls(&mut &bytes[rest.clone()])?;
            tls.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            let has_answers = tls.wants_write();
            drop(tls);
            if has_answers {
                self.send(|_| Ok(0))?;
            }
        }
    }

    pub fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(|tls| tls.writer().write_vectored(bufs))
    }

    /// Sends what `put` puts into the connection, and what waits there.
    fn send(&self, put: impl FnOnce(&mut ServerConnection) -> io::Result<usize>) -> io::Result<usize> {
        let mut records = self.sending.lock();
        records.clear();
        let mut tls = self.tls.lock();
        let n = put(&mut tls)?;
        while tls.wants_write() {
            tls.write_tls(&mut *records)?;
        }
        drop(tls);
        let mut rest = &records[..];
        while !rest.is_empty() {
            self.keep_deadline()?;
            match self.plain.write_vectored(&[IoSlice::new(rest)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(n)
    }
}

impl Drop for TlsSocket {
    /// Says goodbye, so that the client knows that nothing was cut off.
    fn drop(&mut self) {
        let _ = self.set_deadline(Some(Instant::now() + GOODBYE_TIME));
        let _ = self.send(|tls| {
            tls.send_close_notify();
            Ok(0)
        });
    }
}
