//! Every format as it is documented, byte for byte.
#![allow(clippy::unwrap_used)]

mod mtar;
mod mzip;
mod pool;
#[path = "../samples/mod.rs"]
mod samples;
mod vault;
