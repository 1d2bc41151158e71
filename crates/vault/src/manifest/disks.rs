//! Finding the disks.
//!
//! The manifest decides what a disk is called. An object below `names/` only points from a name to a folder: it is
//! valid if the manifest there has that name. If it is lost, damaged or points elsewhere, manifests are read until the
//! disk is found; `gc` restores the name object.

use crate::base::disk_name::check_disk_name;
use crate::base::error::{fault, Fault, Result, VaultError};
use crate::manifest::folder::Folder;
use crate::manifest::listing::{for_each_name, list_names, parse_folders};
use crate::manifest::session::is_empty;
use crate::manifest::vault::Vault;
use format::{names, DiskId, Manifest, RecipeName, SnapshotEntry, WriterNo};
use std::collections::{BTreeMap, BTreeSet};

/// A disk to look at.
pub(crate) struct DiskAt {
    /// `vm/disk`, or its folder where that cannot be known, or is also the name of another disk.
    pub name: String,
    pub folder: Folder,
    /// The object that should name it, and what is wrong with it.
    pub name_fault: Option<Fault>,
}

impl DiskAt {
    fn named(name: &str, folder: Folder) -> DiskAt {
        DiskAt { name: name.into(), folder, name_fault: None }
    }

    /// The snapshots that there are recipes of, whatever the manifest says, and the first writer of each.
    pub fn recipes(&self) -> Result<BTreeMap<String, WriterNo>> {
        let mut found: BTreeMap<String, WriterNo> = BTreeMap::new();
        for_each_name(&*self.folder.store, &names::recipes_of(&self.folder.path), |name| {
            if let Some(RecipeName { snap, generation }) = names::recipe_of_root(&name) {
                let first = found.entry(snap.to_string()).or_insert(generation);
                *first = generation.min(*first);
            }
        })?;
        Ok(found)
    }

    /// Called by its folder.
    fn unnamed(folder: Folder, fault: Fault) -> DiskAt {
        DiskAt { name: by_folder(&folder), folder, name_fault: Some(fault) }
    }
}

/// What a disk is called that has no name of its own: it can be used in place of one.
fn by_folder(folder: &Folder) -> String {
    folder.path.trim_end_matches('/').into()
}

/// The disk of a folder whose manifest has this name: called by its folder, where the name does not lead there.
pub(crate) fn of_folder(vault: &Vault, folder: Folder, name: &str) -> DiskAt {
    match one(vault, name) {
        Ok(at) if at.folder.disk == folder.disk => at,
        _ => DiskAt::named(&by_folder(&folder), folder),
    }
}

/// The disk of a name that is there.
pub(crate) fn one(vault: &Vault, name: &str) -> Result<DiskAt> {
    find(vault, name)?.ok_or_else(|| there_is_none(vault, name))
}

fn there_is_none(vault: &Vault, name: &str) -> VaultError {
    let what = format!("{}: there is no disk {name}; `sapwood snapshots` lists them", vault.location());
    VaultError::NotFound { what }
}

/// Begins some work on the disk of a name. Collection takes a disk away with its last snapshot: where that happens
/// meanwhile, there is none of this name.
pub(crate) fn begin_on<T>(vault: &Vault, name: &str, work: impl FnOnce(&DiskAt) -> Result<T>) -> Result<T> {
    let at = one(vault, name)?;
    match work(&at) {
        Err(VaultError::Missing { .. }) if is_gone(vault, &at)? => Err(there_is_none(vault, name)),
        done => done,
    }
}

/// The disk of a name; `None` where there is none. A name that no new disk may have is an error then.
pub(crate) fn find(vault: &Vault, name: &str) -> Result<Option<DiskAt>> {
    match find_any(vault, name)? {
        None => check_disk_name(name).map(|()| None),
        found => Ok(found),
    }
}

