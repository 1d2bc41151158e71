//! What others do between the calls of an operation, and what dead ones have left.
#![allow(clippy::unwrap_used)]

#[path = "../between/mod.rs"]
mod between;
mod leases;
mod names;
mod owners;
mod rollback;
#[path = "../sim/mod.rs"]
mod sim;
