//! A server of NBD, the network block device protocol
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>).
//!
//! Fixed newstyle handshake, structured replies, block status (`base:allocation`, `qemu:dirty-bitmap:NAME`), several
//! connections to one device, TLS.
//!
//! Each connection has its own threads, which take turns at reading requests: a thread reads one, leaves the socket to
//! the next thread, carries the request out, and answers. There is no queue, and a slow request delays no other.

mod activity;
mod address;
mod connection;
mod handshake;
mod limits;
mod listener;
mod plain_socket;
mod reply;
mod server;
mod socket;
mod tls;

#[cfg(test)]
mod tests;

pub use address::{unix_uri, Address};
pub use limits::Limits;
pub use server::{Server, ServerOptions};
pub use tls::Tls;
