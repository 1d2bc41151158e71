//! Verification: checks that all objects that snapshots need exist and are undamaged, and names the snapshots that each
//! damaged object affects (`docs/flows/verify.md`).
//!
//! 1. Finds the disks by their folders, and reports damaged or wrong name objects ([`crate::manifest::disks`]).
//! 2. Checks one disk at a time, under a reader lease: its container pages and recipes, and that every reference
//!    resolves ([`recipes`]).
//! 3. Checks tables, lists of dead chunks and data objects of its containers; with `data` every group and chunk
//!    ([`containers`]).
//! 4. If something is damaged, finds the snapshots that it affects, from their summaries ([`affected`]).
//! 5. Records containers whose data or table is damaged in their owner's manifest: later backups do not reference them.
//!
//! Where what was found of containers takes too much memory, steps 4 and 5 come in between ([`settle`]).
//!
//! Damage does not stop it. Shared containers are checked once, however many disks use them. An object that another
//! process deletes meanwhile is not damaged.

mod affected;
mod again;
pub(crate) mod bad_chunks;
mod containers;
mod descent;
pub(crate) mod findings;
mod found;
mod gone;
mod recipes;
mod record;
mod references;
mod remember;
mod settle;
mod snapshot_pages;

use crate::base::error::{fault, Result, UnlessDamaged, VaultError};
use crate::base::progress::Progress;
use crate::container::container_set::ContainerSet;
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::lookup::popular::newest_set;
use crate::lookup::{hooks, referrers};
use crate::manifest::container_table::Containers;
use crate::manifest::disks::{self, unlisted, DiskAt};
use crate::manifest::folder::Folder;
use crate::manifest::reader::Reader;
use crate::manifest::rollback::{read_record, Evidence};
use crate::manifest::vault::{now, Vault};
use crate::reclaim::dead_list::{live_chunks_of_all, live_chunks_of_each};
use crate::report::verifications::LastVerifications;
use crate::verify::findings::Damage;
use bad_chunks::BadChunks;
use containers::ContainerCheck;
use descent::SnapshotIndex;
use findings::{ContainerFindings, Findings, More, Reads};
use format::{
    names, ContainerEntry, ContainerId, DiskId, Manifest, OwnerNo, RunSet, Sequence, SnapshotEntry,
    SnapshotState,
};
use recipes::RecipeCheck;
use remember::{CheckedDisk, Run};
use settle::{Known, Owner};
use snapshot_pages::snapshot_pages;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Pages of a container table whose containers are looked at together.
const PAGES_AT_ONCE: usize = 32;
/// Chunks of containers whose entries a repair has made anew that are looked at together. What is known of them takes four bytes
/// each at worst, where every other one is referenced.
const REBUILT_CHUNKS_AT_ONCE: u64 = 8 << 20;
/// Containers referenced that are looked at together.
const CONTAINERS_AT_ONCE: usize = 8192;

/// What a verification found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Disks looked at.
    pub disks: u64,
    /// Snapshots looked at.
    pub snapshots: u64,
    /// Containers looked at, each once.
    pub containers: u64,
    /// Objects looked at.
    pub objects_checked: u64,
    /// Bytes of chunks that were read and compared with their fingerprints.
    pub data_bytes: u64,
    /// Bytes of chunk groups that were read for that.
    pub stored_bytes_read: u64,
    /// What is damaged, by object.
    pub damaged: Vec<Damage>,
    /// Why damaged containers could not be recorded in a manifest, where that failed.
    pub unrecorded: Option<String>,
    /// Whether snapshots of other disks may be affected that are not named, because they were not compared with what is damaged.
    pub others_left: bool,
    /// Why what it found could not be kept for `status` and lists of snapshots, where that failed.
    pub not_kept: Option<String>,
    /// Containers whose data, table or list of dead chunks is damaged, by owner, as it names them.
    pub(crate) containers_damaged: BTreeMap<DiskId, ContainerSet>,
    /// Chunks that cannot be read, by owner.
    pub(crate) bad: BTreeMap<DiskId, BadChunks>,
    /// Whether there are owners of which nothing can be read.
    pub(crate) lacks_owners: bool,
    /// Whether there are more damaged containers, or chunks that cannot be read, than there was room for here.
    pub(crate) is_cut: bool,
}

/// What is looked at.
#[derive(Clone, Copy)]
pub(crate) enum Scope<'a> {
    Everything,
    /// These disks, as a whole.
    Disks(&'a [&'a str]),
    /// One snapshot: its disk, and what names it.
    Snapshot(&'a str, &'a str),
}

