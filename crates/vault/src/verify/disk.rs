//! The look at one disk.

use super::affected;
use super::checks::recipes::RecipeCheck;
use super::checks::references;
use super::checks::snapshot_pages::snapshot_pages;
use super::findings::affected::SnapshotIndex;
use super::findings::containers::ContainerFindings;
use super::owner::Owner;
use super::remember::CheckedDisk;
use super::run::Verification;
use crate::base::error::{fault, Result, UnlessDamaged, VaultError};
use crate::container::container_set::ContainerSet;
use crate::container::tables::TABLE_CACHE_BYTES;
use crate::manifest::disks::{unlisted, DiskAt};
use crate::manifest::folder::Folder;
use crate::manifest::rollback::{read_record, Evidence};
use format::{Sequence, SnapshotEntry, SnapshotState};
use std::collections::BTreeSet;

impl Verification<'_> {
    /// Looks at one disk.
    pub(super) fn disk(&mut self, at: &DiskAt, snapshot: Option<&str>) -> Result<()> {
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
    pub(super) fn commit_record(
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
}
