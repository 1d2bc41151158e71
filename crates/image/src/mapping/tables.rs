//! The most recently used mapping tables of an image, within a budget: memory stays bounded however large the disk is.

use quick_cache::unsync::Cache;
use quick_cache::Weighter;
use std::sync::Arc;

use crate::error::{Blame, Result};

/// The most that the top-level tables of one image may take; QEMU has the same bound.
pub(crate) const MAX_TOP_TABLE_BYTES: u64 = 32 << 20;

/// Memory for the top-level tables of all the images and extents that one disk consists of.
#[derive(Debug)]
pub(crate) struct TableBudget {
    bytes_left: u64,
}

impl Default for TableBudget {
    fn default() -> Self {
        Self { bytes_left: 2 * MAX_TOP_TABLE_BYTES }
    }
}

impl TableBudget {
    /// Takes `bytes` for good.
    pub fn charge(&mut self, bytes: u64, blame: &Blame) -> Result<()> {
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| blame.unsupported("a disk whose mapping tables are this large together", None))?;
        Ok(())
    }
}

/// The bytes that a cache counts for a table: its own.
#[derive(Debug, Clone)]
struct TableBytes;

impl Weighter<u64, Arc<[u8]>> for TableBytes {
    fn weight(&self, _: &u64, table: &Arc<[u8]>) -> u64 {
        table.len() as u64
    }
}

/// Tables by their place.
#[derive(Debug)]
pub(crate) struct TableCache {
    tables: Cache<u64, Arc<[u8]>, TableBytes>,
}

impl TableCache {
    /// A cache of `max_bytes` for tables of `table_bytes` each.
    pub fn new(max_bytes: usize, table_bytes: usize) -> Self {
        let tables = (max_bytes / table_bytes.max(1)).max(1);
        Self { tables: Cache::with_weighter(tables, max_bytes as u64, TableBytes) }
    }

    /// The table `key` of `len` bytes, which `load` fills when it is not there.
    pub fn get(
        &mut self,
        key: u64,
        len: usize,
        load: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Arc<[u8]>> {
        if let Some(table) = self.tables.get(&key) {
            return Ok(table.clone());
        }
        let mut bytes = vec![0; len];
        load(&mut bytes)?;
        let table: Arc<[u8]> = bytes.into();
        self.tables.insert(key, table.clone());
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::TableCache;

    #[test]
    fn keeps_tables_within_its_budget() {
        let mut cache = TableCache::new(100, 10);
        let mut loads = 0;
        for key in (0..1000).flat_map(|n| [n, n % 3]) {
            let table = cache
                .get(key, 10, |bytes| {
                    loads += 1;
                    bytes.fill(key as u8);
                    Ok(())
                })
                .unwrap();
            assert_eq!(*table, [key as u8; 10]);
            assert!(cache.tables.weight() <= 100);
        }
        // Those that are used again and again stay; the others are read once each.
        assert!(loads < 1100, "{loads}");
        // One that is larger than the budget is still served.
        assert_eq!(cache.get(5000, 1000, |_| Ok(())).unwrap().len(), 1000);
        assert!(cache.tables.weight() <= 100);
    }
}
