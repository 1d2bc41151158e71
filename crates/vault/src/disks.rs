//! Finding the disks, also those whose name is damaged.

use crate::error::{fault, Fault, Result, VaultError};
use crate::folder::Folder;
use crate::vault::{check_disk_name, Vault};
use format::{names, DiskId};
use std::collections::{BTreeMap, BTreeSet};

/// A disk to look at.
pub(crate) struct DiskAt {
    /// `vm/disk`, or its folder where that cannot be known.
    pub name: String,
    pub folder: Folder,
    /// The object that should name it, and what is wrong with it.
    pub name_fault: Option<Fault>,
}

/// The disk of a name.
pub(crate) fn one(vault: &Vault, name: &str) -> Result<DiskAt> {
    check_disk_name(name)?;
    match vault.disk(name) {
        Ok(folder) => Ok(DiskAt { name: name.into(), folder, name_fault: None }),
        Err(e @ (VaultError::Usage(_) | VaultError::Refused(_) | VaultError::Store(_))) => Err(e),
        // Its folder may be there all the same.
        Err(e) => all(vault)?.0.into_iter().find(|d| d.name == name).ok_or(e),
    }
}

/// All disks by name, and what is wrong with names whose disk cannot be told. Every folder is looked at.
pub(crate) fn all(vault: &Vault) -> Result<(Vec<DiskAt>, Vec<Fault>)> {
    let (mut disks, mut bad_names) = by_name(vault)?;
    let named: BTreeSet<DiskId> = disks.iter().map(|d| d.folder.disk).collect();
    for id in folders(vault)?.into_iter().filter(|id| !named.contains(id)) {
        disks.extend(nameless(vault, id, &mut bad_names)?);
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((disks, bad_names.into_iter().collect()))
}

/// As [`all`], but folders are looked at only where a name is damaged: a name that is lost is not missed.
pub(crate) fn listed(vault: &Vault) -> Result<(Vec<DiskAt>, Vec<Fault>)> {
    let (mut disks, bad_names) = by_name(vault)?;
    if !bad_names.is_empty() {
        return all(vault);
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((disks, Vec::new()))
}

/// The disks that names lead to, and the names that lead nowhere.
fn by_name(vault: &Vault) -> Result<(Vec<DiskAt>, BTreeMap<String, String>)> {
    let mut disks = Vec::new();
    let mut bad_names: BTreeMap<String, String> = BTreeMap::new();
    for object in list(vault, names::NAMES)? {
        match vault.read_name(&object) {
            Ok(None) => {}
            Ok(Some((name, id))) => {
                if names::name(&name) != object {
                    bad_names.insert(object, format!("names {name}, whose place is elsewhere"));
                    continue;
                }
                disks.push(DiskAt { name, folder: vault.folder(id), name_fault: None });
            }
            Err(e) => {
                let (object, why) = fault(e)?;
                bad_names.insert(object, why);
            }
        }
    }
    Ok((disks, bad_names))
}

fn list(vault: &Vault, prefix: &str) -> Result<Vec<String>> {
    let mut objects = Vec::new();
    vault.store.list(prefix, &mut |e| {
        objects.push(e.name);
        Ok(())
    })?;
    Ok(objects)
}

/// The folders that have a manifest.
fn folders(vault: &Vault) -> Result<BTreeSet<DiskId>> {
    let mut ids = BTreeSet::new();
    vault.store.list(names::DISKS, &mut |e| {
        let folder = e.name.strip_prefix(names::DISKS).and_then(|r| r.strip_suffix("/manifest"));
        ids.extend(folder.and_then(|f| f.parse::<DiskId>().ok()));
        Ok(())
    })?;
    Ok(ids)
}

/// A folder that no name leads to: the name is damaged or lost, was only just put, or the folder is a remnant (`None`).
fn nameless(vault: &Vault, id: DiskId, bad_names: &mut BTreeMap<String, String>) -> Result<Option<DiskAt>> {
    let folder = vault.folder(id);
    let manifest = match folder.load_tagged() {
        Ok(None) => return Ok(None),
        Ok(Some((m, _))) => m,
        Err(e) => {
            let (object, why) = fault(e)?;
            let name = folder.path.trim_end_matches('/').to_string();
            return Ok(Some(DiskAt { name, folder, name_fault: Some((object, why)) }));
        }
    };
    if manifest.live().next().is_none() {
        return Ok(None);
    }
    let (name, object) = (manifest.name.clone(), names::name(&manifest.name));
    let why = match bad_names.remove(&object) {
        Some(why) => why,
        None => match vault.read_name(&object) {
            Ok(Some((_, other))) if other == id => {
                return Ok(Some(DiskAt { name, folder, name_fault: None }))
            }
            Ok(Some(_)) => "names another disk".into(),
            Ok(None) => match folder.load_tagged() {
                Ok(Some((m, _))) if m.name == name && m.live().next().is_some() => "is missing".into(),
                // Deleted or given another name meanwhile.
                _ => return Ok(None),
            },
            Err(e) => fault(e)?.1,
        },
    };
    Ok(Some(DiskAt { name, folder, name_fault: Some((object, why)) }))
}

/// Whether a disk was deleted since it was found.
pub(crate) fn is_gone(vault: &Vault, at: &DiskAt) -> Result<bool> {
    if at.name_fault.is_some() {
        return Ok(false);
    }
    Ok(match vault.read_name(&names::name(&at.name)) {
        Ok(Some((_, id))) => id != at.folder.disk,
        Ok(None) => true,
        Err(_) => false,
    })
}
