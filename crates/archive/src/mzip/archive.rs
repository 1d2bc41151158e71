//! An archive that is open: its head, index and footer, and the way to its pages and blocks.

use super::base::error::{damaged, malformed, MzipError, Result};
use super::base::memory::Memory;
use super::base::packing::unpacked;
use super::base::read_at::ReadAt;
use format::mzip::{
    BlockHead, Body, Compressor, Extent, Footer, Head, Index, Page, PageHead, Place, PlaceSum,
    BLOCK_HEAD_BYTES, FOOTER_BYTES, HEAD_BYTES, INDEX_BLOCK_BYTES, INDEX_PAGE_BYTES, MAGIC, PAGE_HEAD_BYTES,
};
use std::io;
use xxhash_rust::xxh3::xxh3_64;

/// What an archive says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the original file.
    pub original_bytes: u64,
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Bytes that blocks hold.
    pub stored_bytes: u64,
    /// Bytes of the recipe.
    pub recipe_bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// What they are compressed with.
    pub compressor: Compressor,
    /// With which level.
    pub level: u8,
    /// Whether chunks were moved, or left out.
    pub migrated: bool,
    /// Whether similar chunks are stored as deltas.
    pub deltas: bool,
}

/// A part of an archive.
#[derive(Clone, Copy)]
struct Part {
    /// Where it begins in the archive.
    offset: u64,
    bytes: u32,
}

/// A recipe page's place, and what it covers.
struct PagePlace {
    part: Part,
    /// Where its first extent is in the original file.
    original_at: u64,
    original_bytes: u64,
}

/// Memory of an index as it is stored, decoded, and as it is used, in bytes.
fn index_memory(pages: u64, blocks: u64) -> u64 {
    let of_page = INDEX_PAGE_BYTES + size_of::<(u32, u64)>() + size_of::<PagePlace>();
    let of_block = INDEX_BLOCK_BYTES + size_of::<u32>() + size_of::<Part>();
    let pages = pages.saturating_mul(of_page as u64);
    pages.saturating_add(blocks.saturating_mul(of_block as u64))
}

/// An archive that is open.
pub struct Archive<'a> {
    source: &'a dyn ReadAt,
    head: Head,
    footer: Footer,
    pages: Vec<PagePlace>,
    blocks: Vec<Part>,
    recipe_bytes: u64,
}

