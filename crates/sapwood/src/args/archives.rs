//! Commands of files that stand by themselves, outside of vaults.

mod mtar;
mod mzip;

pub use mtar::MtarWhat;
pub use mzip::{with_levels_spelled_out, Manners, Munzip, Mzip};
