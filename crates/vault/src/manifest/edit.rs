//! An edit of a manifest by a session: the changes that the next swap makes.

use crate::base::error::Result;
use crate::manifest::container_table::Edits;
use crate::manifest::folder::{release_object, Folder};
use format::{
    names, ContainerEntry, ContainerId, ContainerPage, Manifest, PageRef, SnapshotEntry, WriterNo,
    CONTAINERS_PER_PAGE,
};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A manifest that is being changed, and what the change puts beside it. Read and written like the manifest.
///
/// Where the swap fails, the objects that were put are deleted, and the change is made again on the newer manifest.
pub(crate) struct ManifestEdit<'a> {
    pub(super) folder: &'a Folder,
    /// Whose pages the new ones are.
    pub(super) writer: WriterNo,
    pub(super) manifest: &'a mut Manifest,
    /// Names of the objects that were put.
    pub(super) put: &'a mut Vec<String>,
    /// Number of the next page that the session puts.
    pub(super) next_page: &'a mut u32,
}

impl Deref for ManifestEdit<'_> {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        self.manifest
    }
}

impl DerefMut for ManifestEdit<'_> {
    fn deref_mut(&mut self) -> &mut Manifest {
        self.manifest
    }
}

impl ManifestEdit<'_> {
    /// Changes any snapshots.
    pub fn change_snapshots<T>(
        &mut self,
        change: impl FnOnce(&mut Manifest, &mut Vec<SnapshotEntry>) -> Result<T>,
    ) -> Result<T> {
        self.folder.change_snapshots(self.manifest, change)
    }

    /// Changes recent snapshots: no page is read.
    pub fn change_recent<T>(
        &mut self,
        change: impl FnOnce(&mut Manifest, &mut Vec<SnapshotEntry>) -> Result<T>,
    ) -> Result<T> {
        let mut recent = self.manifest.recent.clone();
        let value = change(self.manifest, &mut recent)?;
        self.manifest.recent = recent;
        Ok(value)
    }

    /// Puts other entries in the place of a page that cannot be read. One that is no longer in the table stays away.
    pub fn replace_page(&mut self, old: &PageRef, entries: &[ContainerEntry]) -> Result<()> {
        let Some(at) = self.manifest.pages.iter().position(|p| p == old) else { return Ok(()) };
        let fresh = self.put_pages(entries)?;
        release_object(self.manifest, names::page(&self.folder.path, old.writer, old.number));
        self.manifest.pages.splice(at..=at, fresh);
        Ok(())
    }

    /// Puts pages with these entries.
    fn put_pages(&mut self, entries: &[ContainerEntry]) -> Result<Vec<PageRef>> {
        let mut fresh = Vec::new();
        for part in entries.chunks(CONTAINERS_PER_PAGE) {
            let r = PageRef { first: part[0].id, writer: self.writer, number: *self.next_page };
            *self.next_page += 1;
            let name = names::page(&self.folder.path, self.writer, r.number);
            let page = ContainerPage { entries: part.to_vec() };
            self.folder.store.put(&name, &[&page.encode(self.folder.context(&name))])?;
            self.put.push(name);
            self.folder.keep_page(&r, Arc::new(page));
            fresh.push(r);
        }
        Ok(fresh)
    }

    /// Carries `edits` into the container table. New pages are put; replaced ones are released with the manifest's sequence.
    pub fn edit_containers(&mut self, edits: &Edits) -> Result<()> {
        // Edits by page: a container belongs to the last page that does not start behind it.
        let mut by_page: BTreeMap<usize, Vec<(ContainerId, Option<ContainerEntry>)>> = BTreeMap::new();
        for (id, e) in edits {
            let at = self.manifest.pages.partition_point(|p| p.first <= *id).saturating_sub(1);
            by_page.entry(at).or_default().push((*id, *e));
        }
        for (at, changes) in by_page.into_iter().rev() {
            let old = self.manifest.pages.get(at).copied();
            let mut entries: BTreeMap<ContainerId, ContainerEntry> = match &old {
                Some(p) => self.folder.page(p)?.entries.iter().map(|e| (e.id, *e)).collect(),
                None => BTreeMap::new(),
            };
            for (id, e) in changes {
                match e {
                    Some(e) => entries.insert(id, e),
                    None => entries.remove(&id),
                };
            }
            let entries: Vec<ContainerEntry> = entries.into_values().collect();
            let fresh = self.put_pages(&entries)?;
            if let Some(p) = old {
                release_object(self.manifest, names::page(&self.folder.path, p.writer, p.number));
                self.manifest.pages.splice(at..=at, fresh);
            } else {
                self.manifest.pages.splice(0..0, fresh);
            }
        }
        Ok(())
    }
}
