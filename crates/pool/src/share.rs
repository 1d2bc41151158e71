//! Background sharing (Paulo 2009, chapter 4): blocks that were written without looking for equal ones are looked at later.
//!
//! The fingerprint stores alone say what is left to look at: data blocks without a fingerprint. A [`Scanner`] passes over the
//! groups that have some. A block that two scans saw is cold: nothing was written over it in between, since a write
//! always takes a new block. It is hashed, and all slots of maps that name it name an equal block instead, if there is one.

mod leaf;
mod scanner;
mod scanning;
mod stats;

pub(crate) use leaf::Holder;
pub use scanner::ScanStep;
pub(crate) use scanner::{Scan, Scanner};
pub use scanning::Scanning;
pub(crate) use stats::ScanCounters;
pub use stats::ScanStats;
