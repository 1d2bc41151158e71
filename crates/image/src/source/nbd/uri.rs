//! URIs of exports: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, and `nbds…` with TLS
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>).

use super::socket::Socket;
use super::tls::Tls;
use format::nbd::PORT;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::io;
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
    /// How to use TLS, where that is wanted.
    pub tls: Option<Tls>,
}

/// What URIs begin with, and whether that means TLS.
pub(super) const SCHEMES: [(&str, bool); 4] =
    [("nbd://", false), ("nbd+unix://", false), ("nbds://", true), ("nbds+unix://", true)];

impl Uri {
    /// Parses a URI; an error says what is wrong with it.
    pub fn parse(uri: &str) -> Result<Self, String> {
        let scheme =
            SCHEMES.iter().find_map(|(scheme, tls)| Some((*scheme, *tls, uri.strip_prefix(scheme)?)));
        let (scheme, is_tls, rest) = scheme.ok_or("is not the URI of an NBD export")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let asked = |name: &str| {
            let values = query.split('&').filter_map(|p| p.split_once('='));
            values.filter(|(n, _)| *n == name).map(|(_, value)| decoded(value)).next().transpose()
        };
        let (address, export) = if scheme.contains("+unix") {
            let socket = asked("socket")?.ok_or("names no socket; write nbd+unix:///EXPORT?socket=PATH")?;
            let Some(export) = place.strip_prefix('/') else {
                return Err("names a host before a socket; write nbd+unix:///EXPORT?socket=PATH".into());
            };
            (Address::Unix(socket), decoded(export)?)
        } else {
            // Names of exports without TLS were always taken to the end, with any question mark in them.
            let (host, export) = if is_tls { place } else { rest }.split_once('/').unwrap_or((place, ""));
            (host_and_port(host)?, decoded(export)?)
        };
        let tls = match (is_tls, asked("tls-certificates")?) {
            (false, _) => None,
            (true, None) => {
                return Err("names no certificates; write nbds://HOST/EXPORT?tls-certificates=DIRECTORY, with ca-cert.pem, and \
                            client-cert.pem and client-key.pem where the server wants them"
                    .into())
            }
            (true, Some(directory)) => {
                let host = match (asked("tls-hostname")?, &address) {
                    (Some(host), _) => host,
                    (None, Address::Tcp(host, _)) => host.clone(),
                    (None, Address::Unix(_)) => "localhost".into(),
                };
                Some(Tls { directory: directory.into(), host })
            }
        };
        Ok(Uri { address, export, tls })
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

fn host_and_port(host: &str) -> Result<Address, String> {
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
    Ok(Address::Tcp(host.into(), port))
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
            tls: None,
        };
        let unix = |path: &str, export: &str| Uri {
            address: Address::Unix(path.into()),
            export: export.into(),
            tls: None,
        };
        let tls = |uri: Uri, directory: &str, host: &str| Uri {
            tls: Some(Tls { directory: directory.into(), host: host.into() }),
            ..uri
        };
        for (uri, wanted) in [
            ("nbd://host", tcp("host", 10809, "")),
            ("nbd://host/vda", tcp("host", 10809, "vda")),
            ("nbd://10.0.0.1:9000/a%2Fb", tcp("10.0.0.1", 9000, "a/b")),
            ("nbd://[::1]:10810/x", tcp("::1", 10810, "x")),
            ("nbd://[::1]/x", tcp("::1", 10809, "x")),
            ("nbd+unix:///vda?socket=/run/a.sock", unix("/run/a.sock", "vda")),
            ("nbd+unix:///?socket=/run/a%20b", unix("/run/a b", "")),
            ("nbd://host/a?b", tcp("host", 10809, "a?b")),
            ("nbds://host:1/vda?tls-certificates=/etc/a%20b", tls(tcp("host", 1, "vda"), "/etc/a b", "host")),
            ("nbds://[::1]?tls-hostname=h&tls-certificates=c", tls(tcp("::1", 10809, ""), "c", "h")),
            ("nbds+unix:///x?socket=/s&tls-certificates=c", tls(unix("/s", "x"), "c", "localhost")),
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
            "nbds://h/x",
            "nbds+unix:///x?tls-certificates=c",
            "nbds://h/x?tls-certificates=%zz",
            "nbd://h/%zz",
            "nbd://h/%ff",
            "http://h/",
        ] {
            assert!(Uri::parse(uri).is_err(), "{uri}");
        }
    }
}
