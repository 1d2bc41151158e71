//! What changed between two snapshots.

use std::ops::Range;

use format::pool::CatalogState;

use super::Pool;
use crate::error::{PoolError, Result};

/// A snapshot as others remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFacts {
    /// Tells it apart from all that are, were and will be, in any pool: `POOL/VOLUME-TIME`, the pool's id and the volume's in
    /// hexadecimal digits, and when it was made.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was made, in seconds since 1970.
    pub created: i64,
}

impl Pool {
    /// What is known of a snapshot.
    ///
    /// # Errors
    /// Refused where a volume has this name: it may be written at any moment.
    pub fn snapshot_facts(&self, name: &str) -> Result<SnapshotFacts> {
        let catalog = self.catalog.lock();
        let (_, entry) = catalog.get(name)?;
        if entry.state != CatalogState::Snapshot {
            return Err(PoolError::Refused(format!(
                "{name} is a volume, which may be written meanwhile: make a snapshot of it first"
            )));
        }
        Ok(SnapshotFacts {
            key: self.key_of(entry.id.0, entry.created),
            size: entry.size,
            created: entry.created,
        })
    }

    fn key_of(&self, volume: u32, created: i64) -> String {
        format!("{}/{volume:08x}-{created}", self.engine.id)
    }

    /// The ranges of bytes in which a snapshot may differ from the one with a key, in order, in steps of 2 MiB. `None` where
    /// that one is gone, or one of them was made before and the other after a change of the volume's size.
    ///
    /// Two maps are compared from their roots down, and what both have is passed over: the time depends on what changed.
    pub fn changed(&self, name: &str, since: &str) -> Result<Option<Vec<Range<u64>>>> {
        let (before, after) = {
            let catalog = self.catalog.lock();
            let is_it = |e: &&format::pool::CatalogEntry| {
                e.state == CatalogState::Snapshot && self.key_of(e.id.0, e.created) == since
            };
            let Some((index, before)) = catalog.entries().find(|(_, e)| is_it(e)) else { return Ok(None) };
            let (at, after) = catalog.get(name)?;
            // While they are open nobody can delete them, so no node of theirs becomes another's.
            (self.open_slot(&catalog, index, before)?, self.open_slot(&catalog, at, after)?)
        };
        if !after.is_read_only() {
            return Err(PoolError::Refused(format!("{name} is not a snapshot: make one of it first")));
        }
        after.differences(&before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FsDevice, Options};
    use format::pool::{Geometry, Sharing};
    use std::sync::Arc;
    use store::file_system::{Access, FileSystem};
    use store::SimFs;

    const LEAF: u64 = 2 << 20;

    fn pool() -> Arc<Pool> {
        let (fs, bytes) = (SimFs::new(1), 4000 * 4096);
        let file = fs.open("pool", Access::Create).unwrap();
        fs.set_len(&file, bytes).unwrap();
        let device = FsDevice::new(fs, file, bytes);
        Pool::create_with(&device, Geometry::plan_with(4000, 256, 128).unwrap()).unwrap();
        Pool::open(Box::new(device), Options::default()).unwrap()
    }

    #[test]
    fn only_leaves_that_changed_are_told() {
        let pool = pool();
        // Three levels of the map.
        let size = 4u64 << 30;
        pool.create_volume("v", size, Sharing::Inline).unwrap();
        let volume = pool.volume("v").unwrap();
        let write = |at: u64| volume.write_at(at, &[7; 4096]).unwrap();
        write(5);
        pool.snapshot("v", "a").unwrap();
        let key = pool.snapshot_facts("v@a").unwrap().key;
        pool.snapshot("v", "b").unwrap();
        assert_eq!(pool.changed("v@b", &key).unwrap(), Some(vec![]));
        write(3 * LEAF);
        write(4 * LEAF - 1);
        write(size - 4096);
        pool.snapshot("v", "c").unwrap();
        let told = pool.changed("v@c", &key).unwrap();
        assert_eq!(told, Some(vec![3 * LEAF..5 * LEAF, size - LEAF..size]));
        // The other way round as well.
        let later = pool.snapshot_facts("v@c").unwrap().key;
        assert_eq!(pool.changed("v@a", &later).unwrap(), told);
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        let pool = pool();
        pool.create_volume("v", 8 << 20, Sharing::Inline).unwrap();
        assert!(matches!(pool.snapshot_facts("v"), Err(PoolError::Refused(_))));
        pool.snapshot("v", "a").unwrap();
        let facts = pool.snapshot_facts("v@a").unwrap();
        assert_eq!(facts.size, 8 << 20);
        assert!(matches!(pool.changed("v", &facts.key), Err(PoolError::Refused(_))));
        pool.resize("v", 9 << 20).unwrap();
        pool.snapshot("v", "b").unwrap();
        assert_eq!(pool.changed("v@b", &facts.key).unwrap(), None, "another size");
        let gone = pool.snapshot_facts("v@b").unwrap().key;
        pool.delete("v@b").unwrap();
        assert_eq!(pool.changed("v@a", &gone).unwrap(), None, "it is gone");
        assert_eq!(pool.changed("v@a", "").unwrap(), None);
    }
}
