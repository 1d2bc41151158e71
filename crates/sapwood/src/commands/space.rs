//! Commands about the space that a vault takes.

pub mod availability;
pub mod gc;
pub mod map;
pub mod popular;
pub mod reindex;
pub mod stats;
pub mod study;