impl<'a> Archive<'a> {
    /// Opens an archive: reads its head, its footer and its index, which may take a quarter of the memory.
    ///
    /// # Errors
    /// If it is none, is damaged or of a newer version, or cannot be read, or if the memory does not suffice.
    pub fn open(source: &'a dyn ReadAt, memory: u64) -> Result<Archive<'a>> {
        let len = source.len();
        let mut bytes = [0; HEAD_BYTES];
        let known = (len.min(HEAD_BYTES as u64)) as usize;
        source.read_at(&mut bytes[..known], 0).map_err(MzipError::Read)?;
        if known < HEAD_BYTES && bytes.starts_with(&MAGIC[..known.min(MAGIC.len())]) {
            return Err(damaged(len, "the archive is cut off within its head"));
        }
        let head = Head::decode(&bytes).map_err(|e| malformed(0, e))?;
        let footer_at = len.checked_sub(FOOTER_BYTES as u64).filter(|at| *at >= HEAD_BYTES as u64);
        let footer_at = footer_at.ok_or_else(|| damaged(len, "the archive is cut off behind its head"))?;
        let mut bytes = [0; FOOTER_BYTES];
        source.read_at(&mut bytes, footer_at).map_err(MzipError::Read)?;
        let footer = Footer::decode(&bytes).map_err(|e| malformed(footer_at, e))?;
        if !head.summed && footer.sum != PlaceSum::default() {
            return Err(damaged(footer_at, "the footer has a sum, of which the head knows nothing"));
        }
        let index_at = footer.index_bytes().and_then(|bytes| footer_at.checked_sub(bytes));
        let index_at = index_at.filter(|at| *at >= HEAD_BYTES as u64);
        let index_at = index_at.ok_or_else(|| {
            damaged(footer_at, format!("{} pages and {} blocks are too many", footer.pages, footer.blocks))
        })?;
        // What is there bounds what is kept of it.
        let blocks = footer.blocks.saturating_mul(BLOCK_HEAD_BYTES as u64);
        let least = blocks.saturating_add(u64::from(footer.pages) * PAGE_HEAD_BYTES as u64);
        if index_at - (HEAD_BYTES as u64) < least {
            let why = format!("there is no room for {} pages and {} blocks", footer.pages, footer.blocks);
            return Err(damaged(footer_at, why));
        }
        let needed = index_memory(footer.pages.into(), footer.blocks);
        if needed > Memory::new(memory).index() {
            return Err(MzipError::Memory(Memory::needed_for_index(needed)));
        }
        let mut bytes = vec![0; (footer_at - index_at) as usize];
        source.read_at(&mut bytes, index_at).map_err(MzipError::Read)?;
        let index = Index::decode(&footer, &bytes).map_err(|e| malformed(index_at, e))?;
        drop(bytes);
        let mut archive =
            Archive { source, head, footer, pages: Vec::new(), blocks: Vec::new(), recipe_bytes: 0 };
        archive.places(&index, index_at)?;
        Ok(archive)
    }

    /// Finds where pages and blocks are, and compares their sums with the footer.
    fn places(&mut self, index: &Index, index_at: u64) -> Result<()> {
        self.pages.reserve_exact(index.pages.len());
        self.blocks.reserve_exact(index.blocks.len());
        let wrong = |why: String| damaged(index_at, why);
        let (mut at, mut original_at) = (HEAD_BYTES as u64, 0u64);
        for (bytes, original_bytes) in &index.pages {
            let part = Part { offset: at, bytes: *bytes };
            self.pages.push(PagePlace { part, original_at, original_bytes: *original_bytes });
            let end = original_at.checked_add(*original_bytes);
            original_at = end.ok_or_else(|| wrong("the pages cover too much".into()))?;
            at += u64::from(*bytes);
        }
        self.recipe_bytes = at - HEAD_BYTES as u64;
        for bytes in &index.blocks {
            self.blocks.push(Part { offset: at, bytes: *bytes });
            at += u64::from(*bytes);
        }
        let Footer { original_bytes, stored_bytes, .. } = self.footer;
        if at != index_at {
            return Err(wrong(format!("pages and blocks end at byte {at}, the index begins at {index_at}")));
        }
        let recipe = if self.head.migrated { original_at } else { stored_bytes };
        if self.head.migrated == self.pages.is_empty() {
            let why = format!(
                "its head says migrated: {}, and it has {} pages",
                self.head.migrated,
                self.pages.len()
            );
            return Err(wrong(why));
        }
        if recipe != original_bytes {
            let why = format!("the recipe has {recipe} bytes, the file {original_bytes}");
            return Err(wrong(why));
        }
        if self.head.blocks_of(stored_bytes) != self.footer.blocks {
            return Err(wrong(format!("{} blocks for {stored_bytes} bytes", self.footer.blocks)));
        }
        Ok(())
    }

    /// What the archive says of itself.
    pub fn summary(&self) -> Summary {
        Summary {
            original_bytes: self.footer.original_bytes,
            archive_bytes: self.source.len(),
            stored_bytes: self.footer.stored_bytes,
            recipe_bytes: self.recipe_bytes,
            blocks: self.footer.blocks,
            compressor: self.head.compressor,
            level: self.head.level,
            migrated: self.head.migrated,
            deltas: self.head.deltas,
        }
    }

    /// Memory that it takes, in bytes, about.
    pub fn memory(&self) -> u64 {
        index_memory(self.footer.pages.into(), self.footer.blocks)
    }

    pub(super) fn original_bytes(&self) -> u64 {
        self.footer.original_bytes
    }

    /// Of the original file, if the archive has it.
    pub(super) fn sum(&self) -> Option<PlaceSum> {
        self.head.summed.then_some(self.footer.sum)
    }

    pub(super) fn is_migrated(&self) -> bool {
        self.head.migrated
    }

    pub(super) fn has_deltas(&self) -> bool {
        self.head.deltas
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.head.block_bytes.into()
    }

    /// The parts of the recipe that cover a byte of the original file and what is behind it: where each begins in the
    /// original file, and how to read its extents. Without a recipe it is one part.
    pub(super) fn recipe_from(&self, byte: u64) -> impl Iterator<Item = Result<(u64, Vec<Extent>)>> + '_ {
        let first = self.pages.partition_point(|page| page.original_at + page.original_bytes <= byte);
        let whole = Extent::Stored { at: 0, bytes: self.footer.stored_bytes };
        let whole = (!self.head.migrated).then(|| Ok((0, vec![whole])));
        let pages = self.pages[first..].iter().map(|page| Ok((page.original_at, self.page(page)?)));
        whole.into_iter().chain(pages)
    }

