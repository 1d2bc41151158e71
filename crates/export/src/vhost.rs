//! A server of vhost-user-blk: disks for virtual machines on the same host
//! (<https://qemu-project.gitlab.io/qemu/interop/vhost-user.html>, virtio 1.2, sections 2.7 and 5.2).
//!
//! The virtual machine shares its memory with the server, and queues its requests there: a request and its data cross no
//! socket, and QEMU has no part in them. Each disk has a Unix socket of its own, at which one client at a time says where
//! its memory and its queues are.
//!
//! Each client has its own threads, which take turns at the queues: a thread takes a request, leaves the queues to the
//! next thread, and carries the request out. A slow request delays no other. Data is copied out of and into the
//! guest's memory, never used in place: the guest may change it at any time.
//!
//! Who may connect is trusted as far as the guest's memory goes: a client that shortens the file of its memory while it is
//! in use ends the server. The sockets are their owner's only.

mod block;
mod config;
mod memory;
mod permission;
mod ring;
mod rings;
mod server;
mod session;

#[cfg(test)]
mod tests;

pub use server::{Server, ServerOptions};
