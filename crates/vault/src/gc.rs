//! Collection: what crashes, cancellations and running readers have left behind.
//!
//! For every folder: dead writers are fenced; pending deletions and reverse passes are carried through; objects that no manifest names
//! and no registered writer may have put are removed; containers are compacted; what is released is deleted.
//! Nothing here locks the vault: backups, restores and deletions go on beside it.

use crate::compact::{compact_folder, CompactReport};
use crate::delete::carry_through;
use crate::disks::{self, DiskAt};
use crate::error::{Result, VaultError};
use crate::folder::{Containers, Folder};
use crate::leaks;
use crate::listing::damage_line;
use crate::reader::Reader;
use crate::recipe::recipe_of;
use crate::released::delete_released;
use crate::reverse::{reverse_pending, ReverseReport};
use crate::session::Session;
use crate::sweep::sweep_shared;
use crate::vault::{has_objects, Vault};
use format::{names, DiskId, Manifest, Release, SnapId, WriterKind, WriterNo};
use std::collections::HashSet;
use store::StoreError;

/// Share of dead chunks from which collection compacts a container.
pub const COMPACT_AT_COLLECTION: f64 = 0.25;

/// What a collection did, or would do.
#[derive(Clone, Debug, Default)]
pub struct GcReport {
    /// Objects that nothing named.
    pub orphans: u64,
    /// Their bytes, and those of what was released.
    pub freed_bytes: u64,
    /// Dead sessions and readers.
    pub dead_sessions: u64,
    /// Deleted snapshots that wait for a running backup.
    pub waiting: usize,
    /// Snapshots whose pending reverse pass was carried out.
    pub reversed: u64,
    /// Chunks that deletion by filters had left.
    pub repaired_chunks: u64,
    /// Compaction.
    pub compacted: CompactReport,
    /// Folders that could not be collected because of damage, and what it is.
    pub skipped: Vec<String>,
    /// Folders that other maintenance kept busy for too long.
    pub busy: Vec<String>,
}

impl GcReport {
    pub(crate) fn add_compaction(&mut self, c: CompactReport) {
        self.compacted.containers += c.containers;
        self.compacted.damaged += c.damaged;
        self.compacted.no_room += c.no_room;
        self.compacted.before_bytes += c.before_bytes;
        self.compacted.after_bytes += c.after_bytes;
    }
}

impl Vault {
    /// Collects. With `dry_run` nothing changes, and the report says what is waiting.
    pub fn gc(&self, dry_run: bool) -> Result<GcReport> {
        let mut report = GcReport::default();
        let mut full = None;
        if dry_run {
            for at in self.disks_to_collect(&mut report)? {
                let folder = at.folder;
                let looked = Reader::open(&folder).and_then(|_reader| orphans_of(&folder)).map(|found| {
                    for object in found {
                        report.freed_bytes += folder.store.allocated(&object).unwrap_or(0);
                        report.orphans += 1;
                    }
                });
                skip_damage(&mut report, &mut full, &at.name, looked)?;
            }
            return Ok(report);
        }
        report.freed_bytes += self.store.sweep()?;
        for at in self.disks_to_collect(&mut report)? {
            let done = collect_folder(self, &at.folder, COMPACT_AT_COLLECTION, &mut report);
            skip_damage(&mut report, &mut full, &at.name, done)?;
        }
        let done = sweep_shared(self, COMPACT_AT_COLLECTION, &mut report);
        skip_damage(&mut report, &mut full, "shared", done)?;
        self.remove_nameless(&mut report)?;
        self.remove_dead_holds(&mut report)?;
        report.freed_bytes += self.store.sweep()?;
        full.map_or(Ok(report), Err)
    }

    /// Compacts containers with a share of `threshold` dead chunks or more, of one disk or of all.
    pub fn compact(&self, disk: Option<&str>, threshold: f64) -> Result<GcReport> {
        let mut report = GcReport::default();
        let mut full = None;
        let disks = match disk {
            Some(name) => vec![disks::one(self, name)?],
            None => self.disks_to_collect(&mut report)?,
        };
        for at in disks {
            let done = collect_folder(self, &at.folder, threshold, &mut report);
            skip_damage(&mut report, &mut full, &at.name, done)?;
        }
        if disk.is_none() {
            let done = sweep_shared(self, threshold, &mut report);
            skip_damage(&mut report, &mut full, "shared", done)?;
        }
        full.map_or(Ok(report), Err)
    }

