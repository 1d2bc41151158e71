//! Bounds what a verification knows of containers: where it takes too much memory ([`Vault::with_findings_bytes`]), the
//! snapshots that the damage affects are named at once, the damage is recorded, and what was known is forgotten. What is told
//! is what would have been told in the end.

use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::base::memory::give_back;
use crate::base::progress::Progress;
use crate::container::container_set::ContainerSet;
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::vault::Vault;
use crate::verify::affected::attribute;
use crate::verify::checks::recipes::RecipeFindings;
use crate::verify::findings::bad_chunks::BadChunks;
use crate::verify::findings::containers::ContainerFindings;
use crate::verify::findings::others::OtherFindings;
use crate::verify::findings::room::Room;
use crate::verify::owner::Owner;
use crate::verify::record::record;
use format::DiskId;
use std::collections::{BTreeMap, HashSet};

/// Memory for the containers that a repair is to look at, in bytes.
const TO_REPAIR_BYTES: usize = 16 << 20;
/// Memory for the chunks that cannot be read of owners that are done with, in bytes.
const BAD_BYTES: usize = 16 << 20;

/// What is known of containers, and where the damaged ones go.
pub(super) struct Known<'a> {
    vault: &'a Vault,
    progress: &'a Progress,
    /// What was found in owners that have referrers, or that are referenced by what was looked at.
    pub others: OtherFindings,
    /// The disks whose snapshots have been compared with what is damaged in other owners.
    pub compared: HashSet<DiskId>,
    /// The containers that a repair is to look at, by owner.
    pub to_repair: BTreeMap<DiskId, ContainerSet>,
    /// Chunks that cannot be read, by owner.
    pub bad: BTreeMap<DiskId, BadChunks>,
    /// Whether there was no room for some of these.
    pub is_cut: bool,
    /// Why damaged containers could not be recorded in a manifest, where that failed.
    pub unrecorded: Option<String>,
    /// Whether damaged containers are on no list.
    pub is_unlisted: bool,
}

impl<'a> Known<'a> {
    /// Nothing so far.
    pub fn new(vault: &'a Vault, progress: &'a Progress) -> Self {
        let room = Room::with_bytes(vault.findings_bytes);
        Known {
            vault,
            progress,
            others: OtherFindings { room, ..OtherFindings::default() },
            compared: HashSet::new(),
            to_repair: BTreeMap::new(),
            bad: BTreeMap::new(),
            is_cut: false,
            unrecorded: None,
            is_unlisted: false,
        }
    }

    /// Names the snapshots that are affected by what was found of containers so far, records it, and forgets it.
    pub fn settle(&mut self, of: Owner<'_>, own: &mut ContainerFindings) -> Result<()> {
        let any_bad = !own.bad.is_empty() || self.others.is_any_bad();
        if let Some((view, name)) = of.disk {
            if !own.found.is_empty() && view.may_have_lost() {
                return Err(VaultError::Gone { object: of.folder.manifest_name() });
            }
            attribute(view, name, &RecipeFindings::default(), own, &mut self.others, false)?;
        }
        let mine = std::mem::replace(own, ContainerFindings::within(&self.others.room));
        self.others.owners.insert(of.folder.disk, mine);
        if any_bad {
            self.compare_others(Some(of.folder.disk), false)?;
            self.is_cut = true;
        }
        let mut owners = std::mem::take(&mut self.others.owners);
        for (disk, found) in &mut owners {
            if found.has_to_record() {
                self.record(&self.vault.folder(*disk), found);
            }
            self.keep_for_repair(*disk, found);
            found.forget();
        }
        let known = |owners: &BTreeMap<DiskId, ContainerFindings>| -> usize {
            owners.values().map(ContainerFindings::memory_bytes).sum()
        };
        // What is forgotten to have been looked at may be looked at again.
        if known(&owners) > self.vault.findings_bytes / 2 {
            owners.values_mut().for_each(ContainerFindings::forget_seen);
        }
        self.others.room.set_bytes(known(&owners));
        self.others.owners = owners;
        *own = self.others.take(of.folder.disk);
        give_back();
        Ok(())
    }

    /// Compares the snapshots of disks that have not been looked at with what is damaged in other owners, of whose containers
    /// they may reference some; with `gone`, also with owners of which nothing can be read. Returns the disks for which this cannot
    /// be done.
    pub fn compare_others(&mut self, but: Option<DiskId>, gone: bool) -> Result<Vec<DiskId>> {
        let (mut unreadable, (disks, _)) = (Vec::new(), disks::all(self.vault)?);
        let is_done = |disk: DiskId| but == Some(disk) || self.compared.contains(&disk);
        let left: Vec<_> = disks.into_iter().filter(|at| !is_done(at.folder.disk)).collect();
        for at in left {
            self.progress.check()?;
            let view = self.vault.view(&at.folder, 0).unless_unreadable()?;
            let whole = view.as_ref().map(|view| view.whole().unless_unreadable()).transpose()?.flatten();
            let Some(view) = view.as_ref().filter(|_| whole.is_some()) else {
                // Where everything is looked at, this has been said, or will be.
                unreadable.push(at.folder.disk);
                continue;
            };
            let mut own = self.others.take(at.folder.disk);
            let none = RecipeFindings::default();
            attribute(view, &at.name, &none, &mut own, &mut self.others, gone)?;
            self.others.owners.insert(at.folder.disk, own);
        }
        Ok(unreadable)
    }

    /// Records damaged containers in the manifest of their owner.
    pub fn record(&mut self, folder: &Folder, found: &ContainerFindings) {
        let (is_unlisted, why) = match record(folder, found) {
            Ok(Some(0)) => (false, None),
            Ok(Some(n)) => (true, Some(format!("{}: has no room for {n} of them", folder.manifest_name()))),
            // What is wrong with the manifest has been told.
            Ok(None) => (true, None),
            Err(e) => (true, Some(e.to_string())),
        };
        self.is_unlisted |= is_unlisted && !found.damaged.is_empty();
        self.unrecorded = why.or(self.unrecorded.take());
    }

    /// Keeps the containers that a repair is to look at, as far as there is room.
    pub fn keep_for_repair(&mut self, owner: DiskId, found: &ContainerFindings) {
        let mut containers = found.to_repair().peekable();
        if containers.peek().is_none() {
            return;
        }
        let all = &mut self.to_repair;
        let mut kept: usize = all.values().map(ContainerSet::memory_bytes).sum();
        let of_owner = all.entry(owner).or_default();
        for id in containers {
            if kept >= TO_REPAIR_BYTES {
                self.is_cut |= !of_owner.contains(id);
                continue;
            }
            let before = of_owner.memory_bytes();
            of_owner.insert(id);
            kept += of_owner.memory_bytes() - before;
        }
        if of_owner.is_empty() {
            all.remove(&owner);
        }
    }

    /// Keeps the chunks that cannot be read for those who ask which ranges of a disk they are, as far as there is room.
    pub fn keep_bad_chunks(&mut self, owner: DiskId, bad: BadChunks) {
        let kept: usize = self.bad.values().map(BadChunks::memory_bytes).sum();
        if bad.is_empty() {
        } else if kept + bad.memory_bytes() <= BAD_BYTES {
            self.bad.insert(owner, bad);
        } else {
            self.is_cut = true;
        }
    }
}
