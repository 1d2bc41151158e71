//! Streams that stand by themselves, outside of vaults. All have a magic number, a version, and checksums of every part.

pub mod mtar;
pub mod mzip;
mod sealed;
