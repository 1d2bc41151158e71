//! The container table of a manifest: pages of entries, read as needed, changed page by page.

use crate::base::error::{Named, Result, VaultError};
use crate::manifest::folder::Folder;
use format::{
    names, ContainerEntry, ContainerId, ContainerPage, DataName, Kind, Manifest, OwnerNo, PageRef, Release,
    WriterNo,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// A change of the container table: an entry to put, or `None` to take it out.
pub(crate) type Edits = BTreeMap<ContainerId, Option<ContainerEntry>>;

/// The container table of one manifest, read page by page as needed.
pub(crate) struct Containers {
    folder: Folder,
    pages: Vec<PageRef>,
}

impl Containers {
    /// The table of a manifest of this folder. Nothing is read yet.
    pub fn new(folder: Folder, m: &Manifest) -> Self {
        Containers { folder, pages: m.pages.clone() }
    }

    /// What of the table is about containers of one writer.
    pub fn of_writer(folder: Folder, m: &Manifest, writer: WriterNo) -> Self {
        let of = |p: &PageRef| (p.first.owner(), p.first.writer());
        // The page before may end with some of them.
        let from = m.pages.partition_point(|p| of(p) < (OwnerNo::OWN, writer)).saturating_sub(1);
        let end = m.pages.partition_point(|p| of(p) <= (OwnerNo::OWN, writer));
        Containers { folder, pages: m.pages[from..end].to_vec() }
    }

    /// The folder whose table it is.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Memory that it takes beside the pages that were read, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.pages[..])
    }

    /// Reads all pages that are not in memory, so that damage is found before any work is done.
    pub fn check(&self) -> Result<()> {
        self.pages.iter().try_for_each(|page| self.folder.page(page).map(drop))
    }

    /// The same for the pages that have the entries of these containers.
    pub fn check_those_of<'a>(&self, ids: impl IntoIterator<Item = &'a ContainerId>) -> Result<()> {
        ids.into_iter().try_for_each(|id| self.get(*id).map(drop))
    }

    /// Which of the table's pages has a container's entry, if there is one.
    pub fn page_of(&self, id: ContainerId) -> Option<usize> {
        self.pages.partition_point(|p| p.first <= id).checked_sub(1)
    }

    /// The entry of a container, if the table has one.
    pub fn get(&self, id: ContainerId) -> Result<Option<ContainerEntry>> {
        let Some(at) = self.page_of(id) else {
            return Ok(None);
        };
        let page = self.folder.page(&self.pages[at])?;
        Ok(page.entries.binary_search_by_key(&id, |e| e.id).ok().map(|n| page.entries[n]))
    }

    /// The entries of all containers, or of those of `only`, that are `wanted`, in order.
    pub fn select(
        &self,
        only: Option<&BTreeSet<ContainerId>>,
        wanted: impl Fn(&ContainerEntry) -> bool,
    ) -> Result<Vec<ContainerEntry>> {
        let mut found = Vec::new();
        match only {
            Some(only) => {
                for id in only {
                    found.extend(self.get(*id)?.filter(&wanted));
                }
            }
            None => self.each(|e| {
                found.extend(Some(*e).filter(&wanted));
                Ok(())
            })?,
        }
        Ok(found)
    }

    /// The first entries behind `after` that are `wanted`, so many at most: no more pages are read than they stand in.
    pub fn first_behind(
        &self,
        after: Option<ContainerId>,
        most: usize,
        wanted: impl Fn(&ContainerEntry) -> bool,
    ) -> Result<Vec<ContainerEntry>> {
        let first_page = after.and_then(|id| self.page_of(id)).unwrap_or(0);
        let mut found = Vec::new();
        for p in &self.pages[first_page..] {
            let page = self.folder.page(p)?;
            let behind = page.entries.iter().filter(|e| after.is_none_or(|id| e.id > id) && wanted(e));
            found.extend(behind.take(most - found.len()));
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }

    /// Calls `each` for every container, in order.
    pub fn each(&self, mut each: impl FnMut(&ContainerEntry) -> Result<()>) -> Result<()> {
        for p in &self.pages {
            self.folder.page(p)?.entries.iter().try_for_each(&mut each)?;
        }
        Ok(())
    }
}

impl Folder {
    /// A page of the table.
    pub fn page(&self, page: &PageRef) -> Result<Arc<ContainerPage>> {
        let known = self.container_pages.lock().get(&(self.disk, *page));
        if let Some(page) = known {
            return Ok(page);
        }
        let read = Arc::new(self.read_page(page)?);
        self.keep_page(page, read.clone());
        Ok(read)
    }

    /// Keeps a page in memory.
    pub fn keep_page(&self, at: &PageRef, page: Arc<ContainerPage>) {
        let bytes = size_of::<ContainerPage>() + page.entries.len() * size_of::<ContainerEntry>();
        self.container_pages.lock().insert((self.disk, *at), page, bytes);
    }

    /// Reads a page of the table, whatever is in memory, and checks that it begins where the manifest says.
    pub fn read_page(&self, page: &PageRef) -> Result<ContainerPage> {
        let name = names::page(&self.path, page.writer, page.number);
        let bytes = self.store.read(&name, Kind::ContainerPage.frame_max()).named()?;
        let decoded =
            ContainerPage::decode(self.context(&name), &bytes).map_err(VaultError::malformed(&name))?;
        // Else a manifest could name one page any number of times.
        match decoded.entries.first().map(|e| e.id) {
            Some(first) if first == page.first => Ok(decoded),
            _ => Err(VaultError::corrupt(&name, format!("does not begin with container {}", page.first))),
        }
    }
}

/// Releases the data objects that no entry names any more once `edits` are carried out. One that bears the name of its
/// entry's container is no other entry's: where there are only such ones, nothing but their entries is looked at.
pub(crate) fn release_data(
    containers: &Containers,
    edits: &Edits,
    released: &mut Vec<Release>,
) -> Result<()> {
    let (mut before, mut are_own) = (BTreeSet::new(), true);
    for id in edits.keys() {
        if let Some(e) = containers.get(*id)?.filter(|e| !e.is_foreign()) {
            before.insert(e.data);
            are_own &= e.data.container == e.id;
        }
    }
    let kept: HashSet<DataName> = edits.values().flatten().map(|e| e.data).collect();
    before.retain(|d| !kept.contains(d));
    if !before.is_empty() && !are_own {
        containers.each(|e| {
            if !edits.contains_key(&e.id) {
                before.remove(&e.data);
            }
            Ok(())
        })?;
    }
    let path = &containers.folder().path;
    released.extend(before.into_iter().map(|d| Release::Object(names::data(path, d))));
    Ok(())
}
