//! Roots and pages of recipes in memory: as they are stored, for all readers, and as their references were resolved, for
//! the reader that has resolved them. Readers that share one take no more memory together than one alone. And reading them
//! ahead, several at a time.

use crate::base::error::Result;
use crate::base::lru::Lru;
use crate::base::memory::{give_back, Room, KEPT_BYTES};
use crate::base::threads::ahead;
use crate::manifest::folder::Folder;
use crate::recipe::stored::{
    decode_page, decode_root, page_bytes, page_memory_max, read_page_within, read_root_of, root_bytes,
    root_memory_max,
};
use format::{
    DiskId, PageAt, PageNo, RecipeName, RecipePage, RecipePageRef, RecipeRoot, Reference, SegmentRecipe,
};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Memory for pages, in bytes, but for one that takes more.
const PAGES_BYTES: usize = 24 << 20;
/// Memory for pages while one is decoded, in bytes.
const DECODING_BYTES: usize = 64 << 20;
/// Memory for roots, in bytes, but for one that takes more.
pub(super) const ROOTS_BYTES: usize = 16 << 20;
/// Bytes of a root that is read ahead, at most. Nearly all are smaller.
const ROOT_AHEAD_BYTES: u64 = 64 << 10;
/// Memory of a page that is read ahead, at most, in bytes.
const PAGE_AHEAD_BYTES: usize = 4 << 20;

/// Roots and pages that were used last.
#[derive(Clone)]
pub(crate) struct RecipeCache {
    cached: Arc<Mutex<Cached>>,
    room: Room,
}

struct Cached {
    roots: Lru<(DiskId, RecipeName), Arc<RecipeRoot>>,
    pages: Lru<Key, CachedPage>,
    readers: u64,
}

/// A page, and whether some of its references lead through a newer snapshot: they may be many.
#[derive(Clone)]
pub(crate) struct CachedPage {
    pub page: Arc<RecipePage>,
    pub has_indirect: bool,
}

/// Which reader has resolved a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReaderNo(u64);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// As it is stored.
    Stored(DiskId, RecipePageRef),
    /// With direct references only. A reader of a newer manifest may find the chunks elsewhere.
    Resolved(ReaderNo, PageNo),
}

impl Default for RecipeCache {
    fn default() -> Self {
        Self::beside(Room::default())
    }
}

impl RecipeCache {
    /// One beside other caches.
    pub fn beside(room: Room) -> Self {
        let (roots, pages) = (Lru::new(ROOTS_BYTES), Lru::new(PAGES_BYTES));
        RecipeCache { cached: Arc::new(Mutex::new(Cached { roots, pages, readers: 0 })), room }
    }

    /// The root of a recipe, which is of a disk of `size` bytes.
    pub fn root(&self, folder: &Folder, recipe: RecipeName, size: u64) -> Result<Arc<RecipeRoot>> {
        let key = (folder.disk, recipe);
        // A guard in the condition would live on.
        let known = self.lock().roots.get(&key);
        if let Some(root) = known {
            return Ok(root);
        }
        let _room = self.room.take(root_memory_max(size));
        let root = Arc::new(read_root_of(folder, recipe, size)?);
        self.lock().roots.insert(key, root.clone(), root.pages.len() * size_of::<PageAt>());
        Ok(root)
    }