/// What it is run for: this decides how what was found is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Verify,
    Repair,
}

/// One run of a verification.
struct Verification<'a> {
    vault: &'a Vault,
    reads: &'a Reads,
    purpose: Purpose,
    progress: &'a Progress,
    report: VerifyReport,
    /// When it began, in seconds since 1970.
    began: i64,
    /// What was kept of others then.
    before: LastVerifications,
    /// The disks that were looked at as a whole.
    looked: Vec<CheckedDisk>,
    /// What is known of containers.
    known: Known<'a>,
    /// What the report has no room for.
    more: More,
    /// Whether there are disks of which so little can be read that others which need their containers were not compared with them.
    lacks_disks: bool,
}

impl Vault {
    /// Looks at everything, at one disk, or at one snapshot; with `data` also reads all chunks. Without, it reads those of the
    /// containers that are recorded as damaged, so that it tells of known damage until that is healed.
    ///
    /// Damage is in the report. An error is what keeps it from looking.
    pub fn verify(
        &self,
        what: Option<(&str, Option<&str>)>,
        data: bool,
        progress: &Progress,
    ) -> Result<VerifyReport> {
        match what {
            None => self.verify_scope(Scope::Everything, data, progress),
            Some((disk, None)) => self.verify_scope(Scope::Disks(&[disk]), data, progress),
            Some((disk, Some(snapshot))) => {
                self.verify_scope(Scope::Snapshot(disk, snapshot), data, progress)
            }
        }
    }

    /// [`Vault::verify`] of some disks. What they share is looked at once.
    ///
    /// # Errors
    /// Also if one of them does not exist: then none is looked at.
    pub fn verify_disks(&self, disks: &[&str], data: bool, progress: &Progress) -> Result<VerifyReport> {
        self.verify_scope(Scope::Disks(disks), data, progress)
    }

    fn verify_scope(&self, scope: Scope<'_>, data: bool, progress: &Progress) -> Result<VerifyReport> {
        let reads = if data { Reads::All } else { Reads::Recorded };
        self.verify_reading(scope, &reads, Purpose::Verify, progress)
    }

    /// [`Vault::verify`], which reads the chunks of some containers.
    pub(crate) fn verify_reading(
        &self,
        scope: Scope<'_>,
        reads: &Reads,
        purpose: Purpose,
        progress: &Progress,
    ) -> Result<VerifyReport> {
        let mut run = Verification::new(self, reads, purpose, progress);
        run.before = self.last_verifications();
        match run.look(scope) {
            Ok(()) => run.finish(matches!(scope, Scope::Everything)),
            Err(e) => {
                run.keep_sound();
                Err(e)
            }
        }
    }
}

impl<'a> Verification<'a> {
    /// One that begins now.
    fn new(vault: &'a Vault, reads: &'a Reads, purpose: Purpose, progress: &'a Progress) -> Self {
        Verification {
            vault,
            reads,
            purpose,
            progress,
            report: VerifyReport::default(),
            began: now(),
            before: LastVerifications::default(),
            looked: Vec::new(),
            known: Known::new(vault, progress),
            more: More::default(),
            lacks_disks: false,
        }
    }

    /// Looks at what is asked for.
    fn look(&mut self, scope: Scope<'_>) -> Result<()> {
        self.vault_file()?;
        match scope {
            Scope::Snapshot(disk, snapshot) => self.disk(&disks::one(self.vault, disk)?, Some(snapshot))?,
            Scope::Disks(names) => {
                let mut found = Vec::new();
                for name in names {
                    match disks::one(self.vault, name) {
                        Err(e) if e.is_damage() && names.len() > 1 => self.tell(e)?,
                        at => found.push(at?),
                    }
                }
                let mut looked = HashSet::new();
                for at in found.iter().filter(|at| looked.insert(at.folder.disk)) {
                    match self.disk(at, None) {
                        // One of which too little is left to go on keeps no other from being looked at.
                        Err(e) if e.is_damage() && names.len() > 1 => self.tell(e)?,
                        done => done?,
                    }
                }
            }
            Scope::Everything => {
                let (disks, nameless) = disks::all(self.vault)?;
                for (object, why) in nameless {
                    self.report.damaged.push(Damage { object, why, snapshots: Vec::new() });
                }
                self.announce(&disks)?;
                for at in &disks {
                    self.disk(at, None)?;
                }
                self.popular_set()?;
                self.hooks()?;
            }
        }
        Ok(())
    }