    fn page(&self, page: &PagePlace) -> Result<Vec<Extent>> {
        let Part { offset, bytes } = page.part;
        let wrong = |e| malformed(offset, e);
        let (head, body) = self.part::<PAGE_HEAD_BYTES>(page.part, "a recipe page")?;
        let head = PageHead::decode(&head).map_err(wrong)?;
        let body_bytes = u64::from(bytes) - PAGE_HEAD_BYTES as u64;
        if u64::from(head.body_bytes) != body_bytes || head.original_bytes != page.original_bytes {
            return Err(damaged(offset, "a recipe page is not what the index says"));
        }
        // The head's length is within bounds.
        let body = self.body(offset + body, head.body_bytes)?;
        let extents = Page::decode(&head, &body, self.head.deltas).map_err(wrong)?;
        let places = extents.iter().flat_map(|extent| {
            let (own, others) = extent.places();
            [Some(own), others].into_iter().flatten()
        });
        let end = self.footer.stored_bytes;
        // The page's decoder knows that each has an end.
        let beyond = places.into_iter().find(|place| place.end().is_none_or(|at| at > end));
        match beyond {
            None => Ok(extents),
            Some(Place { at, bytes }) => {
                Err(damaged(offset, format!("the recipe names {bytes} bytes at {at}, which no block has")))
            }
        }
    }

    /// Bytes of content of a block.
    fn content_bytes(&self, number: u64) -> u64 {
        let begin = number * self.block_bytes();
        (self.footer.stored_bytes - begin).min(self.block_bytes())
    }

    /// The content of a block, compared with its checksums.
    pub(super) fn block(&self, number: u64) -> Result<Vec<u8>> {
        let place = self.blocks[number as usize];
        let offset = place.offset;
        let (head, body_at) = self.part::<BLOCK_HEAD_BYTES>(place, "a block")?;
        let head = BlockHead::decode(&head).map_err(|e| malformed(offset, e))?;
        let body_bytes = u64::from(place.bytes) - BLOCK_HEAD_BYTES as u64;
        let expected = (number, body_bytes, self.content_bytes(number));
        if (head.number, head.body_bytes.into(), head.content_bytes.into()) != expected {
            let why = format!("this is block {}, or of another length than the index says", head.number);
            return Err(damaged(offset, why));
        }
        let body = self.body(offset + body_at, head.body_bytes)?;
        let wrong = |what: &str, got: u64, expected: u64| {
            damaged(
                offset,
                format!("the checksum of block {number}'s {what} is {got:016x}, expected {expected:016x}"),
            )
        };
        let got = xxh3_64(&body);
        if got != head.body_checksum {
            return Err(wrong("bytes", got, head.body_checksum));
        }
        if head.body == Body::Far && !self.head.far {
            return Err(damaged(
                offset,
                format!("block {number} has matches, which this archive has none of"),
            ));
        }
        let content = unpacked(self.head.compressor, head.body, body, head.content_bytes)
            .map_err(|e| damaged(offset, format!("block {number} cannot be decompressed: {e}")))?;
        let got = xxh3_64(&content);
        if got != head.content_checksum {
            return Err(wrong("content", got, head.content_checksum));
        }
        Ok(content)
    }

    /// The error of a delta that cannot be undone.
    pub(super) fn damaged_delta(&self, why: &io::Error) -> MzipError {
        damaged(HEAD_BYTES as u64, format!("a delta cannot be undone: {why}"))
    }

    /// The head of a part, and how far behind the part's begin its body is.
    fn part<const N: usize>(&self, place: Part, what: &str) -> Result<([u8; N], u64)> {
        if (place.bytes as usize) < N {
            return Err(damaged(place.offset, format!("{what} of {} bytes", place.bytes)));
        }
        let mut head = [0; N];
        self.source.read_at(&mut head, place.offset).map_err(MzipError::Read)?;
        Ok((head, N as u64))
    }

    fn body(&self, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        let mut body = vec![0; bytes as usize];
        self.source.read_at(&mut body, offset).map_err(MzipError::Read)?;
        Ok(body)
    }
}
