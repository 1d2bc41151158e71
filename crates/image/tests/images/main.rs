//! Images of all formats: read, written, damaged.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod content;
mod damage;
mod in_place;
mod qcow2;
mod raw;
mod target;
mod vmdk;
