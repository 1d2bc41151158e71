//! `vault.json` and its second copy, `vault.copy` (`docs/format/vault.md`).
//!
//! Every checksum in a vault covers the id that stands there, so a vault that loses both cannot be read. The header of
//! every data object has the id, too: [`recover`] makes both anew.

use crate::base::error::{fault, Fault, Named, Result, UnlessDamaged, VaultError};
use crate::base::policy::BALANCED;
use crate::manifest::listing::{for_each_name, has_objects};
use format::{
    names, Context, DataHeader, DiskId, Kind, Manifest, SnapshotPage, SnapshotState, VaultFile, VaultId,
    DATA_HEADER_BYTES,
};
use std::collections::BTreeSet;
use store::ObjectStore;

/// Longer files are no vault's description.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Data objects that are asked for the vault's id, at most.
const HEADERS_MAX: usize = 64;
/// Both.
const BOTH: [&str; 2] = [names::VAULT, names::VAULT_COPY];

/// What the vault is, and what is wrong with `vault.json`, where only the copy could be read.
///
/// # Errors
/// `Description` where there are disks, but neither can be read; `NotFound` where there is no vault.
pub(super) fn read(store: &dyn ObjectStore) -> Result<(VaultFile, Option<Fault>)> {
    let first = match read_one(store, names::VAULT) {
        Err(e) if e.is_damage() => e,
        other => return other.map(|file| (file, None)),
    };
    match read_one(store, names::VAULT_COPY) {
        Ok(file) => Ok((file, Some(fault(first)?))),
        Err(e) if !e.is_damage() => Err(e),
        // There may be no vault at all.
        Err(_) if matches!(first, VaultError::Missing { .. }) && !has_disks(store)? => {
            let what = format!("{}: no vault here; make one with `sapwood init`", store.location());
            Err(VaultError::NotFound { what })
        }
        Err(_) => Err(VaultError::Description { why: fault(first)?.1 }),
    }
}

fn read_one(store: &dyn ObjectStore, object: &str) -> Result<VaultFile> {
    decode(object, &read_bytes(store, object)?)
}

fn read_bytes(store: &dyn ObjectStore, object: &str) -> Result<Vec<u8>> {
    store.read(object, FILE_BYTES_MAX).named()
}

fn decode(object: &str, bytes: &[u8]) -> Result<VaultFile> {
    VaultFile::decode(bytes).map_err(VaultError::malformed(object))
}

/// Whether there are disks, or what names them.
pub(super) fn has_disks(store: &dyn ObjectStore) -> Result<bool> {
    let mut any = has_objects(store, names::NAMES)?;
    store.list_folders(names::DISKS, &mut |_| {
        any = true;
        Ok(())
    })?;
    Ok(any)
}

/// What is wrong with `vault.json` and with its copy.
pub(super) fn faults(store: &dyn ObjectStore, file: &VaultFile) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let both = BOTH.map(|object| read_bytes(store, object));
    // Programs may write the same in different ways, but both in one way. Blanks do not change what is said.
    let differ = matches!(&both, [Ok(a), Ok(b)] if a != b);
    for (object, bytes) in BOTH.into_iter().zip(both) {
        let is_odd = differ && bytes.as_ref().is_ok_and(|bytes| *bytes != file.encode());
        match bytes.and_then(|bytes| decode(object, &bytes)) {
            Ok(is) if is != *file => faults.push((object.into(), "is that of another vault".into())),
            Ok(_) if is_odd => faults.push((object.into(), "says what it said, but in other bytes".into())),
            Ok(_) => {}
            Err(e) => faults.push(fault(e)?),
        }
    }
    Ok(faults)
}

/// Puts what is damaged of both again.
pub(super) fn put_again(store: &dyn ObjectStore, file: &VaultFile) -> Result<()> {
    for (object, _) in faults(store, file)? {
        store.delete(&object)?;
        store.put(&object, &[&file.encode()])?;
    }
    Ok(())
}

/// Makes both anew where neither can be read, by the id in the headers of data objects. Returns whether it was
/// necessary. Policy and isolation are those of the newest snapshot.
///
/// # Errors
/// `Description` where the id cannot be known.
pub(super) fn recover(store: &dyn ObjectStore) -> Result<bool> {
    let why = match read(store) {
        Err(VaultError::Description { why }) => why,
        other => return other.map(|_| false),
    };
    let mut ids = ids_in_headers(store)?.into_iter();
    let (Some(id), None) = (ids.next(), ids.next()) else {
        let why = format!("{why}, and no data object, or objects of several vaults, tell its id");
        return Err(VaultError::Description { why });
    };
    put_again(store, &describe(store, id)?)?;
    Ok(true)
}

/// The vault ids in the headers of some data objects: one, unless objects of another vault were copied here.
fn ids_in_headers(store: &dyn ObjectStore) -> Result<BTreeSet<VaultId>> {
    let mut objects = Vec::new();
    for_each_name(store, "", |name| {
        if objects.len() < HEADERS_MAX && name.ends_with(".data") {
            objects.push(name);
        }
    })?;
    let mut ids = BTreeSet::new();
    for object in objects {
        let mut header = [0; DATA_HEADER_BYTES];
        if store.read_at(&object, 0, &mut header).named().unless_damaged()?.is_some() {
            ids.extend(DataHeader::decode(&header).ok().map(|h| h.vault));
        }
    }
    Ok(ids)
}

/// The page of a disk's oldest snapshots, if it has pages and one of its objects can be read.
fn oldest_page(store: &dyn ObjectStore, vault: VaultId, m: &Manifest) -> Option<SnapshotPage> {
    let at = m.older.first()?;
    let both = names::snapshot_page(&names::folder(m.disk), at.writer, at.number);
    both.iter().find_map(|place| {
        let bytes = store.read(place, Kind::SnapshotPage.frame_max()).ok()?;
        SnapshotPage::decode(Context { vault, place }, &bytes).ok()
    })
}

/// What the manifests say of a vault of this id. Those of another one do not decode.
fn describe(store: &dyn ObjectStore, id: VaultId) -> Result<VaultFile> {
    let mut disks = Vec::new();
    store.list_folders(names::DISKS, &mut |disk| {
        disks.extend(disk.parse::<DiskId>().ok());
        Ok(())
    })?;
    let mut file = VaultFile { id, policy: BALANCED.name.into(), isolated: false, created: 0 };
    let mut times: Option<(i64, i64)> = None;
    for disk in disks {
        let place = names::manifest(&names::folder(disk));
        let Some((bytes, _)) = store.load(&place)? else { continue };
        let Ok(m) = Manifest::decode(Context { vault: id, place: &place }, &bytes) else { continue };
        let oldest = oldest_page(store, id, &m).map_or(Vec::new(), |page| page.entries);
        for s in oldest.iter().chain(&m.recent).filter(|s| s.state == SnapshotState::Live) {
            let (oldest, newest) = times.unwrap_or((i64::MAX, i64::MIN));
            if s.time > newest {
                file.policy.clone_from(&s.policy);
                file.isolated = s.isolated;
            }
            times = Some((oldest.min(s.time), newest.max(s.time)));
        }
    }
    file.created = times.map_or(0, |(oldest, _)| oldest);
    Ok(file)
}
