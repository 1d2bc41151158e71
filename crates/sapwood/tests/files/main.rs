//! `sapwood files` on real file systems: everything that comes out is compared with what the kernel shows.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod diff;
mod disks;
#[path = "../../../filesystem/tests/common/ext_tree.rs"]
mod ext_tree;
mod extract;
mod hostile;
mod list;
mod lost;
mod nasty;
mod tree;
mod volumes;
