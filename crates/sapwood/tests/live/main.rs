//! Disks of machines that run: QEMU by its own protocol and libvirt, while they are written to, moved, and killed.
#![allow(clippy::unwrap_used)]

mod backup;
#[path = "../common/mod.rs"]
mod common;
mod in_use;
mod killed;
mod libvirt;
mod moved;
mod writes;
