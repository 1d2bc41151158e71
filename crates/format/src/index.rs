//! Indexes: hooks and the popular set lead from fingerprints to containers; they are hints, and hits are always checked.
//! The reference index leads from containers to recipes. Restores need no index.

mod hooks;
mod popular;
mod references;

pub use hooks::{Hook, HookRange, HooksFooter, HooksSum, HOOK_BYTES};
pub use popular::{ChunksByContainer, PopularChunk, PopularLayout, PopularSet};
pub use references::{BlockAt, ReferenceBlock, ReferenceEntry, ReferenceFooter};