fn find_any(vault: &Vault, name: &str) -> Result<Option<DiskAt>> {
    let object = names::name(name);
    // What is wrong with the name, and what it comes to where no manifest has it.
    let (why, otherwise) = match vault.read_name(&object) {
        Ok(Some((n, id))) if n == name => {
            let folder = vault.folder(id);
            match folder.load_tagged() {
                // The disk has another name by now, or not this one yet.
                Ok(Some((m, _))) if m.name != name && m.other_names.iter().any(|n| n == name) => {
                    return Ok(None);
                }
                Ok(Some((m, _))) if m.name != name => {
                    let why = misleads(&folder, &m.name);
                    (why.clone(), Err(VaultError::Corrupt { object: object.clone(), why }))
                }
                Ok(None) => (leads_nowhere(&folder), Ok(Some(DiskAt::named(name, folder)))),
                // What is wrong with the manifest is told to those who need it.
                _ => return Ok(Some(DiskAt::named(name, folder))),
            }
        }
        Ok(Some((n, _))) if names::name(&n) == object => {
            return Err(VaultError::Refused(format!("the names {name} and {n} collide; choose another")));
        }
        Ok(Some((n, _))) => {
            let why = misplaced(&n);
            (why.clone(), Err(VaultError::Corrupt { object: object.clone(), why }))
        }
        Ok(None) => match unnamed_folder(vault, name)? {
            Some(at) => return Ok(Some(at)),
            None if !may_lack_names(vault)? => return Ok(None),
            None => ("is missing".into(), Ok(None)),
        },
        Err(e @ (VaultError::Corrupt { .. } | VaultError::Newer { .. })) => (e.to_string(), Err(e)),
        Err(e) => return Err(e),
    };
    match by_manifest(vault, name)? {
        Some(folder) => {
            let why = otherwise.err().map_or(Ok((object.clone(), why)), fault)?.1;
            Ok(Some(DiskAt { name: name.into(), folder, name_fault: Some((object, why)) }))
        }
        None => otherwise,
    }
}

fn misleads(folder: &Folder, called: &str) -> String {
    format!("leads to {}, which is called {called}", by_folder(folder))
}

fn leads_nowhere(folder: &Folder) -> String {
    format!("leads to {}, which has no manifest", by_folder(folder))
}

fn misplaced(name: &str) -> String {
    format!("names {name}, whose place is elsewhere")
}

/// The disk that is called by its folder, if `name` is the name of one.
fn unnamed_folder(vault: &Vault, name: &str) -> Result<Option<DiskAt>> {
    let Some(id) = name.strip_prefix(names::DISKS).and_then(|id| id.parse::<DiskId>().ok()) else {
        return Ok(None);
    };
    let folder = vault.folder(id);
    Ok(folder.has_content()?.then(|| DiskAt::named(name, folder)))
}

/// Whether there are more folders than names. Two short listings: that no name leads to a disk is not looked for before
/// each first backup by reading the manifests of all disks.
fn may_lack_names(vault: &Vault) -> Result<bool> {
    Ok(folder_ids(vault)?.len() > list_names(&*vault.store, names::NAMES)?.len())
}

/// The folder of a disk whose manifest has a name that does not lead to it. An empty one is what a first backup has left
/// that was killed. One without snapshots, whose chunks other disks reference, counts if there is no other.
///
/// Folders that other names lead to are read only if these names turn out to be wrong.
fn by_manifest(vault: &Vault, name: &str) -> Result<Option<Folder>> {
    let own = names::name(name);
    let mut led_to = BTreeSet::new();
    for object in list_names(&*vault.store, names::NAMES)?.into_iter().filter(|o| *o != own) {
        // One that is damaged leads nowhere.
        if let Ok(Some((n, id))) = vault.read_name(&object) {
            led_to.extend((names::name(&n) == object).then_some(id));
        }
    }
    let (led_to, not_led_to): (Vec<DiskId>, Vec<DiskId>) =
        folder_ids(vault)?.into_iter().partition(|id| led_to.contains(id));
    let mut search = Search { name, found: Vec::new(), bare: Vec::new(), others: 0, unreadable: None };
    not_led_to.into_iter().try_for_each(|id| search.look(vault, id))?;
    if search.found.is_empty() && search.others > 0 {
        led_to.into_iter().try_for_each(|id| search.look(vault, id))?;
    }
    search.end()
}

/// A search for the manifests that have a name.
struct Search<'a> {
    name: &'a str,
    found: Vec<Folder>,
    /// Those of them without snapshots.
    bare: Vec<Folder>,
    /// Disks that have another name.
    others: usize,
    /// A manifest that may have it.
    unreadable: Option<VaultError>,
}

