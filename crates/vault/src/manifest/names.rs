//! Name objects: they point from a disk's name to its folder.

use crate::base::error::{Named, Result, UnlessDamaged, VaultError};
use crate::manifest::folder::Folder;
use crate::manifest::vault::Vault;
use format::{names, Context, DiskId, NameRecord};
use store::{ObjectStore, StoreError};

/// The disk that a name leads to, as its object says; `None` where there is no such object.
pub(crate) fn read_name(
    store: &dyn ObjectStore,
    context: Context<'_>,
    object: &str,
) -> Result<Option<(String, DiskId)>> {
    let bytes = match store.read(object, 1 << 16) {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        other => other.named()?,
    };
    let NameRecord { disk, name } =
        NameRecord::decode(context, &bytes).map_err(VaultError::malformed(object))?;
    Ok(Some((name, disk)))
}

/// Deletes the objects of names that lead to this folder.
pub(crate) fn delete_names(folder: &Folder, all: &[String]) -> Result<()> {
    for name in all {
        let object = names::name(name);
        let read = read_name(&*folder.store, folder.context(&object), &object).unless_damaged()?;
        // Where another folder has it, or nobody can tell, that is found where names are looked at.
        if read.flatten().is_some_and(|(_, disk)| disk == folder.disk) {
            folder.store.delete(&object)?;
        }
    }
    Ok(())
}

impl Vault {
    pub(crate) fn read_name(&self, object: &str) -> Result<Option<(String, DiskId)>> {
        read_name(&*self.store, self.context(object), object)
    }

    /// Puts the object that leads from a name to a folder, unless there is one. Returns whether it was put.
    pub(crate) fn put_name(&self, name: &str, folder: &Folder) -> Result<bool> {
        let object = names::name(name);
        let frame = NameRecord { disk: folder.disk, name: name.to_owned() }.encode(self.context(&object));
        match self.store.put(&object, &[&frame]) {
            Ok(()) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}
