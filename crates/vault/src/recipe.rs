//! Reading and writing recipes page by page.

use crate::error::{Named, Result, VaultError};
use crate::folder::Folder;
use crate::session::Session;
use format::{
    frame_len, names, RecipeName, RecipePage, RecipePageRef, RecipeRoot, SegmentRecipe, SnapshotEntry,
    Summary, FRAME_HEADER_BYTES, SEGMENTS_PER_PAGE,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::ObjectWriter;

/// No recipe root is longer.
const MAX_ROOT: u64 = 1 << 30;

/// Reads a snapshot's recipe. Keeps the page read last.
pub(crate) struct RecipeReader {
    folder: Folder,
    pub root: RecipeRoot,
    last: Option<(u64, Arc<RecipePage>)>,
}

/// The recipe that a snapshot's entry names.
pub(crate) fn recipe_of(s: &SnapshotEntry) -> RecipeName {
    RecipeName { snap: s.id, generation: s.generation }
}

/// Reads the root of a recipe.
pub(crate) fn read_root(folder: &Folder, s: &SnapshotEntry) -> Result<RecipeRoot> {
    let name = names::recipe_root(&folder.path, recipe_of(s));
    let bytes = folder.store.read(&name, MAX_ROOT).named()?;
    let root = RecipeRoot::decode(folder.context(&name), &bytes).map_err(VaultError::malformed(&name))?;
    if root.size != s.size {
        return Err(VaultError::corrupt(&name, format!("is of a disk of {} bytes", root.size)));
    }
    Ok(root)
}

fn read_part(folder: &Folder, name: &str, offset: u64, len: u32) -> Result<Vec<u8>> {
    if (len as usize) < FRAME_HEADER_BYTES || len > 1 << 30 {
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
    let name = names::recipe_pages(&folder.path, at.recipe);
    let bytes = read_part(folder, &name, at.offset, at.page_len)?;
    let place = format!("{name}#{}", at.offset);
    RecipePage::decode(folder.context(&place), &bytes).map_err(VaultError::malformed(&name))
}

/// Reads the summary of one page.
pub(crate) fn read_summary(folder: &Folder, at: &RecipePageRef) -> Result<Summary> {
    let name = names::recipe_pages(&folder.path, at.recipe);
    let offset = at.offset.saturating_add(u64::from(at.page_len));
    let bytes = read_part(folder, &name, offset, at.summary_len)?;
    let place = format!("{name}#{offset}");
    Summary::decode(folder.context(&place), &bytes).map_err(VaultError::malformed(&name))
}

impl RecipeReader {
    pub fn open(folder: &Folder, s: &SnapshotEntry) -> Result<Self> {
        Ok(RecipeReader { folder: folder.clone(), root: read_root(folder, s)?, last: None })
    }

    /// A page; `None` where all its segments are null.
    pub fn page(&mut self, no: u64) -> Result<Option<Arc<RecipePage>>> {
        if let Some((n, p)) = &self.last {
            if *n == no {
                return Ok(Some(p.clone()));
            }
        }
        let Some(at) = self.root.pages.get(no as usize).copied().flatten() else { return Ok(None) };
        let page = Arc::new(read_page(&self.folder, &at)?);
        self.last = Some((no, page.clone()));
        Ok(Some(page))
    }

    /// The object that a page stands in.
    pub fn pages_object(&self, no: u64) -> String {
        let at = self.root.pages.get(no as usize).copied().flatten();
        at.map(|p| names::recipe_pages(&self.folder.path, p.recipe)).unwrap_or_default()
    }

    /// A segment; `None` where it is null.
    pub fn segment(&mut self, no: u64) -> Result<Option<SegmentRecipe>> {
        let Some(page) = self.page(no / SEGMENTS_PER_PAGE)? else { return Ok(None) };
        let index = (no % SEGMENTS_PER_PAGE) as u16;
        let at = page.segments.binary_search_by_key(&index, |s| s.0).ok();
        Ok(at.map(|n| page.segments[n].1.clone()))
    }
}

/// Writes a snapshot's recipe, segments in order. Pages equal to the parent's are not written again.
pub(crate) struct RecipeWriter {
    folder: Folder,
    name: RecipeName,
    parent: Option<RecipeReader>,
    page_no: u64,
    page: RecipePage,
    pages: Vec<Option<RecipePageRef>>,
    object: Option<(Box<dyn ObjectWriter>, u64)>,
}

/// A recipe that is durable.
pub(crate) struct WrittenRecipe {
    pub depends: Vec<RecipeName>,
    pub stored_bytes: u64,
}

impl RecipeWriter {
    /// `parent` gives pages to share; its segments must be cut like the new ones.
    pub fn new(folder: &Folder, name: RecipeName, parent: Option<RecipeReader>) -> Self {
        RecipeWriter {
            folder: folder.clone(),
            name,
            parent,
            page_no: 0,
            page: RecipePage::default(),
            pages: Vec::new(),
            object: None,
        }
    }

    /// Adds a segment that is not null, in order of numbers.
    pub fn push(&mut self, session: &Session, no: u64, segment: SegmentRecipe) -> Result<()> {
        if no / SEGMENTS_PER_PAGE != self.page_no {
            self.finish_page(session)?;
            self.page_no = no / SEGMENTS_PER_PAGE;
        }
        self.page.segments.push(((no % SEGMENTS_PER_PAGE) as u16, segment));
        Ok(())
    }

    fn finish_page(&mut self, session: &Session) -> Result<()> {
        if self.page.segments.is_empty() {
            return Ok(());
        }
        let page = std::mem::take(&mut self.page);
        let at = self.page_no as usize;
        self.pages.resize(at, None);
        if let Some(parent) = &mut self.parent {
            let same = parent.root.pages.get(at).copied().flatten();
            if let Some(same) = same {
                if *read_parent(parent, self.page_no)? == page {
                    self.pages.push(Some(same));
                    return Ok(());
                }
            }
        }
        let object = names::recipe_pages(&self.folder.path, self.name);
        if self.object.is_none() {
            session.wrote(object.clone());
            self.object = Some((self.folder.store.writer(&object)?, 0));
        }
        let Some((writer, offset)) = &mut self.object else { return Ok(()) };
        let place = format!("{object}#{offset}");
        let page_frame = page.encode(self.folder.context(&place));
        let summary_offset = *offset + page_frame.len() as u64;
        let place = format!("{object}#{summary_offset}");
        let summary_frame = Summary::of(&page).encode(self.folder.context(&place));
        writer.append(&page_frame)?;
        writer.append(&summary_frame)?;
        self.pages.push(Some(RecipePageRef {
            recipe: self.name,
            offset: *offset,
            page_len: page_frame.len() as u32,
            summary_len: summary_frame.len() as u32,
        }));
        *offset = summary_offset + summary_frame.len() as u64;
        Ok(())
    }

    /// Makes the recipe durable.
    pub fn finish(
        mut self,
        session: &Session,
        size: u64,
        segment_bytes: u32,
        chunking: String,
    ) -> Result<WrittenRecipe> {
        self.finish_page(session)?;
        let wanted = size.div_ceil(u64::from(segment_bytes) * SEGMENTS_PER_PAGE);
        self.pages.resize(wanted as usize, None);
        let mut stored_bytes = 0;
        if let Some((writer, len)) = self.object.take() {
            writer.finish()?;
            stored_bytes += len;
        }
        let depends: BTreeSet<_> = self.pages.iter().flatten().map(|p| p.recipe).collect();
        let root = RecipeRoot { size, segment_bytes, chunking, pages: self.pages };
        let name = names::recipe_root(&self.folder.path, self.name);
        let frame = root.encode(self.folder.context(&name));
        session.wrote(name.clone());
        self.folder.store.put(&name, &[&frame])?;
        stored_bytes += frame.len() as u64;
        Ok(WrittenRecipe { depends: depends.into_iter().collect(), stored_bytes })
    }
}

fn read_parent(parent: &mut RecipeReader, no: u64) -> Result<Arc<RecipePage>> {
    // A damaged page of the parent cannot be shared: anything that differs will do.
    match parent.page(no) {
        Ok(p) => Ok(p.unwrap_or_default()),
        Err(e) if e.is_damage() => Ok(Arc::default()),
        Err(e) => Err(e),
    }
}
