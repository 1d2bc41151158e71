//! Where chunks lie, and what finds them.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod filters;
mod limits;
mod placement;
mod popular;
mod references;
mod sharing;
