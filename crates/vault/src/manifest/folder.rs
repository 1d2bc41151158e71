//! An owner's folder: its manifest, its container table, and its released objects.

use crate::base::error::{DamageMet, Result, UnlessDamaged, VaultError};
use crate::base::lru::SharedLru;
use crate::manifest::listing::{for_each_name, list_objects};
use format::{
    names, ContainerId, ContainerPage, Context, DiskId, Kind, Malformed, Manifest, PageRef, Release,
    Released, Sequence, SnapshotPage, SnapshotPageRef, VaultId,
};
use std::sync::Arc;
use std::time::Duration;
use store::{ObjectStore, Reserve, StoreError, Tag, REPLACEABLE_BYTES_MAX};

/// What reading a manifest may take, in bytes: its body, and what that is decoded to.
pub(crate) const MANIFEST_ROOM_BYTES: u64 = 2 * Kind::Manifest.body_max() as u64;

/// Where one owner's objects are. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Folder {
    pub store: Arc<dyn ObjectStore>,
    pub vault: VaultId,
    /// The disk that owns it, or [`DiskId::POPULAR`].
    pub disk: DiskId,
    /// With a slash behind.
    pub path: String,
    /// How long maintenance waits for other maintenance of the folder.
    pub patience: Duration,
    /// What changes may use of the store's reserve.
    pub reserve: Reserve,
    /// Most snapshots that a manifest keeps beside its pages.
    pub recent_max: usize,
    /// Pages of snapshots that were read last, of all folders of the vault. A page never changes.
    pub snapshot_pages: SharedLru<(DiskId, SnapshotPageRef), Arc<SnapshotPage>>,
    /// The same of container tables: those that were read or put last.
    pub container_pages: SharedLru<(DiskId, PageRef), Arc<ContainerPage>>,
    /// What readers and backups have found damaged.
    pub damage_met: Arc<DamageMet>,
}

impl Folder {
    /// The folder of another owner of the same vault.
    pub fn of(&self, disk: DiskId) -> Folder {
        Folder { disk, path: names::folder(disk), ..self.clone() }
    }

    /// What was read; `None` where it is damaged, which is remembered, until it is recorded
    /// ([`crate::Vault::record_damage_met`]).
    pub fn unless_damaged<T>(&self, read: Result<T>) -> Result<Option<T>> {
        if let Err(e) = &read {
            self.damage_met.note(self.disk, e);
        }
        read.unless_damaged()
    }

    /// Whether it is that of the popular set.
    pub fn is_popular(&self) -> bool {
        self.disk == DiskId::POPULAR
    }

    /// The same folder, whose changes may use so much of the store's reserve.
    pub fn with_reserve(&self, reserve: Reserve) -> Folder {
        let store = self.store.with_reserve(reserve).unwrap_or_else(|| self.store.clone());
        Folder { store, reserve, ..self.clone() }
    }

