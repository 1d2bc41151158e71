//! The objects that lead from a name to a folder.

use crate::base::error::{Named, Result, VaultError};
use crate::manifest::folder::Folder;
use crate::manifest::vault::Vault;
use format::{decode_frame, encode_frame, names, Context, DiskId, Kind};
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
    let body = decode_frame(Kind::Name, context, &bytes).map_err(VaultError::malformed(object))?;
    let wrong = || VaultError::corrupt(object, "does not name a disk");
    let (id, name) = body.split_first_chunk::<16>().ok_or_else(wrong)?;
    let name = String::from_utf8(name.to_vec()).map_err(|_| wrong())?;
    Ok(Some((name, DiskId(*id))))
}

impl Vault {
    pub(crate) fn read_name(&self, object: &str) -> Result<Option<(String, DiskId)>> {
        read_name(&*self.store, self.context(object), object)
    }

    /// Puts the object that leads from a name to a folder, unless there is one. Returns whether it was put.
    pub(crate) fn put_name(&self, name: &str, folder: &Folder) -> Result<bool> {
        let object = names::name(name);
        let mut body = folder.disk.0.to_vec();
        body.extend_from_slice(name.as_bytes());
        let frame = encode_frame(Kind::Name, self.context(&object), &body);
        match self.store.put(&object, &[&frame]) {
            Ok(()) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}
