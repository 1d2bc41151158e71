//! Keeps a manifest short: moves older snapshots into pages, and changes of such snapshots into new ones.
//!
//! Pages are joined so that each has 16 times as many snapshots as the next one: there are O(log n) of them, and each
//! snapshot is written O(log n) times.

use crate::base::error::Result;
use crate::manifest::edit::ManifestEdit;
use crate::manifest::folder::release_object;
use crate::manifest::snapshots::pages::names_of;
use crate::manifest::snapshots::whole::Changes;
use format::{SnapshotEntry, SnapshotPage, SnapshotPageRef, SNAPSHOTS_PER_PAGE};
use std::sync::Arc;
use store::Reserve;

/// A page is joined with the one before it while that has less than so many times as many snapshots.
const RATIO: usize = 16;

/// Most memory that the snapshots of a page take, in bytes, if there are several.
const PAGE_BYTES: usize = 4 << 20;

/// A page of the manifest to be.
enum Part {
    /// One that is there.
    Old(SnapshotPageRef),
    /// Snapshots to be put.
    New(Vec<SnapshotEntry>),
}

impl Part {
    fn is_new(&self) -> bool {
        matches!(self, Part::New(_))
    }

    fn count(&self) -> usize {
        match self {
            Part::Old(at) => at.entries as usize,
            Part::New(entries) => entries.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Part::Old(at) => at.bytes as usize,
            Part::New(entries) => entries.iter().map(SnapshotEntry::memory_bytes).sum(),
        }
    }

    /// Whether the two become one.
    fn joins(&self, next: &Part) -> bool {
        (self.is_new() || next.is_new())
            && self.count() < RATIO * next.count()
            && self.count() + next.count() <= SNAPSHOTS_PER_PAGE
            && self.bytes() + next.bytes() <= PAGE_BYTES
    }
}

impl ManifestEdit<'_> {
    /// Puts snapshots into pages where the manifest has many that are not. Where there is no room for pages, or one cannot be
    /// read, the manifest keeps them.
    pub fn fold_snapshots(&mut self) -> Result<()> {
        let most = self.folder.recent_max;
        let m = &self.manifest;
        // An entry takes about as much as eight ids.
        let is_changed = m.changed.len() > most / 2 || m.gone.len() > most * 4;
        if !is_changed && m.recent.len() <= most {
            return Ok(());
        }
        let (before, put) = (self.manifest.clone(), self.put.len());
        match self.fold(is_changed, most / 2) {
            Err(e) if e.is_full() || e.is_damage() => {
                *self.manifest = before;
                for object in self.put.drain(put..) {
                    self.folder.store.delete(&object)?;
                }
                Ok(())
            }
            done => done,
        }
    }

    fn fold(&mut self, is_changed: bool, keep: usize) -> Result<()> {
        let mut parts = if is_changed { self.changed_parts()? } else { Vec::new() };
        if !is_changed {
            parts.extend(self.manifest.older.iter().copied().map(Part::Old));
        }
        let moved = self.manifest.recent.len().saturating_sub(keep.max(1));
        if moved > 0 {
            parts.push(Part::New(self.manifest.recent.drain(..moved).collect()));
        }
        let mut joined: Vec<Part> = Vec::new();
        for mut part in parts {
            while joined.last().is_some_and(|last| last.joins(&part)) {
                let Some(last) = joined.pop() else { break };
                let mut entries = self.entries(last)?;
                entries.extend(self.entries(part)?);
                part = Part::New(entries);
            }
            joined.push(part);
        }
        let old = std::mem::take(&mut self.manifest.older);
        for part in joined {
            match part {
                Part::Old(at) => self.manifest.older.push(at),
                Part::New(entries) => self.put_snapshots(entries)?,
            }
        }
        for at in old.iter().filter(|at| !self.manifest.older.contains(at)).copied().collect::<Vec<_>>() {
            names_of(self.folder, &at).into_iter().for_each(|object| release_object(self.manifest, object));
        }
        Ok(())
    }

    /// The pages, with what has changed in the place of those where something has.
    fn changed_parts(&mut self) -> Result<Vec<Part>> {
        let pages = self.folder.snapshot_pages(self.manifest)?;
        let mut parts = Vec::new();
        let mut changes = Changes::of(self.manifest);
        for (at, page) in self.manifest.older.iter().zip(&pages) {
            let before = changes.left();
            let now: Vec<&SnapshotEntry> = page.entries.iter().filter_map(|s| changes.now(s)).collect();
            if changes.left() == before {
                parts.push(Part::Old(*at));
            } else if !now.is_empty() {
                parts.push(Part::New(now.into_iter().cloned().collect()));
            }
        }
        changes.end(self.folder)?;
        self.manifest.changed.clear();
        self.manifest.gone.clear();
        Ok(parts)
    }

    /// The snapshots of a page, as they are in it: what the manifest says of them stays to be said.
    fn entries(&self, part: Part) -> Result<Vec<SnapshotEntry>> {
        match part {
            Part::Old(at) => Ok(self.folder.snapshot_page(&at)?.entries.clone()),
            Part::New(entries) => Ok(entries),
        }
    }

    /// Puts pages with these snapshots behind those that the manifest names.
    pub(super) fn put_snapshots(&mut self, entries: Vec<SnapshotEntry>) -> Result<()> {
        let mut page = SnapshotPage::default();
        let mut bytes = 0;
        for entry in entries {
            let more = entry.memory_bytes();
            if page.entries.len() == SNAPSHOTS_PER_PAGE || (bytes > 0 && bytes + more > PAGE_BYTES) {
                self.put_snapshot_page(std::mem::take(&mut page))?;
                bytes = 0;
            }
            bytes += more;
            page.entries.push(entry);
        }
        if page.entries.is_empty() {
            return Ok(());
        }
        self.put_snapshot_page(page)
    }

    fn put_snapshot_page(&mut self, page: SnapshotPage) -> Result<()> {
        let at = SnapshotPageRef::of(&page, self.writer, *self.next_page);
        *self.next_page += 1;
        // What gives space back must not take what is kept for it.
        let folder = self.folder.with_reserve(Reserve::None);
        for name in names_of(&folder, &at) {
            folder.store.put(&name, &[&page.encode(folder.context(&name))])?;
            self.put.push(name);
        }
        self.folder.keep_snapshot_page(&at, &Arc::new(page));
        self.manifest.older.push(at);
        Ok(())
    }

    /// Puts a page again one of whose objects is damaged. One that the manifest no longer names stays away.
    pub fn replace_snapshot_page(&mut self, old: &SnapshotPageRef) -> Result<()> {
        let Some(place) = self.manifest.older.iter().position(|at| at == old) else { return Ok(()) };
        let entries = self.folder.snapshot_page(old)?.entries.clone();
        let behind = self.manifest.older.split_off(place);
        self.put_snapshots(entries)?;
        self.manifest.older.extend_from_slice(&behind[1..]);
        names_of(self.folder, old).into_iter().for_each(|object| release_object(self.manifest, object));
        Ok(())
    }
}
