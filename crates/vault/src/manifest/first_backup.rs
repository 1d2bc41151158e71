//! Creates a disk for its first backup.

use crate::base::error::{Result, VaultError};
use crate::base::random::random_bytes;
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::session::lease_session;
use crate::manifest::vault::Vault;
use format::{DiskId, Manifest};
use store::StoreError;

impl Vault {
    /// The folder of a disk, made if it is new.
    pub(crate) fn disk_or_new(&self, name: &str) -> Result<Folder> {
        if let Some(at) = disks::find(self, name)? {
            return Ok(at.folder);
        }
        let folder = self.folder(DiskId(random_bytes()?));
        // Held while the folder has no name yet, so that `gc` lets it be.
        let (token, lease) = lease_session(&folder, "first backup")?;
        let mut manifest = Manifest::new(folder.disk, name);
        manifest.writers.push(format::Writer {
            no: format::WriterNo::BEFORE_ALL,
            token,
            kind: format::WriterKind::Maintenance,
            parent: None,
            since: format::Sequence::FIRST,
        });
        folder.create(&manifest)?;
        match self.put_name(name, &folder) {
            Ok(true) => {}
            // Another process was faster: its folder counts, unless that backup fails and takes it away.
            Ok(false) => {
                folder.remove()?;
                drop(lease);
                self.free_name(name)?;
                return self.disk_or_new(name);
            }
            Err(e) => {
                // Unless it cannot be told whether the name is there: then `gc` looks.
                if matches!(e, VaultError::Store(StoreError::Full { .. } | StoreError::Unwritable { .. })) {
                    let _ = folder.remove();
                }
                return Err(e);
            }
        }
        let made = folder.update(|m| {
            m.writers.retain(|w| w.token != token);
            Ok(())
        });
        drop(lease);
        made.map(|_| folder)
    }
}