    /// Puts damage into the report that kept it from looking at a disk.
    fn tell(&mut self, e: VaultError) -> Result<()> {
        let (object, why) = fault(e)?;
        self.report.damaged.push(Damage { object, why, snapshots: Vec::new() });
        self.lacks_disks = true;
        Ok(())
    }

    /// Keeps what is known of the disks that were looked at before an error, or a signal, ended it: if nothing at all was found
    /// to be damaged, in the disk that was looked at last neither.
    fn keep_sound(&mut self) {
        let others = &self.known.others;
        let is_sound = others.room.is_untouched() && others.gone.is_empty() && self.report.damaged.is_empty();
        if is_sound && !self.looked.is_empty() && self.purpose == Purpose::Verify {
            self.keep(false);
        }
    }

    /// Damage in `vault.json` and its copy. One of them is enough.
    fn vault_file(&mut self) -> Result<()> {
        self.report.objects_checked += 2;
        let faults = self.vault.file_faults()?;
        let both = faults.len() > 1;
        for (object, why) in faults {
            let mut found = Findings::within(&self.known.others.room);
            let at = found.add(&object, &why);
            let snapshots =
                if both { self.vault.snapshots(None).unwrap_or_default().snapshots } else { Vec::new() };
            for s in snapshots {
                found.affects(at, &format!("{}@{}", s.disk, s.entry.id));
            }
            found.report(&mut self.report.damaged, &mut self.more);
        }
        Ok(())
    }

    /// Tells how much there is to read.
    fn announce(&self, disks: &[DiskAt]) -> Result<()> {
        let mut bytes = 0;
        let folders = disks.iter().map(|d| d.folder.clone()).chain([self.vault.popular()]);
        for folder in folders {
            // What cannot be read here is told later.
            let Ok(Some((m, _))) = folder.load_tagged() else { continue };
            let _ = Containers::new(folder.clone(), &m).each(|e| {
                bytes += if e.id.is_own() { e.stored_bytes } else { 0 };
                Ok(())
            });
        }
        self.progress.set_total(bytes);
        self.progress.check()
    }

    /// Looks at one disk.
    fn disk(&mut self, at: &DiskAt, snapshot: Option<&str>) -> Result<()> {
        // What its referrers have found already.
        let mut own = self.known.others.take(at.folder.disk);
        self.known.others.gone.move_into(at.folder.disk, &mut own.found);
        if let Some((object, why)) = &at.name_fault {
            // Its snapshots can be restored all the same: its manifest has the name.
            own.found.add(object, why);
        }
        self.report.disks += 1;
        self.report.objects_checked += u64::from(at.name_fault.is_none()) + 1;
        let evidence = Evidence::of_folder(&at.folder)?;
        let view = self.vault.view(&at.folder, TABLE_CACHE_BYTES);
        let view = match view.and_then(|view| view.whole().map(drop).map(|()| view)) {
            Ok(view) => view,
            Err(e) => {
                let (object, why) = fault(e)?;
                let manifest = own.found.add(&object, &why);
                let root = at.folder.load_root().unless_unreadable()?;
                if let Some(m) = &root {
                    self.report.objects_checked += snapshot_pages(&at.folder, m, &mut own.found)?;
                }
                // Those that the manifest itself has can be restored where only a page of older ones is lost.
                let recent = root.map_or(Vec::new(), |m| m.recent);
                for s in affected::of_unreadable_disk(at, &recent)? {
                    own.found.affects(manifest, &s);
                }
                self.looked.push(CheckedDisk::at(at.folder.disk, &at.name, None));
                self.lacks_disks = true;
                return self.conclude(at, own, false);
            }
        };
        let asked = snapshot.map(|spec| view.find(&at.name, spec)).transpose()?.map(|s| s.id);
        let is_wanted = |s: &SnapshotEntry| match asked {
            Some(id) => s.id == id,
            None => s.state == SnapshotState::Live,
        };
        if let Err(e) = evidence.check(&at.folder, &view.manifest) {
            let (object, why) = fault(e)?;
            let rolled_back = own.found.add(&object, &why);
            for s in unlisted(at, &view.manifest, &view.whole()?.snapshots)? {
                own.found.affects(rolled_back, &s);
            }
        }
        self.commit_record(&at.folder, view.manifest.sequence, &evidence, &mut own)?;
        self.report.objects_checked += snapshot_pages(&view.folder, &view.manifest, &mut own.found)?;
        let all = view.whole()?.snapshots.iter().enumerate();
        let wanted: BTreeSet<SnapshotIndex> =
            all.filter(|(_, s)| is_wanted(s)).map(|(no, _)| SnapshotIndex(no)).collect();
        self.report.snapshots += wanted.len() as u64;
        let listed = view.manifest.damaged.iter().copied().collect();
        let disk = Some((&view, at.name.as_str()));
        let of = Owner { folder: &view.folder, tables: &view.tables, listed: &listed, disk };
        let (progress, is_whole) = (self.progress, snapshot.is_none());
        let mut look =
            |ids: &ContainerSet, own: &mut ContainerFindings| self.referenced(of, ids, is_whole, own);
        let mut recipes = RecipeCheck::new(&view, &mut own, &mut look);
        recipes.snapshots(&wanted, progress)?;
        let recipes = recipes.finish()?;
        self.report.objects_checked += recipes.objects;
        if is_whole {
            self.report.objects_checked += references::check(&view, &mut own.found, progress)?;
            self.container_table(of, &view.manifest, &mut own)?;
        }
        view.check()?;
        let others_sound = self.known.others.gone.is_empty()
            && self.known.others.owners.values().all(|o| o.found.is_empty());
        let is_sound = own.found.is_empty() && others_sound;
        if !is_sound && view.may_have_lost() {
            return Err(VaultError::Gone { object: at.folder.manifest_name() });
        }
        affected::attribute(&view, &at.name, &recipes, &mut own, &mut self.known.others, true)?;
        self.known.compared.insert(at.folder.disk);
        if snapshot.is_none() {
            self.looked.push(CheckedDisk::at(at.folder.disk, &at.name, Some(&view.manifest)));
        }
        self.conclude(at, own, true)
    }

