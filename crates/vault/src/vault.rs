//! The vault: opening it, its disks and their snapshots.

use crate::disks;
use crate::error::{Named, Result, VaultError};
use crate::folder::{Containers, Folder};
use crate::policy::Policy;
use crate::reader::Reader;
use crate::rollback::Evidence;
use crate::session::hold_session;
use crate::tables::Tables;
use format::{
    decode_frame, encode_frame, names, Context, DiskId, Kind, Manifest, Owner, SnapId, VaultFile, VaultId,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{ObjectStore, StoreError};

/// Memory for chunk tables in bytes.
pub(crate) const TABLE_CACHE_BYTES: usize = 32 << 20;

/// How long maintenance waits for other maintenance of the same disk.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a reading is begun anew because the disk changed meanwhile.
const VIEW_TRIES: usize = 1000;

/// Snapshot storage on a store.
pub struct Vault {
    pub(crate) store: Arc<dyn ObjectStore>,
    file: VaultFile,
    patience: Duration,
}

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

pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut b = [0; N];
    getrandom::fill(&mut b)
        .map_err(|e| VaultError::Refused(format!("the system gives no random numbers: {e}")))?;
    Ok(b)
}

pub(crate) fn random_token() -> Result<SnapId> {
    Ok(SnapId(u64::from_le_bytes(random_bytes()?)))
}

/// Seconds since 1970.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

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

/// Whether there is any object of this prefix.
pub(crate) fn has_objects(store: &dyn ObjectStore, prefix: &str) -> Result<bool> {
    let mut any = false;
    store.list(prefix, &mut |_| {
        any = true;
        Ok(())
    })?;
    Ok(any)
}

/// Whether there are disks, or what names them.
fn has_disks(store: &dyn ObjectStore) -> Result<bool> {
    let mut any = has_objects(store, names::NAMES)?;
    store.list_folders(names::DISKS, &mut |_| {
        any = true;
        Ok(())
    })?;
    Ok(any)
}

