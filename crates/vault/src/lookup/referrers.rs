//! Referrer records: which other disks reference containers of an owner.
//!
//! A backup puts the record before its manifest names the first container of a writer. A sweep deletes it once the disk
//! lists none of that writer's containers any more.

use crate::base::error::Result;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::listing::{parse_folders, parse_names};
use format::{encode_mark, names, DiskId, Kind, WriterNo};
use std::collections::{BTreeSet, HashSet};
use store::StoreError;

/// The writers of an owner whose containers other disks reference, looked up when they are asked for.
pub(crate) struct Referrers {
    folder: Folder,
    writers: Option<HashSet<WriterNo>>,
}

impl Referrers {
    /// Those of an owner's folder.
    pub fn new(folder: &Folder) -> Referrers {
        Referrers { folder: folder.clone(), writers: None }
    }

    /// Whether another disk references a container of a writer, or has done so.
    pub fn has_any(&mut self, writer: WriterNo) -> Result<bool> {
        let writers = match &mut self.writers {
            Some(writers) => writers,
            none => none.insert(referred(&self.folder)?),
        };
        Ok(writers.contains(&writer))
    }
}

/// The writers of an owner whose containers other disks reference, or have referenced.
pub(crate) fn referred(folder: &Folder) -> Result<HashSet<WriterNo>> {
    parse_folders(&*folder.store, &names::referrers_of(&folder.path), |no| no.parse().ok().map(WriterNo))
}

/// The disks that reference containers of a writer, or have referenced them.
pub(crate) fn of_writer(folder: &Folder, writer: WriterNo) -> Result<BTreeSet<DiskId>> {
    let prefix = names::referrers_of_writer(&folder.path, writer);
    let mut disks: BTreeSet<DiskId> =
        parse_names(&*folder.store, &prefix, |disk| disk.parse::<DiskId>().ok())?;
    // A directory in the place of a record is not listed as an object, but it says as much.
    disks.extend(parse_folders::<DiskId, Vec<_>>(&*folder.store, &prefix, |disk| disk.parse().ok())?);
    Ok(disks)
}

/// Whether more than `most` disks reference containers of some writers, or have done so.
pub(crate) fn are_more(folder: &Folder, writers: &BTreeSet<WriterNo>, most: usize) -> Result<bool> {
    let mut disks = BTreeSet::new();
    for writer in writers {
        disks.extend(of_writer(folder, *writer)?);
        if disks.len() > most {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Records that a disk references containers of a writer, which it has claimed: nobody removes the record meanwhile.
pub(crate) fn add(owner: &Folder, writer: WriterNo, disk: DiskId) -> Result<()> {
    if is_recorded(owner, writer, disk)? {
        return Ok(());
    }
    put(owner, writer, disk)
}

fn put(owner: &Folder, writer: WriterNo, disk: DiskId) -> Result<()> {
    let name = names::referrer(&owner.path, writer, disk);
    let frame = encode_mark(Kind::Referrer, owner.context(&name));
    match owner.store.put(&name, &[&frame]) {
        Ok(()) | Err(StoreError::AlreadyExists { .. }) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Whether it is on record that a disk references containers of a writer.
pub(crate) fn is_recorded(owner: &Folder, writer: WriterNo, disk: DiskId) -> Result<bool> {
    match owner.store.len(&names::referrer(&owner.path, writer, disk)) {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound { .. }) => Ok(false),
        // There is an object that cannot be read. Listings include it, so it counts.
        Err(StoreError::Unreadable { .. }) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// Puts the records of a disk that are missing: without them its owners would remove what it needs.
pub(crate) fn put_back(disk: &Folder) -> Result<()> {
    let m = disk.load_root()?;
    let mut pairs = BTreeSet::new();
    Containers::new(disk.clone(), &m).each(|e| {
        pairs.extend((!e.id.is_own()).then(|| (e.id.owner(), e.id.writer())));
        Ok(())
    })?;
    for (no, writer) in pairs {
        let Some(owner) = m.owner(no).map(|owner| disk.of(owner)) else { continue };
        // Where there is no owner, there is nothing to remove.
        if is_recorded(&owner, writer, disk.disk)? || owner.load_tagged()?.is_none() {
            continue;
        }
        put(&owner, writer, disk.disk)?;
        // The owner may have been removed meanwhile, since the disk no longer needs it: a record by itself would make its
        // folder look like one that has lost its manifest.
        if owner.load_tagged()?.is_none() {
            remove(&owner, writer, disk.disk)?;
        }
    }
    Ok(())
}

/// Removes the record.
pub(crate) fn remove(owner: &Folder, writer: WriterNo, disk: DiskId) -> Result<()> {
    owner.store.delete(&names::referrer(&owner.path, writer, disk))?;
    Ok(())
}
