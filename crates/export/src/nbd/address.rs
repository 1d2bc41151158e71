//! Where a server listens.

use percent_encoding::{percent_encode, AsciiSet, NON_ALPHANUMERIC};
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// An address and a port; port 0 lets the system choose.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => f.write_str(&unix_uri("", path)),
            Address::Tcp(address) => write!(f, "nbd://{address}"),
        }
    }
}

impl Address {
    /// The URI of an export there, as clients understand it.
    pub fn uri(&self, export: &str, is_tls: bool) -> String {
        let plain = match self {
            Address::Unix(path) => unix_uri(export, path),
            Address::Tcp(_) if export.is_empty() => self.to_string(),
            Address::Tcp(_) => format!("{self}/{export}"),
        };
        if is_tls {
            plain.replacen("nbd", "nbds", 1)
        } else {
            plain
        }
    }
}

/// What stands in a URI as itself in a path; everything else is percent-encoded.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The URI of an export behind a Unix socket.
pub fn unix_uri(export: &str, socket: &Path) -> String {
    let socket = percent_encode(socket.as_os_str().as_bytes(), PATH);
    format!("nbd+unix:///{export}?socket={socket}")
}
