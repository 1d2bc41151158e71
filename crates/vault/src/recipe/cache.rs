//! Roots and pages of recipes in memory, and reading them ahead.

use crate::base::error::Result;
use crate::base::threads::ahead;
use crate::manifest::folder::Folder;
use crate::recipe::stored::{
    decode_page, decode_root, page_bytes, read_page, read_root, recipe_of, root_bytes,
};
use format::{
    PageAt, RecipeName, RecipePage, RecipePageRef, RecipeRoot, Reference, SegmentRecipe, SnapshotEntry,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

/// Memory for roots and pages of recipes, in bytes, roughly.
const CACHE_BYTES: usize = 16 << 20;

/// Bytes of a root that is read ahead, at most. Nearly all are smaller.
const ROOT_AHEAD_BYTES: u64 = 64 << 10;

/// Roots and pages as they are stored, for readers of one disk's recipes: neighbours in a chain read the same ones.
#[derive(Clone, Default)]
pub(crate) struct RecipeCache(Arc<Mutex<Cached>>);

#[derive(Default)]
struct Cached {
    roots: HashMap<RecipeName, Arc<RecipeRoot>>,
    pages: HashMap<RecipePageRef, Arc<RecipePage>>,
    bytes: usize,
}

impl RecipeCache {
    /// The root of a snapshot's recipe.
    pub fn root(&self, folder: &Folder, s: &SnapshotEntry) -> Result<Arc<RecipeRoot>> {
        if let Some(root) = self.lock().roots.get(&recipe_of(s)) {
            return Ok(root.clone());
        }
        let root = Arc::new(read_root(folder, s)?);
        self.lock().add_root(s, &root);
        Ok(root)
    }

    /// Whether the root of a snapshot's recipe is in memory.
    pub fn has_root(&self, s: &SnapshotEntry) -> bool {
        self.lock().roots.contains_key(&recipe_of(s))
    }

    /// Reads some roots, several at a time, but decodes one at a time: it may take any memory that a root may. What is
    /// wrong with one, or is too long, is for who asks for it.
    pub fn load_roots(&self, folder: &Folder, snapshots: &[&SnapshotEntry]) {
        ahead(snapshots, |entry| {
            if self.has_root(entry) {
                return;
            }
            let Ok(bytes) = root_bytes(folder, entry, ROOT_AHEAD_BYTES) else { return };
            let mut cached = self.lock();
            if let Ok(root) = decode_root(folder, entry, &bytes) {
                cached.add_root(entry, &Arc::new(root));
            }
        });
    }

    /// The same with pages.
    pub fn load_pages(&self, folder: &Folder, pages: &[RecipePageRef]) {
        ahead(pages, |at| {
            if self.lock().pages.contains_key(at) {
                return;
            }
            let Ok(bytes) = page_bytes(folder, at) else { return };
            let mut cached = self.lock();
            if let Ok(page) = decode_page(folder, at, &bytes) {
                cached.add_page(at, &Arc::new(page));
            }
        });
    }

    /// A page as it is stored.
    pub fn page(&self, folder: &Folder, at: &RecipePageRef) -> Result<Arc<RecipePage>> {
        if let Some(page) = self.lock().pages.get(at) {
            return Ok(page.clone());
        }
        let page = Arc::new(read_page(folder, at)?);
        self.lock().add_page(at, &page);
        Ok(page)
    }

    fn lock(&self) -> MutexGuard<'_, Cached> {
        self.0.lock()
    }
}

/// Memory that a page takes, in bytes.
pub(crate) fn bytes_of(page: &RecipePage) -> usize {
    let references: usize = page.segments.iter().map(|(_, s)| s.references.len()).sum();
    page.segments.len() * size_of::<(u16, SegmentRecipe)>() + references * size_of::<Reference>()
}

impl Cached {
    fn add_root(&mut self, s: &SnapshotEntry, root: &Arc<RecipeRoot>) {
        self.make_room(root.pages.len() * size_of::<PageAt>());
        self.roots.insert(recipe_of(s), root.clone());
    }

    fn add_page(&mut self, at: &RecipePageRef, page: &Arc<RecipePage>) {
        self.make_room(bytes_of(page));
        self.pages.insert(*at, page.clone());
    }

    fn make_room(&mut self, bytes: usize) {
        if self.bytes + bytes > CACHE_BYTES {
            *self = Cached::default();
        }
        self.bytes += bytes;
    }
}
