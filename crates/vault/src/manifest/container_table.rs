//! The container table of a manifest: pages of entries, read as needed, changed page by page.

use crate::base::error::{Named, Result, VaultError};
use crate::manifest::folder::Folder;
use format::{names, ContainerEntry, ContainerId, ContainerPage, DataName, Kind, Manifest, PageRef, Release};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A change of the container table: an entry to put, or `None` to take it out.
pub(crate) type Edits = BTreeMap<ContainerId, Option<ContainerEntry>>;

/// The container table of one manifest, read page by page as needed.
pub(crate) struct Containers {
    folder: Folder,
    pages: Vec<PageRef>,
    loaded: Mutex<HashMap<usize, Arc<ContainerPage>>>,
}

impl Containers {
    /// The table of a manifest of this folder. Nothing is read yet.
    pub fn new(folder: Folder, m: &Manifest) -> Self {
        Containers { folder, pages: m.pages.clone(), loaded: Mutex::default() }
    }

    /// The folder whose table it is.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    fn page(&self, at: usize) -> Result<Arc<ContainerPage>> {
        let mut loaded = self.loaded.lock();
        if let Some(p) = loaded.get(&at) {
            return Ok(p.clone());
        }
        let page = Arc::new(self.folder.read_page(&self.pages[at])?);
        // 256 pages are 65,536 containers, 4 TiB of chunks, in 4 MiB of memory.
        if loaded.len() >= 256 {
            loaded.clear();
        }
        loaded.insert(at, page.clone());
        Ok(page)
    }

    /// Reads all pages, so that damage is found before any work is done.
    pub fn check(&self) -> Result<()> {
        (0..self.pages.len()).try_for_each(|at| self.page(at).map(drop))
    }

    /// The entry of a container, if the table has one.
    pub fn get(&self, id: ContainerId) -> Result<Option<ContainerEntry>> {
        let Some(at) = self.pages.partition_point(|p| p.first <= id).checked_sub(1) else {
            return Ok(None);
        };
        let page = self.page(at)?;
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

    /// Calls `each` for every container, in order.
    pub fn each(&self, mut each: impl FnMut(&ContainerEntry) -> Result<()>) -> Result<()> {
        for p in &self.pages {
            self.folder.read_page(p)?.entries.iter().try_for_each(&mut each)?;
        }
        Ok(())
    }
}

impl Folder {
    /// Reads a page of the table, and checks that it begins where the manifest says.
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

/// Releases the data objects that no entry names any more once `edits` are carried out.
pub(crate) fn release_data(
    containers: &Containers,
    edits: &Edits,
    released: &mut Vec<Release>,
) -> Result<()> {
    let mut before = BTreeSet::new();
    for id in edits.keys() {
        if let Some(e) = containers.get(*id)? {
            before.extend((!e.is_foreign()).then_some(e.data));
        }
    }
    let kept: HashSet<DataName> = edits.values().flatten().map(|e| e.data).collect();
    before.retain(|d| !kept.contains(d));
    if before.is_empty() {
        return Ok(());
    }
    containers.each(|e| {
        if !edits.contains_key(&e.id) {
            before.remove(&e.data);
        }
        Ok(())
    })?;
    let path = &containers.folder().path;
    released.extend(before.into_iter().map(|d| Release::Object(names::data(path, d))));
    Ok(())
}
