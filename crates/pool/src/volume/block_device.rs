//! A volume as a device that NBD serves.

use std::io;
use std::ops::Range;

use export::{Block, BlockDevice, Extent};
use format::pool::{MapEntry, MapRoot, VolumeBlock};

use super::Volume;

impl BlockDevice for Volume {
    fn size(&self) -> u64 {
        Volume::size(self)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        Ok(Volume::read_at(self, offset, buf)?)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        let mut open = (Content::Hole, range.start..range.start);
        let mut at = VolumeBlock::at(range.start);
        while at.offset() < range.end {
            let end = at.leaf_end();
            let root = self.root();
            let guard = self.engine.read_guard();
            let pieces = match self.leaf(root, at)? {
                Ok(_) => {
                    let entries = self.entries(at, end)?;
                    at.until(end).zip(&entries).map(|(n, entry)| (1, Content::of(&root, n, *entry))).collect()
                }
                Err(nothing) => {
                    let next = VolumeBlock((at.0 / nothing + 1) * nothing);
                    let is_absent = root.filled.is_some_and(|filled| next.offset() > filled);
                    vec![(at.count_to(next), if is_absent { Content::Absent } else { Content::Hole })]
                }
            };
            drop(guard);
            for (blocks, content) in pieces {
                if content != open.0 && !open.1.is_empty() {
                    let next = open.1.end..open.1.end;
                    let (content, range) = std::mem::replace(&mut open, (content, next));
                    if !self.tell(content, range, each) {
                        return Ok(());
                    }
                }
                open.0 = content;
                at = at + blocks;
                open.1.end = at.offset().min(Volume::size(self));
                if open.1.end >= range.end {
                    break;
                }
            }
        }
        if !open.1.is_empty() {
            self.tell(open.0, open.1, each);
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

/// What a range of a volume holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Data,
    Hole,
    /// What the volume is filled from has it.
    Absent,
}

impl Content {
    fn of(root: &MapRoot, block: VolumeBlock, entry: MapEntry) -> Content {
        if entry.block().is_some() {
            Content::Data
        } else if Volume::is_absent(root, block, entry) {
            Content::Absent
        } else {
            Content::Hole
        }
    }
}

impl Volume {
    /// Tells what a range holds; returns whether more is wanted.
    fn tell(&self, content: Content, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> bool {
        match content {
            Content::Data => each(Extent { range, block: Block::Data }),
            Content::Hole => each(Extent { range, block: Block::Hole }),
            Content::Absent => self.origin.tell(range, each),
        }
    }
}
