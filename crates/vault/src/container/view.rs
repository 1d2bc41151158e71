//! A consistent view of one disk: its manifest, its own containers and the shared ones.

use crate::base::error::{Result, VaultError};
use crate::container::tables::Tables;
use crate::manifest::container_table::Containers;
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::reader::Reader;
use crate::manifest::vault::Vault;
use format::Manifest;
use std::sync::Arc;

/// How often a reading is begun anew because the disk changed meanwhile.
const VIEW_TRIES: usize = 1000;

/// A consistent reading of one disk.
pub(crate) struct View {
    pub folder: Folder,
    pub manifest: Arc<Manifest>,
    pub tables: Tables,
    reader: Reader,
    /// The folder of the shared set, and its reader.
    shared: Option<(Folder, Reader)>,
}

impl View {
    /// Stops where the lease has lapsed.
    pub fn check(&self) -> Result<()> {
        self.reader.check()
    }

    /// What an error of reading it means: where its readers are not held and a manifest has changed, somebody has
    /// deleted what was being read.
    pub fn explain(&self, e: VaultError) -> VaultError {
        match e {
            VaultError::Missing { object } | VaultError::Corrupt { object, .. } if self.may_have_lost() => {
                VaultError::Gone { object }
            }
            e => e,
        }
    }

    /// Whether what is missing or wrong may have been deleted while it was read.
    pub fn may_have_lost(&self) -> bool {
        let has_changed = |folder: &Folder, reader: &Reader| {
            !reader.is_held() && folder.load().map_or(true, |m| m.sequence != reader.manifest.sequence)
        };
        let shared = self.shared.as_ref().is_some_and(|(folder, reader)| has_changed(folder, reader));
        shared || has_changed(&self.folder, &self.reader)
    }
}

impl Vault {
    /// [`Vault::view`] of the disk of a name.
    pub(crate) fn view_of(&self, disk: &str, table_bytes: usize) -> Result<View> {
        disks::begin_on(self, disk, |at| self.view(&at.folder, table_bytes))
    }

    /// Reads a disk as it is now, and keeps what it reads from being removed.
    ///
    /// The manifest of the shared set is read while that of the disk does not change: both are of one instant, so
    /// nothing that the one references has left the other.
    pub(crate) fn view(&self, folder: &Folder, table_bytes: usize) -> Result<View> {
        for _ in 0..VIEW_TRIES {
            let reader = Reader::open(folder)?;
            let manifest = reader.manifest.clone();
            let own = Containers::new(folder.clone(), &manifest);
            let (tables, shared_reader) = self.tables(own, true, table_bytes)?;
            if shared_reader.is_none() || folder.load()?.sequence == manifest.sequence {
                let folder = folder.clone();
                let shared = shared_reader.map(|reader| (self.shared(), reader));
                return Ok(View { folder, manifest, tables, reader, shared });
            }
        }
        Err(VaultError::Refused(format!("{}: changes all the time; run it again", folder.manifest_name())))
    }

    /// Tables of a disk's own containers and of the shared ones. A damaged shared manifest is told to those only who
    /// need it.
    pub(crate) fn tables(
        &self,
        own: Containers,
        hold: bool,
        bytes: usize,
    ) -> Result<(Tables, Option<Reader>)> {
        match self.shared_containers(hold) {
            Ok((shared, reader)) => Ok((Tables::new(own, shared, bytes), reader)),
            Err(VaultError::Corrupt { why, .. }) => {
                Ok((Tables::new(own, None, bytes).with_shared_fault(why, false), None))
            }
            Err(VaultError::Newer { why, .. }) => {
                Ok((Tables::new(own, None, bytes).with_shared_fault(why, true), None))
            }
            // Gone between two looks at it.
            Err(VaultError::Missing { .. }) => Ok((Tables::new(own, None, bytes), None)),
            Err(e) => Err(e),
        }
    }

    /// The container table of the shared set, if there is one.
    pub(crate) fn shared_containers(&self, hold: bool) -> Result<(Option<Containers>, Option<Reader>)> {
        let shared = self.shared();
        let Some((m, _)) = shared.load_tagged()? else { return Ok((None, None)) };
        if !hold {
            return Ok((Some(Containers::new(shared, &m)), None));
        }
        let reader = Reader::open(&shared)?;
        Ok((Some(Containers::new(shared, &reader.manifest)), Some(reader)))
    }
}
