//! Indexes: hints that lead from fingerprints to containers. Never trusted, never needed to restore.

mod popular;
mod prefixes;
mod segments;

pub use popular::{ChunksByContainer, PopularSet};
pub use prefixes::Prefixes;
pub use segments::{SegmentPlace, Segments};