    /// The context of frames of an object of the vault: under its checksum.
    pub fn context<'a>(&self, place: &'a str) -> Context<'a> {
        Context { vault: self.vault, place }
    }

    /// The name of the manifest.
    pub fn manifest_name(&self) -> String {
        names::manifest(&self.path)
    }

    /// The manifest as it is now, and the tag by which a swap recognises it; `None` if there is none.
    pub fn load_tagged(&self) -> Result<Option<(Manifest, Tag)>> {
        let name = self.manifest_name();
        let Some((bytes, tag)) = self.store.load(&name)? else { return Ok(None) };
        Ok(Some((self.decode_manifest(&name, &bytes)?, tag)))
    }

    fn decode_manifest(&self, name: &str, bytes: &[u8]) -> Result<Manifest> {
        let m = Manifest::decode(self.context(name), bytes).map_err(VaultError::malformed(name))?;
        if m.disk != self.disk {
            return Err(VaultError::corrupt(name, format!("is of disk {}", m.disk)));
        }
        Ok(m)
    }

    /// The sequence of the manifest as it is now. It is read, but decoded only where its tag is not that of `known`, the
    /// one that was decoded last.
    pub fn sequence_now(&self, known: &mut Option<(Tag, Sequence)>) -> Result<Sequence> {
        let name = self.manifest_name();
        let Some((bytes, tag)) = self.store.load(&name)? else {
            return Err(VaultError::Missing { object: name });
        };
        match known {
            Some((of, sequence)) if *of == tag => Ok(*sequence),
            _ => {
                let sequence = self.decode_manifest(&name, &bytes)?.sequence;
                *known = Some((tag, sequence));
                Ok(sequence)
            }
        }
    }

    /// The manifest as it is now. It has the recent snapshots only.
    pub fn load_root(&self) -> Result<Manifest> {
        Ok(self.load_root_tagged()?.0)
    }

    /// The same, and its tag.
    pub fn load_root_tagged(&self) -> Result<(Manifest, Tag)> {
        let missing = || VaultError::Missing { object: self.manifest_name() };
        self.load_tagged()?.ok_or_else(missing)
    }

    /// The manifest as it is now: the one of this tag, unless another one has replaced it.
    pub fn load_root_again(&self, manifest: Manifest, tag: Tag) -> Result<Manifest> {
        let name = self.manifest_name();
        let Some((bytes, now)) = self.store.load(&name)? else {
            return Err(VaultError::Missing { object: name });
        };
        if now == tag {
            return Ok(manifest);
        }
        drop(manifest);
        self.decode_manifest(&name, &bytes)
    }

    /// The manifest as it stands. Unlike [`Self::load_root`] it costs no sync where there is none, or where a swap was killed:
    /// a power cut may take back what is seen. For those who decide nothing by it that lasts.
    pub fn glance(&self) -> Result<Manifest> {
        let name = self.manifest_name();
        match self.store.read(&name, REPLACEABLE_BYTES_MAX) {
            Err(StoreError::NotFound { .. }) => Err(VaultError::Missing { object: name }),
            bytes => self.decode_manifest(&name, &bytes?),
        }
    }

    /// The manifest of a folder that may be coming or going: `None` where the folder is empty.
    ///
    /// # Errors
    /// `Missing` where there is content without a manifest.
    pub fn load_root_unless_empty(&self) -> Result<Option<Manifest>> {
        // The manifest comes first and goes last. Content that is seen after it was not found may be of a folder that has
        // come since.
        for _ in 0..2 {
            if let Some((m, _)) = self.load_tagged()? {
                return Ok(Some(m));
            }
            if !self.has_content()? {
                return Ok(None);
            }
        }
        Err(VaultError::Missing { object: self.manifest_name() })
    }

    /// Whether there is anything in the folder but commit records and referrer records. Who works beside the removal of the
    /// disk may leave one: by itself it says nothing, and `gc` removes it.
    pub fn has_content(&self) -> Result<bool> {
        let records = [names::commits_of(&self.path), names::referrers_of(&self.path)];
        let mut has_content = false;
        for_each_name(&*self.store, &self.path, |name| {
            has_content |= !records.iter().any(|r| name.starts_with(r));
        })?;
        Ok(has_content)
    }

    /// Removes the folder's objects. The manifest goes last: without it the rest could not be told from a damaged disk.
    pub fn remove(&self) -> Result<(u64, u64)> {
        let mut objects = list_objects(&*self.store, &self.path)?;
        objects.sort_by_key(|e| e.name == self.manifest_name());
        let (mut removed, mut bytes) = (0, 0);
        for e in objects {
            self.store.delete(&e.name)?;
            (removed, bytes) = (removed + 1, bytes + e.len);
        }
        Ok((removed, bytes))
    }

    /// Puts a first manifest where there is none.
    pub fn create(&self, manifest: &Manifest) -> Result<()> {
        let name = self.manifest_name();
        match self.store.swap(&name, None, &manifest.encode(self.context(&name))) {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Changes the manifest in one step, but for snapshots in its pages. `change` may be called again, with a newer manifest, where another process was
    /// faster.
    pub fn update<T>(&self, mut change: impl FnMut(&mut Manifest) -> Result<T>) -> Result<(Manifest, T)> {
        self.replace(|m, _| change(m))
    }

    /// The same for changes that put objects: `change` pushes their names to its second argument, and those of attempts
    /// that failed are deleted.
    pub(super) fn replace<T>(
        &self,
        mut change: impl FnMut(&mut Manifest, &mut Vec<String>) -> Result<T>,
    ) -> Result<(Manifest, T)> {
        let name = self.manifest_name();
        let mut attempt = 0u32;
        loop {
            let (mut m, tag) =
                self.load_tagged()?.ok_or_else(|| VaultError::Missing { object: name.clone() })?;
            m.sequence = m.sequence.next();
            let mut put = Vec::new();
            let outcome = match change(&mut m, &mut put).and_then(|value| {
                let too_large = |e: Malformed| VaultError::Refused(format!("{name}: {e}; delete snapshots"));
                m.check_limits().map_err(too_large).map(|()| value)
            }) {
                Err(e) => Err(e),
                Ok(value) => match self.store.swap(&name, Some(tag), &m.encode(self.context(&name))) {
                    Ok(_) => return Ok((m, value)),
                    Err(
                        e @ (StoreError::Conflict { .. }
                        | StoreError::Full { .. }
                        | StoreError::Locked { .. }
                        | StoreError::Unsuitable { .. }
                        | StoreError::Unwritable { .. }
                        | StoreError::TooLong { .. }
                        | StoreError::BadName { .. }),
                    ) => Err(e.into()),
                    // The rename may have happened: what the new manifest names must stay.
                    Err(source) => return Err(VaultError::Uncertain { object: name, source }),
                },
            };
            for object in &put {
                let _ = self.store.delete(object);
            }
            match outcome {
                Err(VaultError::Store(StoreError::Conflict { .. })) if attempt < 10_000 => {
                    attempt += 1;
                    let pause = 200 * u64::from(attempt.min(50));
                    std::thread::sleep(std::time::Duration::from_micros(pause));
                }
                other => return other.map(|v| (m, v)),
            }
        }
    }
}

/// Lists containers that the disk references less than before and others may reference.
pub(crate) fn list_unswept<'a>(m: &mut Manifest, ids: impl IntoIterator<Item = &'a ContainerId>) {
    m.unswept.extend(ids);
    m.unswept.sort_unstable();
    m.unswept.dedup();
}