    /// All disks. One whose name is damaged is collected as well, and the damage is said.
    fn disks_to_collect(&self, report: &mut GcReport) -> Result<Vec<DiskAt>> {
        let (disks, nowhere) = disks::listed(self)?;
        let faults = disks.iter().filter_map(|d| d.name_fault.clone()).chain(nowhere);
        report.skipped.extend(faults.map(damage_line));
        Ok(disks)
    }

    /// Folders of disks that have no name: their first backup lost a race or was killed before it began.
    fn remove_nameless(&self, report: &mut GcReport) -> Result<()> {
        let named: HashSet<DiskId> = disks::listed(self)?.0.iter().map(|d| d.folder.disk).collect();
        for folder in self.all_folders()?.into_iter().filter(|f| !named.contains(&f.disk)) {
            let id = folder.disk;
            let m = match folder.load_tagged() {
                Ok(Some((m, _))) => m,
                // Another collection was faster.
                Ok(None) if !has_objects(&*self.store, &folder.path)? => continue,
                _ => {
                    report.skipped.push(format!("{}: has no readable manifest and no name", folder.path));
                    continue;
                }
            };
            // Its name may have come since it was looked for, and one with snapshots may have lost its name by damage.
            let named = self.find_disk(&m.name).ok().flatten().is_some_and(|f| f.disk == id);
            if named || !m.snapshots.is_empty() || any_living(&folder, &m)? {
                continue;
            }
            // Whoever was registered a moment ago may have given it its name, and ended.
            let is_same = folder.load_tagged()?.is_some_and(|(now, _)| now.sequence == m.sequence);
            if !is_same || self.find_disk(&m.name)?.is_some_and(|f| f.disk == id) {
                continue;
            }
            let mut objects = Vec::new();
            self.store.list(&folder.path, &mut |e| {
                objects.push(e);
                Ok(())
            })?;
            // The manifest last: without it the rest could not be told from a damaged disk.
            objects.sort_by_key(|e| e.name == folder.manifest_name());
            for e in objects {
                self.store.delete(&e.name)?;
                report.orphans += 1;
                report.freed_bytes += e.len;
            }
        }
        Ok(())
    }

    /// Sessions, readers and claims of processes that are no more.
    fn remove_dead_holds(&self, report: &mut GcReport) -> Result<()> {
        for prefix in [names::SESSIONS, names::READERS, names::CLAIMS] {
            let mut found = Vec::new();
            self.store.list(prefix, &mut |e| {
                found.push(e.name);
                Ok(())
            })?;
            for object in found {
                let holder = match prefix {
                    names::CLAIMS => {
                        let token = object.rsplit('/').next().unwrap_or_default();
                        format!("{}{token}", names::SESSIONS)
                    }
                    _ => object.clone(),
                };
                if !self.store.is_held(&holder)? && self.store.delete(&object)? {
                    report.dead_sessions += 1;
                }
            }
        }
        Ok(())
    }
}

/// What is wrong with one folder is said and does not hold up the others.
fn skip_damage(
    report: &mut GcReport,
    full: &mut Option<VaultError>,
    name: &str,
    done: Result<()>,
) -> Result<()> {
    match done {
        Err(e) if e.is_damage() => {
            report.skipped.push(format!("{name}: {e}"));
            Ok(())
        }
        // The other folders may give room; it is told at the end.
        Err(e) if e.is_full() => {
            full.get_or_insert(e);
            Ok(())
        }
        Err(e @ VaultError::Busy { .. }) => {
            report.busy.push(e.to_string());
            Ok(())
        }
        other => other,
    }
}

