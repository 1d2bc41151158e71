//! Snapshots that are used without being restored first: over NBD, as a mount, and while they are restored.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod mount;
mod nbd;
mod restore;
mod restore_goes_on;
mod restore_refuses;
mod tls;