    /// Memory that roots and pages take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let cached = self.lock();
        cached.roots.used() + cached.pages.used()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let mut cached = self.lock();
        cached.roots.shrink_to(0);
        cached.pages.shrink_to(0);
    }

    /// Forgets pages that take more than their budget.
    pub fn forget_large(&self) {
        let mut cached = self.lock();
        if cached.pages.used() > PAGES_BYTES {
            cached.pages.shrink_to(0);
            drop(cached);
            give_back();
        }
    }

    /// Whether the root of a recipe is in memory.
    pub fn has_root(&self, folder: &Folder, recipe: RecipeName) -> bool {
        self.lock().roots.get(&(folder.disk, recipe)).is_some()
    }

    /// Reads the roots of some recipes, and of disks of a size, several at a time; but decodes one at a time: it may take any
    /// memory that a root may. What is wrong with one, or is too long, is for who asks for it.
    pub fn load_roots(&self, folder: &Folder, recipes: &[(RecipeName, u64)]) {
        ahead(recipes, |(recipe, size)| {
            if self.has_root(folder, *recipe) {
                return;
            }
            let Ok(bytes) = root_bytes(folder, *recipe, ROOT_AHEAD_BYTES) else { return };
            let mut cached = self.lock();
            if let Ok(root) = decode_root(folder, *recipe, *size, &bytes) {
                let memory = root.pages.len() * size_of::<PageAt>();
                cached.roots.insert((folder.disk, *recipe), Arc::new(root), memory);
            }
        });
    }

    /// The same with pages.
    pub fn load_pages(&self, folder: &Folder, pages: &[RecipePageRef]) {
        ahead(pages, |at| {
            let key = Key::Stored(folder.disk, *at);
            if self.lock().pages.get(&key).is_some() {
                return;
            }
            let Ok(bytes) = page_bytes(folder, at) else { return };
            if !page_memory_max(folder, at, &bytes).is_ok_and(|most| most <= PAGE_AHEAD_BYTES) {
                return;
            }
            let mut cached = self.lock();
            if let Ok(page) = decode_page(folder, at, &bytes) {
                let memory = bytes_of(&page);
                let page = CachedPage { has_indirect: page.has_indirect(), page: Arc::new(page) };
                cached.pages.insert(key, page, memory);
            }
        });
    }

    /// A page as it is stored.
    pub fn page(&self, folder: &Folder, at: &RecipePageRef) -> Result<Arc<RecipePage>> {
        Ok(self.stored(folder, at)?.page)
    }

    /// The same, and whether it must be resolved.
    pub fn stored(&self, folder: &Folder, at: &RecipePageRef) -> Result<CachedPage> {
        let key = Key::Stored(folder.disk, *at);
        let known = self.lock().pages.get(&key);
        if let Some(page) = known {
            return Ok(page);
        }
        let mut room = None;
        let page = read_page_within(folder, at, &mut |bytes_max| {
            // Its body is there meanwhile, which takes about half as much at most.
            room = Some(self.room.take((bytes_max + bytes_max / 2) as u64));
            let removed = self.lock().pages.shrink_to(DECODING_BYTES.saturating_sub(bytes_max));
            if removed > KEPT_BYTES {
                give_back();
            }
        })?;
        drop(room);
        let page = CachedPage { has_indirect: page.has_indirect(), page: Arc::new(page) };
        self.insert(key, &page);
        Ok(page)
    }

    /// The same for a reader that replaces what must be resolved: if that is large, it does not stay here.
    pub fn stored_to_resolve(&self, folder: &Folder, at: &RecipePageRef) -> Result<CachedPage> {
        let page = self.stored(folder, at)?;
        if page.has_indirect && bytes_of(&page.page) > PAGES_BYTES / 2 {
            self.lock().pages.remove_all(|key| *key == Key::Stored(folder.disk, *at));
        }
        Ok(page)
    }

    /// The number of another reader.
    pub fn reader(&self) -> ReaderNo {
        let mut cached = self.lock();
        cached.readers += 1;
        ReaderNo(cached.readers)
    }

    /// A page that a reader has resolved.
    pub fn resolved(&self, reader: ReaderNo, no: PageNo) -> Option<Arc<RecipePage>> {
        self.lock().pages.get(&Key::Resolved(reader, no)).map(|p| p.page)
    }

    /// Keeps a page that a reader has resolved.
    pub fn keep_resolved(&self, reader: ReaderNo, no: PageNo, page: &Arc<RecipePage>) {
        self.insert(Key::Resolved(reader, no), &CachedPage { page: page.clone(), has_indirect: false });
    }

    /// Forgets what a reader has resolved.
    pub fn forget(&self, reader: ReaderNo) {
        self.lock().pages.remove_all(|key| matches!(key, Key::Resolved(no, _) if *no == reader));
    }

    fn insert(&self, key: Key, page: &CachedPage) {
        let bytes = bytes_of(&page.page);
        self.lock().pages.insert(key, page.clone(), bytes);
        // What it was made of, and what it has taken out.
        if bytes > KEPT_BYTES {
            give_back();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Cached> {
        self.cached.lock()
    }
}

/// Memory that a page takes, in bytes.
pub(crate) fn bytes_of(page: &RecipePage) -> usize {
    let references: usize = page.segments.iter().map(|(_, s)| s.references.len()).sum();
    page.segments.len() * size_of::<(u16, SegmentRecipe)>() + references * size_of::<Reference>()
}