impl Search<'_> {
    fn look(&mut self, vault: &Vault, id: DiskId) -> Result<()> {
        let folder = vault.folder(id);
        match folder.load_root_unless_empty() {
            Ok(None) => {}
            Ok(Some(m)) if is_empty(&m) => {}
            Ok(Some(m)) if m.name == self.name && m.recent.is_empty() => self.bare.push(folder),
            Ok(Some(m)) if m.name == self.name => self.found.push(folder),
            Ok(Some(_)) => self.others += 1,
            Err(e @ (VaultError::Corrupt { .. } | VaultError::Missing { .. } | VaultError::Newer { .. })) => {
                self.unreadable = Some(e)
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn end(mut self) -> Result<Option<Folder>> {
        match (self.found.len(), self.unreadable) {
            (0, Some(e)) => Err(e),
            (0 | 1, _) => Ok(self.found.pop().or(self.bare.pop())),
            _ => Err(VaultError::Refused(format!(
                "{}: {} have this name: use these in its place, and delete the snapshots of those that are not needed; \
                 then `sapwood gc` gives the name to the one that is left",
                self.name,
                self.found.iter().map(by_folder).collect::<Vec<_>>().join(" and "),
            ))),
        }
    }
}

/// All disks by name, and what is wrong with names that no disk has. Every manifest is read.
pub(crate) fn all(vault: &Vault) -> Result<(Vec<DiskAt>, Vec<Fault>)> {
    let (claims, mut bad_names) = claims(vault)?;
    let mut ids = folder_ids(vault)?;
    ids.extend(claims.keys());
    let (mut disks, mut lost, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    // Names that lead to a folder without a manifest.
    let mut hollow: BTreeMap<&str, Folder> = BTreeMap::new();
    for id in ids {
        let (folder, claimed) = (vault.folder(id), claims.get(&id).map_or(&[][..], Vec::as_slice));
        match folder.load_tagged() {
            Ok(Some((m, _))) => {
                for name in claimed.iter().filter(|n| **n != m.name && !m.other_names.contains(n)) {
                    bad_names.insert(names::name(name), misleads(&folder, &m.name));
                }
                if claimed.contains(&m.name) {
                    disks.push(DiskAt::named(&m.name, folder));
                } else if folder.newest(&m).map_or(true, |newest| newest.is_some()) {
                    lost.push((folder, m.name));
                } else if !is_empty(&m) {
                    bare.push((folder, m.name));
                }
            }
            Ok(None) => hollow.extend(claimed.iter().map(|name| (name.as_str(), folder.clone()))),
            Err(e) if claimed.is_empty() => disks.push(DiskAt::unnamed(folder, fault(e)?)),
            // Told by those who need it.
            Err(_) => disks.extend(claimed.iter().map(|name| DiskAt::named(name, folder.clone()))),
        }
    }
    for (folder, name) in lost {
        let object = names::name(&name);
        let why =
            hollow.remove(name.as_str()).map(|f| leads_nowhere(&f)).or_else(|| bad_names.remove(&object));
        disks.extend(without_name(vault, folder, name, why)?);
    }
    // Of a disk without snapshots nothing is lost with its name. But other disks may reference its chunks.
    for (folder, name) in bare {
        let has_name = |at: &DiskAt| at.name == name;
        if hollow.contains_key(name.as_str()) || disks.iter().any(has_name) {
            disks.push(DiskAt::named(&by_folder(&folder), folder));
        } else {
            let why = bad_names.remove(&names::name(&name));
            disks.extend(without_name(vault, folder, name, why)?);
        }
    }
    disks.extend(hollow.into_iter().map(|(name, folder)| DiskAt::named(name, folder)));
    tell_apart(&mut disks);
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((disks, bad_names.into_iter().collect()))
}

/// The names that lead to each folder.
type Claims = BTreeMap<DiskId, Vec<String>>;

/// What names say: the folders they lead to, and those that cannot be followed.
fn claims(vault: &Vault) -> Result<(Claims, BTreeMap<String, String>)> {
    let (mut claims, mut bad_names) = (Claims::new(), BTreeMap::new());
    for object in list_names(&*vault.store, names::NAMES)? {
        match vault.read_name(&object) {
            Ok(None) => {}
            Ok(Some((name, id))) if names::name(&name) == object => claims.entry(id).or_default().push(name),
            Ok(Some((name, _))) => drop(bad_names.insert(object, misplaced(&name))),
            Err(e) => {
                let (object, why) = fault(e)?;
                bad_names.insert(object, why);
            }
        }
    }
    Ok((claims, bad_names))
}

/// A disk with snapshots that its name does not lead to: it is damaged or lost, unless it came since names were listed.
fn without_name(vault: &Vault, folder: Folder, name: String, why: Option<String>) -> Result<Option<DiskAt>> {
    let object = names::name(&name);
    let now = vault.read_name(&object);
    if matches!(&now, Ok(Some((n, id))) if *n == name && *id == folder.disk) {
        return Ok(Some(DiskAt::named(&name, folder)));
    }
    let why = match (why, now) {
        (Some(why), _) => why,
        (None, Ok(Some(_))) => "leads to another disk".into(),
        (None, Ok(None)) => match folder.load_tagged() {
            Ok(Some((m, _))) if m.name == name && !is_empty(&m) => "is missing".into(),
            // Deleted or given another name meanwhile.
            _ => return Ok(None),
        },
        (None, Err(e)) => fault(e)?.1,
    };
    Ok(Some(DiskAt { name, folder, name_fault: Some((object, why)) }))
}

/// Of disks with one name, the one that it leads to has it; the others are called by their folders.
fn tell_apart(disks: &mut [DiskAt]) {
    let mut folders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for at in disks.iter() {
        folders.entry(at.name.clone()).or_default().push(by_folder(&at.folder));
    }
    for at in disks.iter_mut().filter(|d| d.name_fault.is_some()) {
        let here = by_folder(&at.folder);
        let others: Vec<&str> =
            folders[&at.name].iter().filter(|f| **f != here).map(String::as_str).collect();
        if !others.is_empty() {
            let why = format!("is called {}, and so is {}", at.name, others.join(" and "));
            at.name_fault = Some((at.folder.manifest_name(), why));
            at.name = here;
        }
    }
}

/// Puts the name of a disk back that leads to it no longer. Returns whether that was done: what a newer program wrote,
/// and what cannot be read for other reasons than damage, stays.
pub(crate) fn put_name_back(vault: &Vault, at: &DiskAt) -> Result<bool> {
    let object = names::name(&at.name);
    if at.name_fault.as_ref().is_none_or(|(o, _)| *o != object) {
        return Ok(false);
    }
    match vault.read_name(&object) {
        Ok(None) => {}
        Ok(Some((n, id))) if n == at.name && id == at.folder.disk => return Ok(true),
        // Two names with one hash.
        Ok(Some((n, _))) if n != at.name && names::name(&n) == object => return Ok(false),
        Ok(Some(_)) | Err(VaultError::Corrupt { .. }) => {
            // A directory in its place, say, is for the user to remove.
            if vault.store.delete(&object).is_err() {
                return Ok(false);
            }
        }
        Err(_) => return Ok(false),
    }
    vault.put_name(&at.name, &at.folder)?;
    Ok(matches!(vault.read_name(&object), Ok(Some((n, id))) if n == at.name && id == at.folder.disk))
}

/// Whether a name leads to a folder. One that cannot be read may.
pub(crate) fn may_lead_to(vault: &Vault, name: &str, id: DiskId) -> bool {
    match vault.read_name(&names::name(name)) {
        Ok(named) => named.is_some_and(|(n, i)| n == name && i == id),
        Err(_) => true,
    }
}

/// The folders that there are, which may be empty.
pub(crate) fn folder_ids(vault: &Vault) -> Result<BTreeSet<DiskId>> {
    parse_folders(&*vault.store, names::DISKS, |folder| folder.parse::<DiskId>().ok())
}

/// Whether a disk was removed since it was found.
pub(crate) fn is_gone(vault: &Vault, at: &DiskAt) -> Result<bool> {
    Ok(!may_lead_to(vault, &at.name, at.folder.disk) && !at.folder.has_content()?)
}

/// `None` where damage is due to a disk that was removed since it was found.
pub(crate) fn unless_gone<T>(vault: &Vault, at: &DiskAt, done: Result<T>) -> Result<Option<T>> {
    match done {
        Err(e) if e.is_damage() && is_gone(vault, at)? => Ok(None),
        done => done.map(Some),
    }
}

impl Vault {
    /// Whether a backup may go to a disk of this name: there is one, or one may be made.
    ///
    /// # Errors
    /// `Usage` where it may not.
    pub fn check_backup_name(&self, name: &str) -> Result<()> {
        find(self, name).map(drop)
    }

    /// The folder of a disk that is there.
    pub(crate) fn disk(&self, name: &str) -> Result<Folder> {
        Ok(one(self, name)?.folder)
    }
}

/// The snapshots that a manifest which was rolled back no longer lists, as far as recipes tell: those of sessions that
/// it does not know, or does not know to have ended.
pub(crate) fn unlisted(at: &DiskAt, m: &Manifest, all: &[SnapshotEntry]) -> Result<Vec<String>> {
    let mut recipes = at.recipes()?;
    recipes.retain(|id, writer| {
        let unknown = *writer >= m.next_writer || m.writers.iter().any(|w| w.no == *writer);
        unknown && !all.iter().any(|s| s.id.to_string() == *id)
    });
    Ok(recipes.into_keys().map(|id| format!("{}@{id}", at.name)).collect())
}
