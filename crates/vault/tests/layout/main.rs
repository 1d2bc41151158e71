//! Where chunks lie, and what finds them.
#![allow(clippy::unwrap_used)]

#[path = "../between/mod.rs"]
mod between;
#[path = "../common/mod.rs"]
mod common;
mod data_objects;
mod filters;
mod limits;
mod placement;
mod popular;
mod rebuilt_entries;
mod recompress;
mod references;
mod requests;
mod sharing;