/// Marks something as no longer needed by the manifest that is being changed.
pub(crate) fn release(m: &mut Manifest, what: Release) {
    m.released.push(Released { sequence: m.sequence, what });
}

/// Marks an object as no longer named by the manifest that is being changed.
pub(crate) fn release_object(m: &mut Manifest, object: String) {
    release(m, Release::Object(object));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::manifest::reader::Reader;
    use crate::manifest::vault::Vault;
    use crate::BALANCED;
    use store::{SimFs, SimStore};

    /// A disk may count tens of thousands of owners that are gone. Each look for one synced the folder above, and verification
    /// looked twice: minutes on a disk.
    #[test]
    fn a_glance_at_a_manifest_that_is_missing_syncs_nothing() {
        let fs = SimFs::new(1);
        let vault = Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &BALANCED).unwrap();
        let folder = vault.folder(DiskId([1; 16]));
        let is_missing = |m: Result<Manifest>| matches!(m, Err(VaultError::Missing { .. }));
        let before = fs.op_count();
        assert!(is_missing(folder.glance()));
        assert!(matches!(Reader::open_owner(&folder), Err(VaultError::Missing { .. })));
        assert_eq!(fs.op_count(), before);
        // Who acts on it makes it durable first.
        assert!(is_missing(folder.load_root()));
        assert!(fs.op_count() > before);
        folder.create(&Manifest::new(folder.disk, "vm/a")).unwrap();
        assert_eq!(folder.glance().unwrap(), folder.load_root().unwrap());
    }

    #[test]
    fn a_manifest_is_decoded_again_only_where_it_has_changed() {
        let store = SimStore::create_on(SimFs::new(1)).unwrap();
        let folder = Vault::init(Arc::new(store), &BALANCED).unwrap().folder(DiskId([1; 16]));
        let mut known = None;
        assert!(matches!(folder.sequence_now(&mut known), Err(VaultError::Missing { .. })));
        folder.create(&Manifest::new(folder.disk, "vm/a")).unwrap();
        let first = folder.sequence_now(&mut known).unwrap();
        // What only a decoder would notice.
        known.as_mut().unwrap().1 = Sequence(777);
        assert_eq!(folder.sequence_now(&mut known).unwrap(), Sequence(777));
        folder.update(|_| Ok(())).unwrap();
        assert_eq!(folder.sequence_now(&mut known).unwrap(), first.next());
        folder.store.delete(&folder.manifest_name()).unwrap();
        assert!(matches!(folder.sequence_now(&mut known), Err(VaultError::Missing { .. })));
    }
}
