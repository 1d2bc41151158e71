//! Indexes: hints from fingerprints to containers. Hits are always checked, and restores need no index.

mod hooks;
mod popular;

pub use hooks::{Hook, HookRange, HooksFooter, HOOK_BYTES};
pub use popular::{ChunksByContainer, PopularSet};