    /// The newest commit record up to the manifest: if that is lost, it is put again from the record. Later records have
    /// been looked at: they prove a rollback, or are none of this folder.
    fn commit_record(
        &mut self,
        folder: &Folder,
        sequence: Sequence,
        evidence: &Evidence,
        own: &mut ContainerFindings,
    ) -> Result<()> {
        let Some(newest) = evidence.commits().into_iter().find(|c| *c <= sequence) else { return Ok(()) };
        self.report.objects_checked += 1;
        let read = match read_record(folder, newest) {
            // A session that has ended since has put another one.
            Err(VaultError::Missing { .. }) => return Ok(()),
            read => read,
        };
        own.found.tell(read, "; restores do not need it, `sapwood repair` puts it again")?;
        Ok(())
    }

    /// Looks at the pages of a container table and at the containers of their owner, some pages at a time.
    fn container_table(&mut self, of: Owner<'_>, m: &Manifest, own: &mut ContainerFindings) -> Result<()> {
        let (table, mut unreadable) = (Containers::new(of.folder.clone(), m), HashSet::new());
        for pages in m.pages.chunks(PAGES_AT_ONCE) {
            let mut ids = Vec::new();
            for at in pages {
                self.report.objects_checked += 1;
                let Some(page) = own.found.tell(of.folder.read_page(at), "")? else { continue };
                for e in page.entries.iter().filter(|e| e.id.is_own()) {
                    ids.push(e.id);
                    let other = e.data.container;
                    if other == e.id || unreadable.contains(&table.page_of(other)) {
                        continue;
                    }
                    match table.get(other).unless_damaged()? {
                        None => drop(unreadable.insert(table.page_of(other))),
                        Some(None) => {}
                        // Who removes that container takes the data away.
                        Some(Some(_)) => {
                            let page = names::page(&of.folder.path, at.writer, at.number);
                            let why = format!("container {} has the data of container {other}", e.id);
                            own.found.tell::<()>(Err(VaultError::corrupt(&page, why)), "")?;
                        }
                    }
                }
            }
            self.containers(of, &ids, own)?;
        }
        Ok(())
    }

