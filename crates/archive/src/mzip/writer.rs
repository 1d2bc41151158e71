//! An archive that is being written: head, recipe, blocks, index, footer, in this order.

use super::base::error::{MzipError, Result};
use super::base::packing::{packed, Packed};
use super::base::parallel::{in_order, Crew};
use super::base::progress::Progress;
use super::base::read_at::ReadAt;
use super::mover::Content;
use format::mzip::{
    BlockHead, Extent, Footer, Head, Index, Page, PlaceSum, BLOCK_HEAD_BYTES, DELTA_PAGE_EXTENTS_MAX,
    PAGE_EXTENTS_MAX,
};
use std::io::{self, Write};
use xxhash_rust::xxh3::{xxh3_64, Xxh3Default};

/// The archive that is being written.
pub(super) struct ArchiveWriter<'a> {
    output: &'a mut dyn Write,
    written: u64,
    index: Index,
    head: Head,
    progress: &'a Progress,
    /// Threads that compressed.
    threads: usize,
}

/// What was written.
pub(super) struct Written {
    pub bytes: u64,
    pub blocks: usize,
    pub threads: usize,
}

impl<'a> ArchiveWriter<'a> {
    /// Writes the head.
    pub(super) fn begin(output: &'a mut dyn Write, head: Head, progress: &'a Progress) -> Result<Self> {
        let mut to =
            ArchiveWriter { output, written: 0, index: Index::default(), head, progress, threads: 0 };
        to.put(&head.encode())?;
        Ok(to)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.write_all(bytes).map_err(MzipError::Write)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes the restore recipe.
    pub(super) fn recipe(&mut self, extents: impl Iterator<Item = io::Result<Extent>>) -> Result<()> {
        let deltas = self.head.deltas;
        let most = if deltas { DELTA_PAGE_EXTENTS_MAX } else { PAGE_EXTENTS_MAX };
        let mut extents = extents.peekable();
        while extents.peek().is_some() {
            let page: io::Result<Vec<Extent>> = extents.by_ref().take(most).collect();
            let page = page.map_err(MzipError::Scratch)?;
            let bytes = Page::encode(&page, deltas);
            self.put(&bytes)?;
            self.index.pages.push((bytes.len() as u32, page.iter().map(|e| e.bytes()).sum()));
        }
        Ok(())
    }

    /// Compresses blocks, and writes them. Returns the sum of what they have of the input.
    pub(super) fn blocks(
        &mut self,
        crew: Crew,
        mut next: impl FnMut() -> Result<Option<Content>>,
        input: &dyn ReadAt,
    ) -> Result<PlaceSum> {
        let (head, progress) = (self.head, self.progress);
        self.threads = crew.threads;
        let (mut number, mut all) = (0u64.., PlaceSum::default());
        in_order(
            crew,
            || {
                progress.check()?;
                Ok(number.next().zip(next()?))
            },
            |(number, content)| {
                let (content, sum) = content.gathered(input)?;
                let (head, packed) = block(&head, number, content, progress)?;
                Ok((head, packed, sum))
            },
            |(head, packed, sum)| {
                progress.check()?;
                all += sum;
                self.index.blocks.push((BLOCK_HEAD_BYTES + packed.len()) as u32);
                self.put(&head.encode())?;
                self.put(&packed.begin)?;
                self.put(&packed.rest)?;
                progress.add(head.content_bytes.into());
                Ok(())
            },
        )?;
        Ok(all)
    }

    /// Writes index and footer. The sum is that of the original file.
    pub(super) fn end(mut self, original_bytes: u64, stored_bytes: u64, sum: PlaceSum) -> Result<Written> {
        let index = self.index.encode();
        let footer = Footer {
            original_bytes,
            stored_bytes,
            pages: self.index.pages.len() as u32,
            blocks: self.index.blocks.len() as u64,
            index_checksum: xxh3_64(&index),
            sum,
        };
        self.put(&index)?;
        self.put(&footer.encode())?;
        self.output.flush().map_err(MzipError::Write)?;
        Ok(Written { bytes: self.written, blocks: self.index.blocks.len(), threads: self.threads })
    }
}

/// A block, compressed if that makes it shorter.
fn block(head: &Head, number: u64, content: Vec<u8>, progress: &Progress) -> Result<(BlockHead, Packed)> {
    let content_checksum = xxh3_64(&content);
    let content_bytes = content.len() as u32;
    let packed = packed(head.compressor, head.level, content, progress)?;
    let mut body_checksum = Xxh3Default::new();
    body_checksum.update(&packed.begin);
    body_checksum.update(&packed.rest);
    let head = BlockHead {
        number,
        body: packed.kind,
        content_bytes,
        body_bytes: packed.len() as u32,
        body_checksum: body_checksum.digest(),
        content_checksum,
    };
    Ok((head, packed))
}
