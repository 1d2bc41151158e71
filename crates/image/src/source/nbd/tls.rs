//! TLS to a server, with certificates in files of the names that QEMU, nbdkit and libnbd give them.

use super::socket::Socket;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Who signs the certificates of servers.
const AUTHORITY: &str = "ca-cert.pem";
/// Certificates that it has taken back.
const REVOKED: &str = "ca-crl.pem";
/// The client's own certificate, if it has one, and those that it depends on.
const CERTIFICATE: &str = "client-cert.pem";
/// Its private key.
const KEY: &str = "client-key.pem";

/// With whom a client wants to speak by TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    /// Where the certificates are.
    pub directory: PathBuf,
    /// The name that the server's certificate must have.
    pub host: String,
}

impl Tls {
    /// Agrees with the server on keys.
    ///
    /// # Errors
    /// `InvalidInput` for a file that cannot be read or used, with its name.
    pub fn connect(&self, socket: Box<dyn Socket>) -> io::Result<Box<dyn Socket>> {
        let host = ServerName::try_from(self.host.clone());
        let host = host.map_err(|_| invalid(format!("{:?} is not the name of a host", self.host)))?;
        let tls = ClientConnection::new(Arc::new(self.config()?), host).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, socket);
        // What the server's certificate lacks is told here, not at the first request.
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        stream.flush()?;
        Ok(Box::new(stream))
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let wrong = |name: &str, why: &dyn std::fmt::Display| {
            invalid(format!("{}: {why}", self.directory.join(name).display()))
        };
        let certificates = |name: &str| {
            let all =
                CertificateDer::pem_file_iter(self.directory.join(name)).map_err(|e| wrong(name, &e))?;
            all.collect::<Result<Vec<_>, _>>().map_err(|e| wrong(name, &e))
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(AUTHORITY)? {
            roots.add(certificate).map_err(|e| wrong(AUTHORITY, &e))?;
        }
        if roots.is_empty() {
            return Err(wrong(AUTHORITY, &"there is no certificate in it"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let has_revoked = self.directory.join(REVOKED).symlink_metadata().is_ok();
        if has_revoked {
            let lists = CertificateRevocationListDer::pem_file_iter(self.directory.join(REVOKED));
            let lists = lists.and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let lists = lists.map_err(|e| wrong(REVOKED, &e))?;
            if lists.is_empty() {
                // Without a list nothing would be taken back.
                return Err(wrong(REVOKED, &"there is no list in it (PEM)"));
            }
            verifier = verifier.with_crls(lists).only_check_end_entity_revocation();
        }
        let of = if has_revoked { REVOKED } else { AUTHORITY };
        let verifier = verifier.build().map_err(|e| wrong(of, &e))?;
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&TLS13]).map_err(|e| wrong(AUTHORITY, &e))?;
        let builder = builder.with_webpki_verifier(verifier);
        if !self.directory.join(CERTIFICATE).try_exists()? {
            return Ok(builder.with_no_client_auth());
        }
        let key = PrivateKeyDer::from_pem_file(self.directory.join(KEY)).map_err(|e| wrong(KEY, &e))?;
        builder.with_client_auth_cert(certificates(CERTIFICATE)?, key).map_err(|e| wrong(KEY, &e))
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