impl Vault {
    /// Makes a vault on an empty store. One that has disks has lost its `vault.json`: a new one would not fit them.
    pub fn init(store: Arc<dyn ObjectStore>, policy: &Policy) -> Result<Vault> {
        if store.len(names::VAULT).is_err() && has_disks(&*store)? {
            return Err(VaultError::Missing { object: names::VAULT.into() });
        }
        let file = VaultFile { id: VaultId(random_bytes()?), policy: policy.name.into(), created: now() };
        match store.put(names::VAULT, &[&file.encode()]) {
            Ok(()) => Ok(Vault { store, file, patience: PATIENCE }),
            Err(StoreError::AlreadyExists { .. }) => {
                Err(VaultError::Refused(format!("{}: there is a vault already", store.location())))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Opens the vault on a store.
    pub fn open(store: Arc<dyn ObjectStore>) -> Result<Vault> {
        let bytes = match store.read(names::VAULT, 1 << 20) {
            Err(StoreError::NotFound { .. }) if has_disks(&*store)? => {
                return Err(VaultError::Missing { object: names::VAULT.into() });
            }
            Err(StoreError::NotFound { .. }) => {
                let what = format!("{}: no vault here; make one with `sapwood init`", store.location());
                return Err(VaultError::NotFound { what });
            }
            other => other.named()?,
        };
        let file = VaultFile::decode(&bytes).map_err(VaultError::malformed(names::VAULT))?;
        Ok(Vault { store, file, patience: PATIENCE })
    }

    /// The same, with another time that maintenance (deletion, collection) waits for other maintenance of a disk.
    pub fn with_patience(self, patience: Duration) -> Vault {
        Vault { patience, ..self }
    }

    /// Its id.
    pub fn id(&self) -> VaultId {
        self.file.id
    }

    /// The policy of backups that do not name one.
    pub fn policy(&self) -> Result<Policy> {
        Policy::by_name(&self.file.policy).map_err(|e| {
            let why = format!("{e}; give --policy, or use a newer program");
            VaultError::Newer { object: names::VAULT.into(), why }
        })
    }

    /// Where it is.
    pub fn location(&self) -> String {
        self.store.location()
    }

    pub(crate) fn context<'a>(&self, place: &'a str) -> Context<'a> {
        Context { vault: self.file.id, place }
    }

    pub(crate) fn folder(&self, id: DiskId) -> Folder {
        Folder::new(self.store.clone(), self.file.id, Owner::Disk, id, self.patience)
    }

    pub(crate) fn shared(&self) -> Folder {
        Folder::new(self.store.clone(), self.file.id, Owner::Shared, DiskId([0; 16]), self.patience)
    }

    /// The same, made if it is not there.
    pub(crate) fn shared_or_new(&self) -> Result<Folder> {
        let shared = self.shared();
        if shared.load_tagged()?.is_none() {
            if has_objects(&*self.store, &shared.path)? && shared.load_tagged()?.is_none() {
                // A new one would count its writers from 1 again, and know nothing of what is there.
                return Err(VaultError::Missing { object: shared.manifest_name() });
            }
            shared.create(&Manifest::new(DiskId([0; 16]), ""))?;
        }
        Ok(shared)
    }

    /// The folders of all disks, named or not. One without a manifest is an error: what it references is not known.
    pub(crate) fn all_folders(&self) -> Result<Vec<Folder>> {
        Ok(self.listed_folders()?.into_iter().map(|(folder, _)| folder).collect())
    }

    /// The same, with what the objects in each tell of the newest manifest that was there.
    pub(crate) fn listed_folders(&self) -> Result<Vec<(Folder, Evidence)>> {
        let mut found: BTreeMap<DiskId, Evidence> = BTreeMap::new();
        self.store.list(names::DISKS, &mut |e| {
            let id = e.name.strip_prefix(names::DISKS).and_then(|r| r.split('/').next());
            if let Some(id) = id.and_then(|i| i.parse::<DiskId>().ok()) {
                found.entry(id).or_default().add(&e.name);
            }
            Ok(())
        })?;
        Ok(found.into_iter().map(|(id, evidence)| (self.folder(id), evidence)).collect())
    }

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

    /// Whether a backup may go to a disk of this name: there is one, or one may be made.
    ///
    /// # Errors
    /// `Usage` where it may not.
    pub fn check_backup_name(&self, name: &str) -> Result<()> {
        disks::find(self, name).map(drop)
    }

    /// The folder of a disk that is there.
    pub(crate) fn disk(&self, name: &str) -> Result<Folder> {
        Ok(disks::one(self, name)?.folder)
    }

    /// [`Vault::view`] of the disk of a name.
    pub(crate) fn view_of(&self, disk: &str, table_bytes: usize) -> Result<View> {
        disks::begin_on(self, disk, |at| self.view(&at.folder, table_bytes))
    }

    /// The folder of a disk, made if it is new.
    pub(crate) fn disk_or_new(&self, name: &str) -> Result<Folder> {
        if let Some(at) = disks::find(self, name)? {
            return Ok(at.folder);
        }
        let folder = self.folder(DiskId(random_bytes()?));
        // Held while the folder has no name yet, so that `gc` lets it be.
        let (token, hold) = hold_session(&folder, "first backup")?;
        let mut manifest = Manifest::new(folder.disk, name);
        manifest.writers.push(format::Writer {
            no: format::WriterNo(0),
            token,
            kind: format::WriterKind::Maintenance,
            parent: None,
            since: 0,
        });
        folder.create(&manifest)?;
        match self.put_name(name, &folder) {
            Ok(true) => {}
            // Another process was faster: its folder counts.
            Ok(false) => {
                folder.remove()?;
                drop(hold);
                return self.disk(name);
            }
            Err(e) => {
                // Unless it cannot be told whether the name is there: then `gc` looks.
                if matches!(e, VaultError::Store(StoreError::Full { .. } | StoreError::Unwritable { .. })) {
                    let _ = folder.remove();
                }
                return Err(e);
            }
        }
        let made = folder.update(|m, _| {
            m.writers.retain(|w| w.token != token);
            Ok(())
        });
        drop(hold);
        made.map(|_| folder)
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
