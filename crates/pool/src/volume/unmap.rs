//! Zeros and trims: blocks are given back.

use format::pool::{MapEntry, VolumeBlock, BLOCK_BYTES, MAP_SLOTS};

use super::map::{entry_of, node_entries, Node, Walk};
use super::Volume;
use crate::engine::{Need, Transaction, Urgency};
use crate::error::Result;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Volume {
    /// Makes zeros of a range. Blocks in it are given back.
    pub fn zero(&self, offset: u64, length: u64) -> Result<()> {
        self.check_writable(offset, length)?;
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let (block, within) = (VolumeBlock::at(at), at % BLOCK);
            // The last block of a volume is whole if the range reaches the volume's end.
            let block_end = (block + 1).offset().min(self.size());
            if within != 0 || block_end > end {
                let part = (block_end - at).min(end - at) as usize;
                let root = self.root();
                let entry = self.entries(block, block + 1)?[0];
                if entry.block().is_some() || Self::is_absent(&root, block, entry) {
                    let zeros = vec![0; part];
                    self.engine.with_room(|| self.write_part(block, within as usize, &zeros))?;
                }
                at += part as u64;
                continue;
            }
            let whole_end = if end == self.size() { VolumeBlock::behind(end) } else { VolumeBlock::at(end) };
            let root = self.root();
            let next = match self.leaf(root, block)? {
                // What has not arrived must not arrive later.
                Err(nothing) if root.filled.is_none() => {
                    VolumeBlock((block.0 / nothing + 1) * nothing).min(whole_end)
                }
                _ => {
                    let piece_end = whole_end.min(block.leaf_end());
                    // Where nothing is, a leaf that others have as well stays theirs. What has not arrived is marked.
                    let has_blocks = || -> Result<bool> {
                        Ok(self.entries(block, piece_end)?.iter().any(|entry| entry.block().is_some()))
                    };
                    if root.filled.is_some() || has_blocks()? {
                        self.engine.with_room(|| self.unmap(block, piece_end))?;
                    }
                    piece_end
                }
            };
            at = next.offset().min(end);
        }
        Ok(())
    }

    /// Takes blocks that one leaf maps out of the map.
    fn unmap(&self, first: VolumeBlock, end: VolumeBlock) -> Result<()> {
        loop {
            if self.engine.transact(|t| self.unmap_step(t, first, end))? {
                return Ok(());
            }
            self.own_leaf(first, Urgency::Freeing)?;
        }
    }

    /// Returns whether it is done; else the way to the leaf is not the volume's own.
    fn unmap_step(
        &self,
        t: &mut Transaction<'_>,
        first: VolumeBlock,
        end: VolumeBlock,
    ) -> std::result::Result<bool, Need> {
        let whole_leaf = first.count_to(end) == MAP_SLOTS as u64;
        let is_filling = self.root().filled.is_some();
        match self.walk(t, first)? {
            Walk::Missing(..) => Ok(!is_filling),
            Walk::Shared(at, leaf, 0) if whole_leaf => {
                self.hang(t, &at, None);
                t.remove_node(leaf.block);
                self.count(t, -(node_entries(&leaf).len() as i64));
                Ok(true)
            }
            Walk::Shared(..) => Ok(false),
            Walk::Leaf(leaf) => {
                let mut unmapped = 0;
                for block in first.until(end) {
                    let slot = block.slot();
                    let old = entry_of(&leaf, slot);
                    if let Some(old) = old.block() {
                        t.refer(old, -1);
                        unmapped += 1;
                    }
                    if is_filling && old != MapEntry::ZEROS {
                        t.set_map(&leaf, slot, &[MapEntry::ZEROS]);
                    } else if old.block().is_some() {
                        t.set_map(&leaf, slot, &[MapEntry::NONE]);
                    }
                }
                self.count(t, -unmapped);
                Ok(true)
            }
        }
    }

    /// Frees a part of the map of a volume that was deleted: one leaf, or a node that others have as well. Returns whether
    /// there is more.
    pub(crate) fn reap_step(&self) -> Result<bool> {
        self.engine.transact(|t| self.reap_once(t))
    }

    fn reap_once(&self, t: &mut Transaction<'_>) -> std::result::Result<bool, Need> {
        let root = self.root();
        let Some(mut node) = root.root else { return Ok(false) };
        let mut at = Node::Root;
        let mut level = root.level;
        loop {
            let is_shared = t.entry(node)?.0.count > 1;
            let page = t.page(node, format::pool::PageKind::Map)?;
            let entries = if is_shared { Vec::new() } else { node_entries(&page) };
            match entries.first() {
                // Its children go one after the other, then it goes itself.
                Some((index, child)) if level > 0 => {
                    let Some(child) = child.block() else { return Ok(false) };
                    at = Node::Of(page, *index);
                    node = child;
                    level -= 1;
                }
                _ => {
                    for (_, entry) in &entries {
                        entry.block().into_iter().for_each(|block| t.refer(block, -1));
                    }
                    self.hang(t, &at, None);
                    t.remove_node(node);
                    return Ok(true);
                }
            }
        }
    }
}
