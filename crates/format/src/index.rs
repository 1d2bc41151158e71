//! Indexes: hints from fingerprints to containers. Hits are always checked, and restores need no index.

mod popular;
mod prefixes;
mod segments;

pub use popular::{ChunksByContainer, PopularSet};
pub use prefixes::Prefixes;
pub use segments::{SegmentPlace, Segments};
