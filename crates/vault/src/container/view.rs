//! A consistent view of one disk: its manifest, its own containers, and those of other owners that it references.

use crate::base::error::{Result, VaultError};
use crate::base::snapshot_spec::{find_recent, find_snapshot};
use crate::container::tables::{Cache, Tables};
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::reader::Reader;
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::Vault;
use format::{Manifest, SnapId, SnapshotEntry};
use std::sync::{Arc, OnceLock};

/// A consistent reading of one disk.
pub(crate) struct View {
    pub folder: Folder,
    /// With the recent snapshots only.
    pub manifest: Arc<Manifest>,
    /// With all of them, once somebody needs them.
    whole: OnceLock<Arc<Whole>>,
    pub tables: Tables,
    reader: Reader,
}

impl View {
    /// Takes an equal manifest in place of its own.
    pub fn share_manifest(&mut self, same: &Arc<Manifest>) {
        self.manifest = same.clone();
        self.reader.manifest = same.clone();
    }

    /// The manifest with all snapshots.
    pub fn whole(&self) -> Result<&Whole> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole);
        }
        let whole = Arc::new(self.folder.whole(self.manifest.clone())?);
        Ok(self.whole.get_or_init(|| whole))
    }

    /// The snapshot that `spec` names. No page of snapshots is read where it is surely a recent one.
    pub fn find(&self, disk: &str, spec: &str) -> Result<&SnapshotEntry> {
        let older = self.manifest.older.iter().map(|at| at.latest).max();
        match find_recent(&self.manifest.recent, older, spec) {
            Some(recent) => Ok(recent),
            None => find_snapshot(&self.whole()?.snapshots, disk, spec),
        }
    }

    /// Forgets the list of all snapshots: it may be long.
    pub fn forget_whole(&mut self) {
        self.whole = OnceLock::new();
    }

    /// Snapshots of which one is that of `id`, and all newer ones.
    pub fn with_newer(&self, id: SnapId) -> Result<&[SnapshotEntry]> {
        let recent = &self.manifest.recent;
        if recent.iter().any(|s| s.id == id) {
            return Ok(recent);
        }
        Ok(&self.whole()?.snapshots)
    }

    /// Stops where a lease has lapsed.
    pub fn check(&self) -> Result<()> {
        self.reader.check()?;
        self.tables.check()
    }

    /// What an error of reading it means: where its readers are not held and a manifest has changed, somebody has
    /// deleted what was being read. Else damage is remembered, until it is recorded ([`Vault::record_damage_met`]).
    pub fn explain(&self, e: VaultError) -> VaultError {
        match e {
            VaultError::Missing { object } | VaultError::Corrupt { object, .. } if self.may_have_lost() => {
                VaultError::Gone { object }
            }
            e => {
                self.folder.damage_met.note(self.folder.disk, &e);
                e
            }
        }
    }

    /// Whether what is read of the disk is kept until this is dropped.
    pub fn is_leased(&self) -> bool {
        self.reader.is_leased()
    }

    /// Whether what is missing or wrong may have been deleted while it was read.
    pub fn may_have_lost(&self) -> bool {
        let has_changed =
            || self.folder.load_root().map_or(true, |m| m.sequence != self.reader.manifest.sequence);
        let own = !self.reader.is_leased() && has_changed();
        own || self.tables.may_have_lost()
    }
}

impl Vault {
    /// [`Vault::view`] of the disk of a name.
    pub(crate) fn view_of(&self, disk: &str, table_bytes: usize) -> Result<View> {
        self.view_of_with(disk, &Cache::new(table_bytes))
    }

    /// The same with tables that may have been read before.
    pub(crate) fn view_of_with(&self, disk: &str, cache: &Cache) -> Result<View> {
        disks::begin_on(self, disk, |at| self.view_with(&at.folder, cache.clone()))
    }

    /// Reads a disk as it is now, and keeps what it reads from being removed.
    ///
    /// What its snapshots reference of other owners stays, too: what a manifest gives up of another owner is given back
    /// only when no older reader lives ([`format::Release::Foreign`]).
    pub(crate) fn view(&self, folder: &Folder, table_bytes: usize) -> Result<View> {
        self.view_with(folder, Cache::new(table_bytes))
    }

    /// The same with tables that were read before.
    pub(crate) fn view_with(&self, folder: &Folder, cache: Cache) -> Result<View> {
        let reader = Reader::open(folder)?;
        let manifest = reader.manifest.clone();
        let tables = Tables::with_cache(folder, &manifest, true, cache);
        Ok(View { folder: folder.clone(), manifest, whole: OnceLock::new(), tables, reader })
    }
}
