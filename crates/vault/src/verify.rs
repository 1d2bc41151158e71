//! Verification: checks that all objects that snapshots need exist and are undamaged, and names the snapshots that each
//! damaged object affects (`docs/flows/verify.md`).
//!
//! 1. Finds the disks by their folders, and reports damaged or wrong name objects ([`crate::manifest::disks`]).
//! 2. Checks one disk at a time, under a reader lease: its container pages and recipes, and that every reference
//!    resolves ([`checks::recipes`]).
//! 3. Checks tables, lists of dead chunks and data objects of its containers; with `data` every group and chunk
//!    ([`checks::containers`]).
//! 4. If something is damaged, finds the snapshots that it affects, from their summaries ([`affected`]).
//! 5. Records containers whose data or table is damaged in their owner's manifest: later backups do not reference them.
//!
//! Where what was found of containers takes too much memory, steps 4 and 5 come in between ([`settle`]).
//!
//! Damage does not stop it. Shared containers are checked once, however many disks use them. An object that another
//! process deletes meanwhile is not damaged.

mod affected;
mod again;
mod checks;
mod container_table;
mod disk;
pub(crate) mod findings;
pub(crate) mod owner;
mod record;
mod remember;
pub(crate) mod report;
pub(crate) mod run;
mod settle;
mod shared;

use crate::base::error::Result;
use crate::base::progress::Progress;
use crate::manifest::container_table::Containers;
use crate::manifest::disks::{self, DiskAt};
use crate::manifest::vault::Vault;
use findings::damage::Damage;
use owner::Reads;
use report::VerifyReport;
use run::{Purpose, Verification};
use settle::Known;
use std::collections::HashSet;

/// What is looked at.
#[derive(Clone, Copy)]
pub(crate) enum Scope<'a> {
    Everything,
    /// These disks, as a whole.
    Disks(&'a [&'a str]),
    /// The same, that were found before.
    At(&'a [DiskAt]),
    /// One snapshot: its disk, and what names it.
    Snapshot(&'a str, &'a str),
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

impl Verification<'_> {
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
                self.disks(&found, names.len() > 1)?;
            }
            Scope::At(found) => self.disks(found, true)?,
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

    /// Looks at some disks, each once. With `goes_on`, one of which too little is left to go on keeps no other from being looked at.
    fn disks(&mut self, found: &[DiskAt], goes_on: bool) -> Result<()> {
        let mut looked = HashSet::new();
        for at in found.iter().filter(|at| looked.insert(at.folder.disk)) {
            match self.disk(at, None) {
                Err(e) if e.is_damage() && goes_on => self.tell(e)?,
                done => done?,
            }
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
