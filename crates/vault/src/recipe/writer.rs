//! Writing recipes page by page.

use crate::base::error::Result;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::recipe::chain::RecipeReader;
use format::{
    names, PageAt, RecipeName, RecipePage, RecipePageRef, RecipeRoot, SegmentRecipe, Summary,
    SEGMENTS_PER_PAGE,
};
use format::{PageNo, SegmentNo};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::ObjectWriter;

/// Writes the pages of one recipe, then its root.
pub(crate) struct PageWriter {
    folder: Folder,
    name: RecipeName,
    object: Option<(Box<dyn ObjectWriter>, u64)>,
}

/// A recipe that is durable.
#[derive(Clone, Debug)]
pub(crate) struct WrittenRecipe {
    pub depends: Vec<RecipeName>,
    /// All its pages, those of older recipes included.
    pub pages: Vec<RecipePageRef>,
    pub stored_bytes: u64,
}

impl PageWriter {
    /// Begins a recipe of this name. Its object is created with the first page.
    pub fn new(folder: &Folder, name: RecipeName) -> Self {
        PageWriter { folder: folder.clone(), name, object: None }
    }

    /// Appends a page and its summary.
    pub fn put(&mut self, session: &Session, page: &RecipePage) -> Result<RecipePageRef> {
        let object = names::recipe_pages(&self.folder.path, self.name);
        let (mut writer, offset) = match self.object.take() {
            Some(open) => open,
            None => {
                session.wrote(object.clone());
                (self.folder.store.writer(&object)?, 0)
            }
        };
        let place = format!("{object}#{offset}");
        let page_frame = page.encode(self.folder.context(&place));
        let summary_offset = offset + page_frame.len() as u64;
        let place = format!("{object}#{summary_offset}");
        let summary_frame = Summary::of(page).encode(self.folder.context(&place));
        writer.append(&page_frame)?;
        writer.append(&summary_frame)?;
        self.object = Some((writer, summary_offset + summary_frame.len() as u64));
        Ok(RecipePageRef {
            recipe: self.name,
            offset,
            page_len: page_frame.len() as u32,
            summary_len: summary_frame.len() as u32,
        })
    }

    /// Makes pages and root durable.
    pub fn finish(self, session: &Session, root: &RecipeRoot) -> Result<WrittenRecipe> {
        let mut stored_bytes = 0;
        if let Some((writer, len)) = self.object {
            writer.finish()?;
            stored_bytes += len;
        }
        let name = names::recipe_root(&self.folder.path, self.name);
        let frame = root.encode(self.folder.context(&name));
        session.wrote(name.clone());
        self.folder.store.put(&name, &[&frame])?;
        stored_bytes += frame.len() as u64;
        let pages = root.pages.iter().filter_map(|p| p.page()).collect();
        Ok(WrittenRecipe { depends: recipes_of(root).into_iter().collect(), pages, stored_bytes })
    }
}

/// The recipes whose pages a root uses.
pub(crate) fn recipes_of(root: &RecipeRoot) -> BTreeSet<RecipeName> {
    root.pages.iter().filter_map(|p| p.page()).map(|p| p.recipe).collect()
}

/// Writes a new snapshot's recipe, segments in order. Pages equal to the parent's are not written again.
pub(crate) struct RecipeWriter {
    pages: Vec<PageAt>,
    out: PageWriter,
    parent: Option<RecipeReader>,
    page_no: PageNo,
    page: RecipePage,
}

impl RecipeWriter {
    /// `parent` gives pages to share; its segments must be cut like the new ones.
    pub fn new(folder: &Folder, name: RecipeName, parent: Option<RecipeReader>) -> Self {
        RecipeWriter {
            pages: Vec::new(),
            out: PageWriter::new(folder, name),
            parent,
            page_no: PageNo(0),
            page: RecipePage::default(),
        }
    }

    /// Adds a segment that is not null, in order of numbers.
    pub fn push(&mut self, session: &Session, no: SegmentNo, segment: SegmentRecipe) -> Result<()> {
        if no.page() != self.page_no {
            self.finish_page(session)?;
            self.page_no = no.page();
        }
        self.page.segments.push((no.index(), segment));
        Ok(())
    }

    fn finish_page(&mut self, session: &Session) -> Result<()> {
        if self.page.segments.is_empty() {
            return Ok(());
        }
        let page = std::mem::take(&mut self.page);
        self.pages.resize(self.page_no.0 as usize, PageAt::Null);
        if let Some(parent) = &mut self.parent {
            if *read_parent(parent, self.page_no)? == page {
                if let Some(same) = parent.direct_page(self.page_no)? {
                    self.pages.push(PageAt::Page(same));
                    return Ok(());
                }
            }
        }
        self.pages.push(PageAt::Page(self.out.put(session, &page)?));
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
        self.pages.resize(wanted as usize, PageAt::Null);
        let root = RecipeRoot { size, segment_bytes, chunking, pages: self.pages };
        self.out.finish(session, &root)
    }
}

fn read_parent(parent: &mut RecipeReader, no: PageNo) -> Result<Arc<RecipePage>> {
    // A damaged page of the parent cannot be shared: anything that differs will do.
    let page = parent.page(no);
    Ok(parent.folder().unless_damaged(page)?.flatten().unwrap_or_default())
}
