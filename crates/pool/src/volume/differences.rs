//! Where two maps lead to different blocks.

use std::ops::Range;

use format::pool::{MapEntry, PageKind, PoolBlock, VolumeBlock, BLOCK_BYTES, MAP_SLOTS};

use super::map::{entry_of, slot_blocks};
use super::Volume;
use crate::error::Result;

impl Volume {
    /// The ranges of bytes of leaves that two snapshots do not have in common; `None` if their sizes differ. Neither may be
    /// deleted meanwhile.
    pub(crate) fn differences(&self, other: &Volume) -> Result<Option<Vec<Range<u64>>>> {
        let (ours, theirs) = (self.root(), other.root());
        if (ours.size, ours.level) != (theirs.size, theirs.level) {
            return Ok(None);
        }
        let mut found = Vec::new();
        self.compare(ours.level, (ours.root, theirs.root), VolumeBlock(0), &mut found)?;
        if let Some(last) = found.last_mut() {
            last.end = last.end.min(ours.size);
        }
        Ok(Some(found))
    }

    /// Compares two nodes of a level that map the same blocks, from `first` on.
    fn compare(
        &self,
        level: u8,
        nodes: (Option<PoolBlock>, Option<PoolBlock>),
        first: VolumeBlock,
        found: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        if nodes.0 == nodes.1 {
            return Ok(());
        }
        if level == 0 {
            let start = first.offset();
            let end = start + slot_blocks(1) * BLOCK_BYTES as u64;
            match found.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = end,
                None => found.push(start..end),
            }
            return Ok(());
        }
        let children = |node: Option<PoolBlock>| -> Result<Vec<MapEntry>> {
            let Some(node) = node else { return Ok(vec![MapEntry::NONE; MAP_SLOTS]) };
            let page = self.engine.page(node, PageKind::Map)?;
            self.check_level(&page, level)?;
            Ok((0..MAP_SLOTS).map(|index| entry_of(&page, index)).collect())
        };
        let (ours, theirs) = (children(nodes.0)?, children(nodes.1)?);
        for (index, (our, their)) in ours.iter().zip(&theirs).enumerate() {
            let at = first + index as u64 * slot_blocks(level);
            self.compare(level - 1, (our.block(), their.block()), at, found)?;
        }
        Ok(())
    }
}
