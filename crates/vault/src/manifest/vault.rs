//! The vault: opening it, its disks and their snapshots.

use crate::base::error::{DamageMet, Fault, Result, VaultError};
use crate::base::lru::{Lru, SharedLru};
use crate::base::policy::Policy;
use crate::base::random::random_bytes;
use crate::manifest::folder::Folder;
use crate::manifest::listing::{for_each_name, has_objects};
use crate::manifest::rollback::Evidence;
use crate::manifest::vault_file;
use format::{
    names, ContainerPage, Context, DiskId, Manifest, PageRef, SnapshotPage, SnapshotPageRef, VaultFile,
    VaultId,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{ObjectStore, Reserve, StoreError};

/// How long maintenance waits for other maintenance of the same disk.
const PATIENCE: Duration = Duration::from_secs(120);

/// Most snapshots that a manifest keeps beside its pages: half of them move into a page then.
const RECENT_MAX: usize = 32;

/// Memory for what a verification knows of containers, in bytes.
const FINDINGS_BYTES: usize = 32 << 20;
/// Memory for pages of snapshots that were read last: some 60,000 snapshots.
const SNAPSHOT_PAGES_BYTES: usize = 16 << 20;
/// Memory for pages of container tables that were read last: 256 full ones, of 65,536 containers, 4 TiB of chunks.
const CONTAINER_PAGES_BYTES: usize = 4 << 20;

/// Snapshot storage on a store.
pub struct Vault {
    pub(crate) store: Arc<dyn ObjectStore>,
    file: VaultFile,
    /// What is wrong with `vault.json`, where its copy was read.
    file_fault: Option<Fault>,
    patience: Duration,
    recent_max: usize,
    /// Memory for what a verification knows of containers, in bytes, but for what one container more takes.
    pub(crate) findings_bytes: usize,
    snapshot_pages: SharedLru<(DiskId, SnapshotPageRef), Arc<SnapshotPage>>,
    container_pages: SharedLru<(DiskId, PageRef), Arc<ContainerPage>>,
    pub(crate) damage_met: Arc<DamageMet>,
}

/// Seconds since 1970.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

impl Vault {
    /// Makes a vault on an empty store. One that has disks has lost its `vault.json`: a new one would not fit them.
    pub fn init(store: Arc<dyn ObjectStore>, policy: &Policy) -> Result<Vault> {
        if store.len(names::VAULT).is_err() && vault_file::has_disks(&*store)? {
            return Err(VaultError::Missing { object: names::VAULT.into() });
        }
        let file = VaultFile {
            id: VaultId(random_bytes()?),
            policy: policy.name.into(),
            isolated: policy.isolated,
            created: now(),
        };
        match store.put(names::VAULT, &[&file.encode()]) {
            Ok(()) => {}
            Err(StoreError::AlreadyExists { .. }) => {
                return Err(VaultError::Refused(format!("{}: there is a vault already", store.location())));
            }
            Err(e) => return Err(e.into()),
        }
        // The copy; `repair` puts it where this is stopped before. One that is there is of a vault that was removed.
        vault_file::put_again(&*store, &file)?;
        Ok(Vault::of(store, file, None))
    }

    /// Opens the vault on a store. Where `vault.json` is lost or damaged, its copy serves ([`Vault::file_fault`]).
    pub fn open(store: Arc<dyn ObjectStore>) -> Result<Vault> {
        let (file, file_fault) = vault_file::read(&*store)?;
        Ok(Vault::of(store, file, file_fault))
    }

    fn of(store: Arc<dyn ObjectStore>, file: VaultFile, file_fault: Option<Fault>) -> Vault {
        let snapshot_pages = Arc::new(Mutex::new(Lru::new(SNAPSHOT_PAGES_BYTES)));
        Vault {
            store,
            file,
            file_fault,
            patience: PATIENCE,
            recent_max: RECENT_MAX,
            findings_bytes: FINDINGS_BYTES,
            snapshot_pages,
            container_pages: Arc::new(Mutex::new(Lru::new(CONTAINER_PAGES_BYTES))),
            damage_met: Arc::default(),
        }
    }

    /// The same, whose manifests keep another number of snapshots beside their pages.
    pub fn with_recent_max(self, recent_max: usize) -> Vault {
        Vault { recent_max, ..self }
    }

    /// The same, whose verifications keep about so many bytes of what they know of containers.
    pub fn with_findings_bytes(self, findings_bytes: usize) -> Vault {
        Vault { findings_bytes, ..self }
    }

    /// The same, with another time that maintenance (deletion, collection) waits for other maintenance of a disk.
    pub fn with_patience(self, patience: Duration) -> Vault {
        Vault { patience, ..self }
    }

    /// What is wrong with `vault.json`, where the vault was opened by its copy.
    pub fn file_fault(&self) -> Option<&str> {
        self.file_fault.as_ref().map(|(_, why)| why.as_str())
    }

    /// What is wrong with `vault.json` and its copy as they are now.
    pub(crate) fn file_faults(&self) -> Result<Vec<Fault>> {
        vault_file::faults(&*self.store, &self.file)
    }

    /// Puts what is damaged of both again.
    pub(crate) fn repair_file(&self) -> Result<()> {
        vault_file::put_again(&*self.store, &self.file)
    }

    /// Makes `vault.json` and its copy anew where neither can be read, by what the other objects say. Returns whether it
    /// was necessary.
    ///
    /// # Errors
    /// `Description` where the vault's id cannot be known.
    pub fn recover_file(store: &dyn ObjectStore) -> Result<bool> {
        vault_file::recover(store)
    }

    /// Its id.
    pub fn id(&self) -> VaultId {
        self.file.id
    }

    /// Whether backups take nothing from other disks but the popular set, unless they are told otherwise.
    pub fn is_isolated(&self) -> bool {
        self.file.isolated
    }

    /// The policy of backups that do not name one.
    pub fn policy(&self) -> Result<Policy> {
        let policy = Policy::by_name(&self.file.policy).map_err(|e| {
            let why = format!("{e}; give --policy, or use a newer program");
            VaultError::Newer { object: names::VAULT.into(), why }
        })?;
        Ok(if self.file.isolated { policy.isolated() } else { policy })
    }

    /// Where it is.
    pub fn location(&self) -> String {
        self.store.location()
    }

    pub(crate) fn context<'a>(&self, place: &'a str) -> Context<'a> {
        Context { vault: self.file.id, place }
    }

    pub(crate) fn folder(&self, id: DiskId) -> Folder {
        Folder {
            store: self.store.clone(),
            vault: self.file.id,
            disk: id,
            path: names::folder(id),
            patience: self.patience,
            reserve: Reserve::None,
            recent_max: self.recent_max,
            snapshot_pages: self.snapshot_pages.clone(),
            container_pages: self.container_pages.clone(),
            damage_met: self.damage_met.clone(),
        }
    }

    /// The folder of the popular set.
    pub(crate) fn popular(&self) -> Folder {
        self.folder(DiskId::POPULAR)
    }

    /// The same, made if it is not there.
    pub(crate) fn popular_or_new(&self) -> Result<Folder> {
        let popular = self.popular();
        if popular.load_tagged()?.is_none() {
            if has_objects(&*self.store, &popular.path)? && popular.load_tagged()?.is_none() {
                // A new one would count its writers from 1 again, and know nothing of what is there.
                return Err(VaultError::Missing { object: popular.manifest_name() });
            }
            popular.create(&Manifest::new(DiskId::POPULAR, ""))?;
        }
        Ok(popular)
    }

    /// The folders of all disks, named or not. One without a manifest is an error: what it references is not known.
    pub(crate) fn all_folders(&self) -> Result<Vec<Folder>> {
        Ok(self.listed_folders()?.into_iter().map(|(folder, _)| folder).collect())
    }

    /// The same, with what the objects in each tell of the newest manifest that was there.
    pub(crate) fn listed_folders(&self) -> Result<Vec<(Folder, Evidence)>> {
        let mut found: BTreeMap<DiskId, Evidence> = BTreeMap::new();
        for_each_name(&*self.store, names::DISKS, |name| {
            let id = name.strip_prefix(names::DISKS).and_then(|r| r.split('/').next());
            if let Some(id) = id.and_then(|i| i.parse::<DiskId>().ok()) {
                found.entry(id).or_default().add(&name);
            }
        })?;
        Ok(found.into_iter().map(|(id, evidence)| (self.folder(id), evidence)).collect())
    }
}
