//! Reports on a vault: lists, statistics, maps, differences.

pub(crate) mod availability;
pub(crate) mod diff;
pub(crate) mod health;
pub(crate) mod layout;
pub(crate) mod listing;
pub(crate) mod map;
pub(crate) mod stats;
pub(crate) mod study;
pub(crate) mod verifications;
