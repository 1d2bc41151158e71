//! The container table of a manifest: pages of entries, read as needed, changed page by page.

use crate::base::error::{Named, Result, VaultError};
use crate::base::lru::{Lru, SharedLru};
use crate::manifest::folder::Folder;
use format::{
    names, ContainerEntry, ContainerId, ContainerPage, DataName, DiskId, Kind, Manifest, OwnerNo, PageRef,
    Release, WriterNo,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Memory for pages that were read last: 256 full ones, of 65,536 containers, 4 TiB of chunks.
const PAGES_BYTES: usize = 4 << 20;

/// A change of the container table: an entry to put, or `None` to take it out.
pub(crate) type Edits = BTreeMap<ContainerId, Option<ContainerEntry>>;

/// The container table of one manifest, read page by page as needed.
pub(crate) struct Containers {
    folder: Folder,
    pages: Vec<PageRef>,
    cache: PageCache,
}

/// Pages that were read last, of any number of folders. A page never changes.
#[derive(Clone)]
pub(crate) struct PageCache(SharedLru<(DiskId, PageRef), Arc<ContainerPage>>);

impl Default for PageCache {
    fn default() -> Self {
        PageCache(Arc::new(Mutex::new(Lru::new(PAGES_BYTES))))
    }
}

impl PageCache {
    /// A page of a folder's table.
    fn page(&self, folder: &Folder, page: &PageRef) -> Result<Arc<ContainerPage>> {
        let key = (folder.disk, *page);
        let known = self.0.lock().get(&key);
        if let Some(page) = known {
            return Ok(page);
        }
        let page = Arc::new(folder.read_page(page)?);
        let bytes = size_of::<ContainerPage>() + page.entries.len() * size_of::<ContainerEntry>();
        self.0.lock().insert(key, page.clone(), bytes);
        Ok(page)
    }
}

impl Containers {
    /// The table of a manifest of this folder. Nothing is read yet.
    pub fn new(folder: Folder, m: &Manifest) -> Self {
        Containers::with_cache(folder, &m.pages, PageCache::default())
    }

    /// One of these pages, some of which may have been read before.
    pub fn with_cache(folder: Folder, pages: &[PageRef], cache: PageCache) -> Self {
        Containers { folder, pages: pages.to_vec(), cache }
    }

    /// What of the table is about containers of one writer.
    pub fn of_writer(folder: Folder, m: &Manifest, writer: WriterNo, cache: PageCache) -> Self {
        let of = |p: &PageRef| (p.first.owner(), p.first.writer());
        // The page before may end with some of them.
        let from = m.pages.partition_point(|p| of(p) < (OwnerNo::OWN, writer)).saturating_sub(1);
        let end = m.pages.partition_point(|p| of(p) <= (OwnerNo::OWN, writer));
        Containers::with_cache(folder, &m.pages[from..end], cache)
    }

    /// The folder whose table it is.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Memory that it takes beside the pages that were read, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.pages[..])
    }

    /// Reads all pages, so that damage is found before any work is done.
    pub fn check(&self) -> Result<()> {
        self.pages.iter().try_for_each(|page| self.cache.page(&self.folder, page).map(drop))
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
        let page = self.cache.page(&self.folder, &self.pages[at])?;
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
