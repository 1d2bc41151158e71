//! The reference index of a disk: the summaries of recipes that will hardly change, by containers
//! (`docs/format/references.md`). A deletion or reverse pass asks it who else references a chunk, and reads the parts
//! about a few containers instead of every recipe.
//!
//! Without it everything is found all the same: recipes that no readable part has are read one by one.

mod extend;

pub(crate) use extend::{extend, forget_all, forget_damaged, summary_of_recipe};

use crate::base::error::{Named, Result, UnlessDamaged, VaultError};
use crate::manifest::folder::Folder;
use format::{
    names, BlockAt, ContainerId, IndexRef, Kind, Manifest, ReferenceBlock, ReferenceEntry, ReferenceFooter,
};
use std::ops::Range;

/// Bytes of blocks that are read at once, but for one longer block.
const READ_BYTES: u64 = 1 << 20;
/// Bytes of a part that is read whole with its footer.
const WHOLE_BYTES: u64 = 128 << 10;

/// An object of the index, opened.
pub(crate) struct Part {
    folder: Folder,
    pub at: IndexRef,
    pub name: String,
    pub footer: ReferenceFooter,
    /// The frames of its blocks, where they were read with the footer; else nothing.
    blocks: Vec<u8>,
}

/// The parts of the index that can be opened.
pub(crate) fn open_sound(folder: &Folder, m: &Manifest) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for at in &m.references {
        parts.extend(Part::open(folder, at).unless_damaged()?);
    }
    Ok(parts)
}

impl Part {
    /// Reads the footer.
    pub fn open(folder: &Folder, at: &IndexRef) -> Result<Part> {
        let name = names::references(&folder.path, at.writer, at.number);
        if u64::from(at.footer_len) > Kind::ReferenceFooter.frame_max() {
            return Err(VaultError::corrupt(&name, format!("a footer of {} bytes", at.footer_len)));
        }
        let (blocks_len, footer_len) = (at.blocks_len, u64::from(at.footer_len));
        let is_short = blocks_len.checked_add(footer_len).is_some_and(|bytes| bytes <= WHOLE_BYTES);
        let from = if is_short { 0 } else { blocks_len };
        let mut blocks = vec![0; (blocks_len - from + footer_len) as usize];
        folder.store.read_at(&name, from, &mut blocks).named()?;
        let frame = blocks.split_off((blocks_len - from) as usize);
        let place = format!("{name}#{blocks_len}");
        let footer = ReferenceFooter::decode(folder.context(&place), &frame, blocks_len);
        let footer = footer.map_err(VaultError::malformed(&name))?;
        Ok(Part { folder: folder.clone(), at: *at, name, footer, blocks })
    }

    /// Calls `each` for every entry of these containers, in order, and for some of others.
    pub fn each_of<'a>(
        &self,
        containers: impl Iterator<Item = &'a ContainerId>,
        each: &mut dyn FnMut(ReferenceEntry),
    ) -> Result<()> {
        // Containers come in order, and so do their blocks.
        let mut wanted: Vec<Range<usize>> = Vec::new();
        for blocks in containers.map(|id| self.footer.blocks_of(*id)).filter(|b| !b.is_empty()) {
            match wanted.last_mut() {
                Some(last) if blocks.start <= last.end => last.end = last.end.max(blocks.end),
                _ => wanted.push(blocks),
            }
        }
        wanted.into_iter().try_for_each(|blocks| self.each_in(blocks, each))
    }

    /// Calls `each` for every entry, in order.
    pub fn each(&self, each: &mut dyn FnMut(ReferenceEntry)) -> Result<()> {
        self.each_in(0..self.footer.blocks.len(), each)
    }

    fn each_in(&self, blocks: Range<usize>, each: &mut dyn FnMut(ReferenceEntry)) -> Result<()> {
        self.blocks(blocks).try_for_each(|block| {
            block?.entries.into_iter().for_each(&mut *each);
            Ok(())
        })
    }

    /// Some of its blocks, in order.
    pub fn blocks(&self, blocks: Range<usize>) -> Blocks<'_> {
        Blocks { part: self, next: blocks.start, end: blocks.end, read: Vec::new(), read_at: 0 }
    }
}

/// Reads blocks one after the other: several with one read, but only one of them decoded is in memory.
pub(crate) struct Blocks<'a> {
    part: &'a Part,
    next: usize,
    end: usize,
    /// Frames that were read, and where the first one stands in the object.
    read: Vec<u8>,
    read_at: u64,
}

impl Blocks<'_> {
    /// The frame of the next block.
    fn frame(&mut self, at: BlockAt) -> Result<&[u8]> {
        let part = self.part;
        if !part.blocks.is_empty() {
            let start = at.offset as usize;
            return Ok(&part.blocks[start..start + at.len as usize]);
        }
        let read_to = self.read_at + self.read.len() as u64;
        if self.read.is_empty() || at.offset + u64::from(at.len) > read_to {
            let mut len = 0;
            for b in &part.footer.blocks[self.next..self.end] {
                if u64::from(b.len) > Kind::ReferenceBlock.frame_max() {
                    return Err(VaultError::corrupt(&part.name, "has a block that is too long"));
                }
                if len > 0 && len + u64::from(b.len) > READ_BYTES {
                    break;
                }
                len += u64::from(b.len);
            }
            (self.read, self.read_at) = (vec![0; len as usize], at.offset);
            part.folder.store.read_at(&part.name, at.offset, &mut self.read).named()?;
        }
        let start = (at.offset - self.read_at) as usize;
        Ok(&self.read[start..start + at.len as usize])
    }

    fn decode(&mut self, at: BlockAt) -> Result<ReferenceBlock> {
        let part = self.part;
        let place = format!("{}#{}", part.name, at.offset);
        let frame = self.frame(at)?;
        let block = ReferenceBlock::decode(part.folder.context(&place), frame);
        let block = block.map_err(VaultError::malformed(&part.name))?;
        if block.entries.iter().any(|e| e.recipe as usize >= part.footer.recipes.len()) {
            return Err(VaultError::corrupt(&part.name, "has entries of recipes that it does not list"));
        }
        Ok(block)
    }
}

impl Iterator for Blocks<'_> {
    type Item = Result<ReferenceBlock>;

    /// The next block; after an error none.
    fn next(&mut self) -> Option<Result<ReferenceBlock>> {
        if self.next >= self.end {
            return None;
        }
        let block = self.decode(self.part.footer.blocks[self.next]);
        self.next = if block.is_ok() { self.next + 1 } else { self.end };
        Some(block)
    }
}