fn any_living(folder: &Folder, m: &Manifest) -> Result<bool> {
    for w in &m.writers {
        if folder.store.is_held(&names::session(w.token))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Collects one disk's folder.
fn collect_folder(vault: &Vault, folder: &Folder, threshold: f64, report: &mut GcReport) -> Result<()> {
    let mut session = Session::begin(folder, WriterKind::Maintenance)?;
    fence_dead(&session)?;
    // Room first: what follows needs some.
    remove_orphans(&session, report)?;
    report.freed_bytes += delete_released(folder, Some(session.writer))?;
    let mut reversed = ReverseReport::default();
    let carried = carry_through(&session, threshold)
        .map(|waiting| report.waiting += waiting)
        .and_then(|()| reverse_pending(vault, &mut session, false, threshold, &mut reversed));
    report.reversed += reversed.snapshots;
    let repaired = leaks::repair(&mut session, threshold).map(|chunks| report.repaired_chunks += chunks);
    let carried = carried.and(repaired);
    if carried.as_ref().is_err_and(|e| !e.is_damage() && !e.is_full()) {
        return carried;
    }
    report.freed_bytes += delete_released(folder, Some(session.writer))?;
    report.add_compaction(compact_folder(&session, threshold, None)?);
    report.freed_bytes += delete_released(folder, Some(session.writer))?;
    session.end()?;
    carried
}

/// Takes writers that no longer live out of the manifest: they cannot commit any more.
pub(crate) fn fence_dead(session: &Session) -> Result<()> {
    let folder = &session.folder;
    let mut dead: HashSet<SnapId> = HashSet::new();
    for w in folder.load()?.writers {
        if w.no != session.writer && !folder.store.is_held(&names::session(w.token))? {
            dead.insert(w.token);
        }
    }
    if !dead.is_empty() {
        session.swap(|m, _, _| {
            m.writers.retain(|w| !dead.contains(&w.token));
            Ok(())
        })?;
    }
    Ok(())
}

/// Removes what no manifest names and no registered writer may have put.
pub(crate) fn remove_orphans(session: &Session, report: &mut GcReport) -> Result<()> {
    let store = &session.folder.store;
    for object in orphans_of(&session.folder)? {
        report.freed_bytes += match store.allocated(&object) {
            Err(StoreError::NotFound { .. }) => 0,
            other => other?,
        };
        report.orphans += u64::from(store.delete(&object)?);
    }
    Ok(())
}

/// The objects of a folder that nothing names. Listed before the manifest is read: whoever put an object that was
/// listed is registered still, or has committed, or never will.
fn orphans_of(folder: &Folder) -> Result<Vec<String>> {
    let mut objects = Vec::new();
    folder.store.list(&folder.path, &mut |e| {
        objects.push(e.name);
        Ok(())
    })?;
    let m = folder.load()?;
    let registered: HashSet<WriterNo> = m.writers.iter().map(|w| w.no).collect();
    let named = named_objects(folder, &m)?;
    objects.retain(|o| names::writer_of(o).is_some_and(|w| !registered.contains(&w)) && !named.contains(o));
    Ok(objects)
}

/// Every object below the folder that its manifest names or has yet to delete.
pub(crate) fn named_objects(folder: &Folder, m: &Manifest) -> Result<HashSet<String>> {
    let path = &folder.path;
    let mut named: HashSet<String> = HashSet::new();
    named.extend(m.released.iter().filter_map(|r| match &r.what {
        Release::Object(name) => Some(name.clone()),
        Release::Punch { .. } => None,
    }));
    named.insert(folder.manifest_name());
    named.extend(m.pages.iter().map(|p| names::page(path, p.writer, p.number)));
    for s in &m.snapshots {
        named.insert(names::recipe_root(path, recipe_of(s)));
        named.insert(names::bloom(path, recipe_of(s)));
        named.extend(s.depends.iter().map(|d| names::recipe_pages(path, *d)));
    }
    Containers::new(folder.clone(), m).each(|e| {
        if folder.owns(e.id) {
            named.insert(names::data(path, e.data));
            named.insert(names::table(path, e.id, e.table));
            if e.dead != WriterNo(0) {
                named.insert(names::dead(path, e.id, e.dead));
            }
        }
        Ok(())
    })?;
    Ok(named)
}
