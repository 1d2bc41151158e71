//! A lease on an object: its file is locked as long as the process lives.

use std::sync::Arc;

use super::temporary::Temporary;
use super::tree::{object_path, Tree};
use crate::file_system::FileSystem;
use crate::{Lease, Reserve, Result, StoreError};

/// A lease by the lock on the object's file.
pub(super) struct FileLease<F: FileSystem> {
    tree: Arc<Tree<F>>,
    name: String,
    file: Arc<F::File>,
    /// What its next value may use of the reserve.
    reserve: Reserve,
}

impl<F: FileSystem> FileLease<F> {
    /// Gives a temporary file, locked and durable, the object's name.
    pub fn publish(tree: &Arc<Tree<F>>, name: &str, temporary: Temporary<F>) -> Result<Self> {
        let reserve = temporary.reserve();
        let file = temporary.rename_new(name)?;
        // From here on a failure drops the lease, and that removes the file.
        let lease = Self { tree: Arc::clone(tree), name: name.to_owned(), file, reserve };
        tree.sync_parents(name)?;
        Ok(lease)
    }

    fn is_in_place(&self) -> bool {
        let fs = &self.tree.fs;
        match (fs.metadata(&self.file), fs.stat(&object_path(&self.name))) {
            (Ok(held), Ok(named)) => held.identity == named.identity,
            _ => false,
        }
    }
}

impl<F: FileSystem> Lease for FileLease<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn replace(&mut self, data: &[u8]) -> Result<()> {
        let (tree, name) = (&self.tree, self.name.as_str());
        tree.check_usable(name)?;
        let temporary =
            Temporary::leased(tree, data, self.reserve).map_err(|e| tree.error(name, "write", e))?;
        // Between the check and the rename nobody may remove it, or it would come back.
        let _lock = tree.lock(name)?;
        if !self.is_in_place() {
            return Err(StoreError::NotFound { object: name.to_owned() });
        }
        self.file = temporary.rename_over(name)?;
        tree.sync_parents(name)
    }

    fn is_valid(&self) -> bool {
        self.is_in_place()
    }
}

impl<F: FileSystem> Drop for FileLease<F> {
    fn drop(&mut self) {
        // Somebody may have removed the file and another one may have the name.
        if let Ok(_lock) = self.tree.lock(&self.name) {
            if self.is_in_place() && self.tree.fs.unlink(&object_path(&self.name)).is_ok() {
                // What a power cut brings back is an object that nobody holds.
                self.tree.descriptors.remove(&self.name);
            }
        }
    }
}
