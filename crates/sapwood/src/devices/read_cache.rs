//! Memory for decompressed data, of commands that read snapshots at random.

use std::sync::Arc;
use vault::ReadCache;

/// Without `--cache`. Beside it a [`ReadCache`] takes 152 MiB at most (`docs/flows/read-a-snapshot.md`): with all of it
/// full, the process stays below 256 MiB.
const CACHE_BYTES: u64 = 64 << 20;

/// A cache of the size that was asked for.
pub fn read_cache(asked: Option<u64>) -> Arc<ReadCache> {
    ReadCache::new(asked.unwrap_or(CACHE_BYTES))
}
