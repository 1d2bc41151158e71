//! A volume as a device that NBD serves.

use std::io;
use std::ops::Range;

use export::{Block, BlockDevice, Extent};
use format::pool::{MapEntry, VolumeBlock};

use super::Volume;

impl BlockDevice for Volume {
    fn size(&self) -> u64 {
        Volume::size(self)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        Ok(Volume::read_at(self, offset, buf)?)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        let mut open = Extent { range: range.start..range.start, block: Block::Hole };
        let mut at = VolumeBlock::at(range.start);
        while at.offset() < range.end {
            let end = at.leaf_end();
            let root = self.root();
            let _guard = self.engine.read_guard();
            // What has not arrived may be anything.
            let is_data = |(block, entry): (VolumeBlock, &MapEntry)| {
                entry.block().is_some() || Self::is_absent(&root, block, *entry)
            };
            let pieces = match self.leaf(root, at)? {
                Ok(_) => at.until(end).zip(&self.entries(at, end)?).map(|e| (1, is_data(e))).collect(),
                Err(nothing) => {
                    let next = VolumeBlock((at.0 / nothing + 1) * nothing);
                    vec![(at.count_to(next), root.filled.is_some_and(|filled| next.offset() > filled))]
                }
            };
            for (blocks, is_data) in pieces {
                let block = if is_data { Block::Data } else { Block::Hole };
                if block != open.block && !open.range.is_empty() {
                    let next = Extent { range: open.range.end..open.range.end, block };
                    if !each(std::mem::replace(&mut open, next)) {
                        return Ok(());
                    }
                }
                open.block = block;
                at = at + blocks;
                open.range.end = at.offset().min(Volume::size(self));
                if open.range.end >= range.end {
                    break;
                }
            }
        }
        if !open.range.is_empty() {
            each(open);
        }
        Ok(())
    }

    fn is_writable(&self) -> bool {
        !self.is_snapshot
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(Volume::write_at(self, offset, data)?)
    }

    fn zero(&self, range: Range<u64>, _release: bool) -> io::Result<()> {
        Ok(Volume::zero(self, range.start, range.end - range.start)?)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(Volume::flush(self)?)
    }
}
