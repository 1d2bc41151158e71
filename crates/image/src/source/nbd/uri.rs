//! URIs of exports: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`.

use format::nbd::PORT;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A server that is silent for this long is given up.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, PartialEq, Eq)]
enum Address {
    Tcp(String, u16),
    Unix(String),
}

/// A server, and one of its exports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Uri {
    address: Address,
    /// The name of the export; empty for the default.
    pub export: String,
}

/// A connection to a server.
pub(super) trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}

impl Uri {
    /// Parses a URI; an error says what is wrong with it.
    pub fn parse(uri: &str) -> Result<Self, String> {
        if let Some(rest) = uri.strip_prefix("nbd+unix://") {
            let (export, query) = rest.split_once('?').unwrap_or((rest, ""));
            let mut sockets = query.split('&').filter_map(|p| p.strip_prefix("socket="));
            let socket = sockets.next().ok_or("names no socket; write nbd+unix:///EXPORT?socket=PATH")?;
            let Some(export) = export.strip_prefix('/') else {
                return Err("names a host before a socket; write nbd+unix:///EXPORT?socket=PATH".into());
            };
            return Ok(Uri { address: Address::Unix(decoded(socket)?), export: decoded(export)? });
        }
        let rest = uri.strip_prefix("nbd://").ok_or("is not the URI of an NBD export")?;
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
            Some((address, "")) => (address, None),
            Some((address, port)) => (address, port.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(h, p)| (h, Some(p))),
        };
        let port = match port {
            None => PORT,
            Some(p) => p.parse().map_err(|_| format!("{p:?} is not a port"))?,
        };
        if host.is_empty() {
            return Err("names no host; write nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH".into());
        }
        Ok(Uri { address: Address::Tcp(host.into(), port), export: decoded(export)? })
    }

    /// Connects, with a time limit on all that follows.
    pub fn connect(&self) -> io::Result<Box<dyn Socket>> {
        match &self.address {
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(socket))
            }
            Address::Tcp(host, port) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, PATIENCE) {
                        Ok(socket) => {
                            socket.set_nodelay(true)?;
                            socket.set_read_timeout(Some(PATIENCE))?;
                            socket.set_write_timeout(Some(PATIENCE))?;
                            return Ok(Box::new(socket));
                        }
                        Err(e) => last = e,
                    }
                }
                Err(last)
            }
        }
    }
}

/// Takes `%2F` and the like out.
fn decoded(text: &str) -> Result<String, String> {
    // The decoder would pass a malformed escape through unchanged.
    let is_escape = |rest: &str| rest.get(..2).is_some_and(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
    if !text.split('%').skip(1).all(is_escape) {
        return Err(format!("{text:?} has a % without two hexadecimal digits"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| format!("{text:?} is not UTF-8 once it is decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood() {
        let tcp = |host: &str, port, export: &str| Uri {
            address: Address::Tcp(host.into(), port),
            export: export.into(),
        };
        let unix =
            |path: &str, export: &str| Uri { address: Address::Unix(path.into()), export: export.into() };
        for (uri, wanted) in [
            ("nbd://host", tcp("host", 10809, "")),
            ("nbd://host/vda", tcp("host", 10809, "vda")),
            ("nbd://10.0.0.1:9000/a%2Fb", tcp("10.0.0.1", 9000, "a/b")),
            ("nbd://[::1]:10810/x", tcp("::1", 10810, "x")),
            ("nbd://[::1]/x", tcp("::1", 10809, "x")),
            ("nbd+unix:///vda?socket=/run/a.sock", unix("/run/a.sock", "vda")),
            ("nbd+unix:///?socket=/run/a%20b", unix("/run/a b", "")),
        ] {
            assert_eq!(Uri::parse(uri), Ok(wanted), "{uri}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for uri in [
            "nbd://",
            "nbd:///x",
            "nbd://h:x/",
            "nbd://h:70000/",
            "nbd+unix:///x",
            "nbd+unix://h/x?socket=/a",
            "nbd://h/%2",
            "nbd://h/%zz",
            "nbd://h/%ff",
            "http://h/",
        ] {
            assert!(Uri::parse(uri).is_err(), "{uri}");
        }
    }
}