    /// Looks at containers that snapshots reference. With `is_whole`, those in the owner's own table are looked at with that.
    fn referenced(
        &mut self,
        of: Owner<'_>,
        ids: &ContainerSet,
        is_whole: bool,
        own: &mut ContainerFindings,
    ) -> Result<()> {
        let is_listed = |id: ContainerId| id.is_own() && matches!(of.tables.own().get(id), Ok(Some(_)));
        let mut ids = ids.iter().filter(|id| !(is_whole && is_listed(*id)));
        loop {
            let some: Vec<ContainerId> = ids.by_ref().take(CONTAINERS_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.containers(of, &some, own)?;
        }
    }

    /// Looks at those of the containers that have not been looked at yet.
    fn containers(&mut self, of: Owner<'_>, ids: &[ContainerId], own: &mut ContainerFindings) -> Result<()> {
        let mut left = ids;
        while !left.is_empty() {
            let (some, live) = self.with_live_chunks(of, left, own)?;
            let live = |id: ContainerId| match live.get(&id) {
                Some(live) => Ok(live.clone()),
                None => live_chunks_of_all(&of.tables.folder_of(id), id.local()).unless_unreadable(),
            };
            let reads = |id| of.reads(self.reads, id);
            let check =
                ContainerCheck { tables: of.tables, reads: &reads, progress: self.progress, live: &live };
            let (counts, done) = check.run(&left[..some], own, &mut self.known.others)?;
            left = &left[done..];
            self.report.objects_checked += counts.objects;
            self.report.containers += counts.containers;
            self.report.data_bytes += counts.data_bytes;
            self.report.stored_bytes_read += counts.stored_bytes_read;
            if self.known.others.room.is_full() {
                self.known.settle(of, own)?;
            }
        }
        Ok(())
    }

    /// How many of the containers are looked at together, and what snapshots reference in those of them whose entries a repair
    /// has made anew: `None` where that cannot be told. It is found for all of them at once, because they may be many.
    fn with_live_chunks(
        &self,
        of: Owner<'_>,
        ids: &[ContainerId],
        own: &ContainerFindings,
    ) -> Result<(usize, HashMap<ContainerId, Option<RunSet>>)> {
        let (mut some, mut chunks) = (0, 0);
        let mut of_owners: BTreeMap<OwnerNo, BTreeSet<ContainerId>> = BTreeMap::new();
        for id in ids {
            if chunks >= REBUILT_CHUNKS_AT_ONCE {
                break;
            }
            some += 1;
            if !of.reads(self.reads, *id) {
                continue;
            }
            // Of one that cannot be found it is told when it is looked at.
            let Some(entry) = of.tables.entry(*id).ok().filter(ContainerEntry::is_rebuilt) else { continue };
            let disk = of.tables.folder_of(*id).disk;
            let found = if id.is_own() { Some(own) } else { self.known.others.owners.get(&disk) };
            if !found.is_some_and(|found| found.has_seen(&entry)) {
                chunks += u64::from(entry.chunks);
                of_owners.entry(id.owner()).or_default().insert(id.local());
            }
        }
        let mut all = HashMap::new();
        for (owner, ids) in of_owners {
            let Some(any) = ids.first() else { continue };
            let folder = of.tables.folder_of(any.of(owner));
            let mut live = live_chunks_of_each(&folder, &ids).unless_unreadable()?;
            all.extend(ids.into_iter().map(|id| {
                let of_one = live.as_mut().map(|live| live.remove(&id).unwrap_or_default());
                (id.of(owner), of_one)
            }));
        }
        Ok((some, all))
    }

    /// Keeps what was found of each disk.
    fn keep(&mut self, everything: bool) {
        let (vault, looked, damaged) = (self.vault, &self.looked, &self.report.damaged);
        let read_chunks = matches!(self.reads, Reads::All);
        let (before, is_unlisted) = (std::mem::take(&mut self.before), self.known.is_unlisted);
        let run = Run { began: self.began, read_chunks, is_unlisted, before };
        let kept = match self.purpose {
            Purpose::Repair => remember::keep_repaired(vault, looked, damaged, &run),
            Purpose::Verify => remember::keep(vault, looked, damaged, &run, everything),
        };
        self.report.not_kept = kept.err().map(|e| e.to_string());
    }

    /// Takes over what was found in a disk, unless the disk was deleted meanwhile.
    fn conclude(&mut self, at: &DiskAt, own: ContainerFindings, is_readable: bool) -> Result<()> {
        if !own.found.is_empty() && disks::is_gone(self.vault, at)? {
            return Ok(());
        }
        // Its referrers look at its containers, too: each is looked at once.
        if !referrers::referred(&at.folder)?.is_empty() {
            self.known.others.owners.insert(at.folder.disk, own);
            return Ok(());
        }
        self.add(&at.folder, own, is_readable);
        Ok(())
    }

    /// Takes over what was found in an owner's folder, and records it there.
    fn add(&mut self, folder: &Folder, mut found: ContainerFindings, record: bool) {
        if record {
            self.known.record(folder, &found);
        }
        self.known.keep_for_repair(folder.disk, &found);
        self.known.keep_bad_chunks(folder.disk, std::mem::take(&mut found.bad));
        found.forget();
        found.forget_seen();
        found.found.report(&mut self.report.damaged, &mut self.more);
    }

    /// The popular set: later backups may match what no snapshot references.
    fn popular_set(&mut self) -> Result<()> {
        let folder = self.vault.popular();
        let mut own = self.known.others.take(DiskId::POPULAR);
        self.known.others.gone.move_into(DiskId::POPULAR, &mut own.found);
        let looked = self.look_at_popular_set(&folder, &mut own);
        self.known.others.owners.insert(DiskId::POPULAR, own);
        looked
    }

    fn look_at_popular_set(&mut self, folder: &Folder, own: &mut ContainerFindings) -> Result<()> {
        let evidence = Evidence::of_folder(folder)?;
        let Some((m, _)) = own.found.tell(folder.load_tagged(), "")?.flatten() else { return Ok(()) };
        own.found.tell(evidence.check(folder, &m), "")?;
        self.commit_record(folder, m.sequence, &evidence, own)?;
        drop(m);
        let reader = Reader::open(folder)?;
        self.report.objects_checked += 1;
        let tables = Tables::new(folder, &reader.manifest, false, TABLE_CACHE_BYTES);
        own.found
            .tell(newest_set(folder), "; restores do not need it, `sapwood popular build` makes it anew")?;
        // Those seen before are passed over.
        let listed = reader.manifest.damaged.iter().copied().collect();
        let of = Owner { folder, tables: &tables, listed: &listed, disk: None };
        self.container_table(of, &reader.manifest, own)?;
        reader.check()
    }

    /// The hooks: hints only. What is wrong with one costs space, so only those who read everything look at them all.
    fn hooks(&mut self) -> Result<()> {
        let data = matches!(self.reads, Reads::All);
        for (object, checked) in hooks::check(&self.vault.popular(), data, self.progress)? {
            self.report.objects_checked += 1;
            if let Err(e) = checked {
                let (_, why) = fault(e)?;
                let why = format!("{why}; restores do not need it, `sapwood reindex` makes it anew");
                self.report.damaged.push(Damage { object, why, snapshots: Vec::new() });
            }
        }
        Ok(())
    }

    /// Compares the other disks with what is damaged in owners of whose containers they may reference some, and ends.
    fn finish(mut self, everything: bool) -> Result<VerifyReport> {
        // Each clone of a damaged template would be compared with all others each time that one of them is verified.
        let others = &self.known.others;
        let is_known = matches!((self.purpose, self.reads), (Purpose::Verify, Reads::Recorded));
        let is_news = if is_known { others.is_any_bad_unread() } else { others.is_any_bad() };
        let mut may_miss = self.lacks_disks || others.is_any_bad() && !is_news;
        if !everything && may_miss {
            let is_left = |at: &DiskAt| !self.known.compared.contains(&at.folder.disk);
            may_miss = disks::all(self.vault)?.0.iter().any(is_left);
        }
        if !everything && is_news {
            let unreadable = self.known.compare_others(None, true)?;
            may_miss |= unreadable.iter().any(|disk| !self.looked.iter().any(|looked| looked.is(*disk)));
        }
        self.report.others_left = !everything && may_miss;
        let others = std::mem::take(&mut self.known.others);
        let mut gone = others.gone;
        self.report.lacks_owners = !gone.is_empty();
        for (disk, mut found) in others.owners {
            gone.move_into(disk, &mut found.found);
            let is_seen = found.has_looked();
            self.add(&self.vault.folder(disk), found, is_seen);
        }
        gone.report(&mut self.report.damaged, &mut self.more);
        self.report.damaged.extend(std::mem::take(&mut self.more).into_damage());
        self.report.damaged.sort_by(|a, b| a.object.cmp(&b.object));
        // That of an owner, say, which kept it from being looked at, and of which disks lack containers.
        self.report.damaged.dedup_by(|next, kept| {
            let is_same = (&next.object, &next.why) == (&kept.object, &kept.why);
            if is_same {
                kept.snapshots.append(&mut next.snapshots);
            }
            is_same
        });
        self.keep(everything);
        let Known { to_repair, bad, is_cut, unrecorded, .. } = self.known;
        Ok(VerifyReport { containers_damaged: to_repair, bad, is_cut, unrecorded, ..self.report })
    }
}
