//! Commands of files that stand by themselves, outside of vaults.

pub mod mtar;
pub mod mzip;
mod stop;

mod claim;
mod each;
mod input;
mod output;
