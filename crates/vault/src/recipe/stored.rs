//! Recipes as they are stored: roots, pages, summaries.

use crate::base::error::{Named, Result, UnlessDamaged, VaultError};
use crate::manifest::folder::Folder;
use format::{
    frame_len, names, Kind, PageAt, RecipeName, RecipePage, RecipePageRef, RecipeRoot, SnapshotEntry,
    Summary, FRAME_HEADER_BYTES, RECIPE_PAGES_MAX, SEGMENTS_PER_PAGE,
};

/// No segment is shorter.
const SEGMENT_BYTES_MIN: u64 = 4096;

/// The recipe that a snapshot's entry names.
pub(crate) fn recipe_of(s: &SnapshotEntry) -> RecipeName {
    RecipeName { snap: s.id, generation: s.generation }
}

/// Reads the root of a snapshot's recipe.
pub(crate) fn read_root(folder: &Folder, s: &SnapshotEntry) -> Result<RecipeRoot> {
    read_root_of(folder, recipe_of(s), s.size)
}

/// Reads the root of a recipe, which is of a disk of `size` bytes.
pub(crate) fn read_root_of(folder: &Folder, recipe: RecipeName, size: u64) -> Result<RecipeRoot> {
    decode_root(folder, recipe, size, &root_bytes(folder, recipe, Kind::RecipeRoot.frame_max())?)
}

/// The root of a recipe as it is stored, if that is no more than `max` bytes.
pub(super) fn root_bytes(folder: &Folder, recipe: RecipeName, max: u64) -> Result<Vec<u8>> {
    folder.store.read(&names::recipe_root(&folder.path, recipe), max).named()
}

/// The most memory that reading the root of a disk of `size` bytes takes: its pages, and its body as long.
pub(super) fn root_memory_max(size: u64) -> u64 {
    let pages = (size / (SEGMENT_BYTES_MIN * SEGMENTS_PER_PAGE) + 1).min(RECIPE_PAGES_MAX);
    2 * pages * size_of::<PageAt>() as u64
}

pub(super) fn decode_root(
    folder: &Folder,
    recipe: RecipeName,
    size: u64,
    bytes: &[u8],
) -> Result<RecipeRoot> {
    let name = names::recipe_root(&folder.path, recipe);
    let root = RecipeRoot::decode(folder.context(&name), bytes).map_err(VaultError::malformed(&name))?;
    if root.size != size {
        return Err(VaultError::corrupt(&name, format!("is of a disk of {} bytes", root.size)));
    }
    Ok(root)
}

fn read_part(folder: &Folder, name: &str, kind: Kind, offset: u64, len: u32) -> Result<Vec<u8>> {
    if (len as usize) < FRAME_HEADER_BYTES || u64::from(len) > kind.frame_max() {
        return Err(VaultError::corrupt(name, format!("a part of {len} bytes")));
    }
    let mut bytes = vec![0; len as usize];
    folder.store.read_at(name, offset, &mut bytes).named()?;
    if frame_len(&bytes).map_err(VaultError::malformed(name))? != bytes.len() {
        return Err(VaultError::corrupt(name, format!("the part at offset {offset} has another length")));
    }
    Ok(bytes)
}

/// Reads one page.
pub(crate) fn read_page(folder: &Folder, at: &RecipePageRef) -> Result<RecipePage> {
    read_page_within(folder, at, &mut |_| {})
}

/// The same. `make_room` gets the most bytes that it may take, before it is decoded.
pub(crate) fn read_page_within(
    folder: &Folder,
    at: &RecipePageRef,
    make_room: &mut dyn FnMut(usize),
) -> Result<RecipePage> {
    let bytes = page_bytes(folder, at)?;
    make_room(page_memory_max(folder, at, &bytes)?);
    decode_page(folder, at, &bytes)
}

/// One page as it is stored.
pub(super) fn page_bytes(folder: &Folder, at: &RecipePageRef) -> Result<Vec<u8>> {
    let name = names::recipe_pages(&folder.path, at.recipe);
    read_part(folder, &name, Kind::RecipePage, at.offset, at.page_len)
}

/// The most memory that a page takes once it is decoded.
pub(super) fn page_memory_max(folder: &Folder, at: &RecipePageRef, bytes: &[u8]) -> Result<usize> {
    let name = names::recipe_pages(&folder.path, at.recipe);
    RecipePage::memory_max(bytes).map_err(VaultError::malformed(&name))
}

pub(super) fn decode_page(folder: &Folder, at: &RecipePageRef, bytes: &[u8]) -> Result<RecipePage> {
    let name = names::recipe_pages(&folder.path, at.recipe);
    let place = format!("{name}#{}", at.offset);
    RecipePage::decode(folder.context(&place), bytes).map_err(VaultError::malformed(&name))
}

/// Reads the summary of one page.
pub(crate) fn read_summary(folder: &Folder, at: &RecipePageRef) -> Result<Summary> {
    let name = names::recipe_pages(&folder.path, at.recipe);
    let offset = at.offset.saturating_add(u64::from(at.page_len));
    let bytes = read_part(folder, &name, Kind::Summary, offset, at.summary_len)?;
    let place = format!("{name}#{offset}");
    Summary::decode(folder.context(&place), &bytes).map_err(VaultError::malformed(&name))
}

/// A page's summary, made anew from the page where it is damaged.
pub(crate) fn summary_of(folder: &Folder, page: &RecipePageRef) -> Result<Summary> {
    read_summary(folder, page).if_damaged(|_| Ok(Summary::of(&read_page(folder, page)?)))
}
