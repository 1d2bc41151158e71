//! Pages of snapshots: each is two objects, as nothing else knows the times and tags of snapshots.

use crate::base::error::{Named, Result, VaultError};
use crate::base::threads::ahead;
use crate::manifest::folder::Folder;
use format::{names, Manifest, SnapshotPage, SnapshotPageRef, FRAME_HEADER_BYTES};
use std::sync::Arc;

/// The two objects of a page.
pub(crate) fn names_of(folder: &Folder, at: &SnapshotPageRef) -> [String; 2] {
    names::snapshot_page(&folder.path, at.writer, at.number)
}

impl Folder {
    /// All pages that a manifest names, in their order.
    pub fn snapshot_pages(&self, m: &Manifest) -> Result<Vec<Arc<SnapshotPage>>> {
        // They are kept, unless they are too many for that.
        ahead(&m.older, |at| drop(self.snapshot_page(at)));
        m.older.iter().map(|at| self.snapshot_page(at)).collect()
    }

    /// A page, from its second object where the first one is damaged.
    pub fn snapshot_page(&self, at: &SnapshotPageRef) -> Result<Arc<SnapshotPage>> {
        let key = (self.disk, *at);
        let known = self.snapshot_pages.lock().get(&key);
        if let Some(page) = known {
            return Ok(page);
        }
        let [first, copy] = names_of(self, at);
        let page = match self.read_snapshot_page(at, &first) {
            Err(e) if e.is_damage() || matches!(e, VaultError::Newer { .. }) => {
                self.read_snapshot_page(at, &copy).map_err(|_| e)
            }
            page => page,
        };
        let page = Arc::new(page?);
        self.keep_snapshot_page(at, &page);
        Ok(page)
    }

    /// Keeps a page in memory.
    pub fn keep_snapshot_page(&self, at: &SnapshotPageRef, page: &Arc<SnapshotPage>) {
        self.snapshot_pages.lock().insert((self.disk, *at), page.clone(), page.memory_bytes());
    }

    /// Reads one of a page's two objects, whatever is in memory.
    pub fn read_snapshot_page(&self, at: &SnapshotPageRef, object: &str) -> Result<SnapshotPage> {
        let bytes = self.store.read(object, FRAME_HEADER_BYTES as u64 + u64::from(at.bytes)).named()?;
        SnapshotPage::decode_as(at, self.context(object), &bytes).map_err(VaultError::malformed(object))
    }
}
