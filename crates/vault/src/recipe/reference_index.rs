//! The reference index of a disk: the summaries of recipes that will hardly change, by containers
//! (`docs/format/references.md`). A deletion or reverse pass asks it who else references a chunk, and reads the parts
//! about a few containers instead of every recipe.
//!
//! Without it everything is found all the same: recipes that no readable part has are read one by one.

mod extend;

pub(crate) use extend::{extend, forget_all, forget_damaged, summary_of_recipe};

use crate::base::error::{Named, Result, UnlessDamaged, VaultError};
use crate::manifest::folder::Folder;
use format::{names, ContainerId, IndexRef, Kind, Manifest, ReferenceBlock, ReferenceEntry, ReferenceFooter};
use std::ops::Range;

/// Bytes of blocks that are read at once, but for one longer block.
const READ_BYTES: u64 = 1 << 20;

/// An object of the index, opened.
pub(crate) struct Part {
    folder: Folder,
    pub at: IndexRef,
    pub name: String,
    pub footer: ReferenceFooter,
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
        let mut frame = vec![0; at.footer_len as usize];
        folder.store.read_at(&name, at.blocks_len, &mut frame).named()?;
        let place = format!("{name}#{}", at.blocks_len);
        let footer = ReferenceFooter::decode(folder.context(&place), &frame, at.blocks_len);
        let footer = footer.map_err(VaultError::malformed(&name))?;
        Ok(Part { folder: folder.clone(), at: *at, name, footer })
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
        let mut next = blocks.start;
        while next < blocks.end {
            let read = self.read(next..blocks.end)?;
            next += read.len();
            read.into_iter().flat_map(|b| b.entries).for_each(&mut *each);
        }
        Ok(())
    }

    /// Reads the first of these blocks: as many as are read at once.
    fn read(&self, blocks: Range<usize>) -> Result<Vec<ReferenceBlock>> {
        let blocks = &self.footer.blocks[blocks];
        let mut len = 0;
        let fits = |b: &&format::BlockAt| {
            let is_first = len == 0;
            len += u64::from(b.len);
            is_first || len <= READ_BYTES
        };
        let blocks = &blocks[..blocks.iter().take_while(fits).count()];
        let Some((first, last)) = blocks.first().zip(blocks.last()) else { return Ok(Vec::new()) };
        if blocks.iter().any(|b| u64::from(b.len) > Kind::ReferenceBlock.frame_max()) {
            return Err(VaultError::corrupt(&self.name, "has a block that is too long"));
        }
        let mut bytes = vec![0; (last.offset + u64::from(last.len) - first.offset) as usize];
        self.folder.store.read_at(&self.name, first.offset, &mut bytes).named()?;
        let decode = |b: &format::BlockAt| {
            let start = (b.offset - first.offset) as usize;
            let place = format!("{}#{}", self.name, b.offset);
            let frame = &bytes[start..start + b.len as usize];
            let block = ReferenceBlock::decode(self.folder.context(&place), frame)
                .map_err(VaultError::malformed(&self.name))?;
            match block.entries.iter().all(|e| (e.recipe as usize) < self.footer.recipes.len()) {
                true => Ok(block),
                false => Err(VaultError::corrupt(&self.name, "has entries of recipes that it does not list")),
            }
        };
        blocks.iter().map(decode).collect()
    }
}
