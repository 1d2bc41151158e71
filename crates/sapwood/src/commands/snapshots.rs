//! Commands that list and copy snapshots, and decide which stay.

pub mod copy;
pub mod delete;
pub mod hold;
pub mod list;
pub mod pattern;
pub mod remove;
pub mod rename;
pub mod retain;
pub mod tag;
