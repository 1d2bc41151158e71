//! Directories: trees of blocks, sorted by name.

use super::error::damaged;
use super::mft::{File, Mft};
use super::record::{fix_up, kind, RecordNo, Reference, ROOT};
use super::stream::Stream;
use crate::bytes::{le16, le32, le64};
use crate::error::Result;
use crate::tree::{Entry, NodeId};
use crate::wtf8;
use std::collections::HashSet;

/// `$I30`, the index of a directory.
const NAME: [u16; 4] = [0x24, 0x49, 0x33, 0x30];

/// Smaller indexes are read at once.
const WHOLE_BYTES: u64 = 16 << 20;
const INDEX_BYTES_MAX: u64 = 1 << 30;
const BLOCK_BYTES: std::ops::RangeInclusive<usize> = 512..=65536;
const DEPTH_MAX: u32 = 32;
/// Blocks smaller than clusters are counted in these.
const SMALL_BLOCK_UNIT: u64 = 512;

const HAS_CHILD: u16 = 1;
const IS_LAST: u16 = 2;

/// Names that stand only for DOS.
const NAMESPACE_DOS: u8 = 2;
/// The first record that may be a user's file.
const FIRST_USER: RecordNo = RecordNo(16);

/// The entries of a directory.
pub(super) fn entries(mft: &Mft, file: &File) -> Result<Vec<Entry>> {
    let wrong = |why: String| damaged(file.number, why);
    let root = file.stream(&mft.volume, kind::INDEX_ROOT, &NAME)?;
    let root = root.ok_or_else(|| wrong("a directory without an index".into()))?;
    let root = root.read_all(&mft.volume, mft.volume.geometry.record_bytes)?;
    let block_bytes = le32(&root, 8).unwrap_or(0) as usize;
    if !block_bytes.is_power_of_two() || !BLOCK_BYTES.contains(&block_bytes) {
        return Err(wrong(format!("index blocks of {block_bytes} bytes")));
    }
    let blocks = Blocks::open(mft, file, block_bytes)?;
    let mut walk = Walk { number: file.number, blocks, seen: HashSet::new(), entries: Vec::new() };
    walk.node(root.get(0x10..).unwrap_or_default(), 0)?;
    Ok(walk.entries)
}

/// The blocks of an index.
struct Blocks<'a> {
    mft: &'a Mft,
    stream: Option<Stream>,
    block_bytes: usize,
    whole: Vec<u8>,
}

impl<'a> Blocks<'a> {
    fn open(mft: &'a Mft, file: &File, block_bytes: usize) -> Result<Blocks<'a>> {
        let stream = file.stream(&mft.volume, kind::INDEX_ALLOCATION, &NAME)?;
        let size = stream.as_ref().map_or(0, |s| s.size);
        if size > INDEX_BYTES_MAX.min(mft.volume.disk.size()) {
            return Err(damaged(file.number, format!("an index of {size:#x} bytes")));
        }
        let whole = match &stream {
            Some(stream) if size <= WHOLE_BYTES => stream.read_all(&mft.volume, WHOLE_BYTES)?,
            _ => Vec::new(),
        };
        Ok(Blocks { mft, stream, block_bytes, whole })
    }

    /// A block, its ends put back; an error says what is wrong.
    fn read(&self, number: RecordNo, block: u64) -> Result<Vec<u8>> {
        let cluster = self.mft.volume.geometry.cluster_bytes;
        let unit = if self.block_bytes as u64 >= cluster { cluster } else { SMALL_BLOCK_UNIT };
        let size = self.stream.as_ref().map_or(0, |s| s.size);
        let at = block.checked_mul(unit).filter(|at| at.saturating_add(self.block_bytes as u64) <= size);
        let at =
            at.ok_or_else(|| damaged(number, format!("block {block:#x} of an index of {size:#x} bytes")))?;
        let mut bytes = vec![0; self.block_bytes];
        match (&self.stream, self.whole.get(at as usize..at as usize + self.block_bytes)) {
            (_, Some(held)) => bytes.copy_from_slice(held),
            (Some(stream), None) => drop(stream.read_at(&self.mft.volume, at, &mut bytes)?),
            (None, None) => {}
        }
        fix_up(&mut bytes, b"INDX")
            .map_err(|why| damaged(number, format!("index block {block:#x}: {why}")))?;
        match le64(&bytes, 0x10) {
            Some(own) if own == block => Ok(bytes),
            own => {
                let own = own.unwrap_or(0);
                Err(damaged(number, format!("index block {block:#x} calls itself {own:#x}")))
            }
        }
    }
}

struct Walk<'a> {
    number: RecordNo,
    blocks: Blocks<'a>,
    /// Blocks that were met.
    seen: HashSet<u64>,
    entries: Vec<Entry>,
}

impl Walk<'_> {
    /// Takes the entries of a node, those of a child before the entry that it hangs on.
    fn node(&mut self, node: &[u8], depth: u32) -> Result<()> {
        let wrong = |why: String| damaged(self.number, why);
        let (first, used) = (le32(node, 0).unwrap_or(0) as usize, le32(node, 4).unwrap_or(0) as usize);
        let area = node.get(first..used).ok_or_else(|| {
            wrong(format!("index entries at {first:#x} to {used:#x} of {:#x} bytes", node.len()))
        })?;
        let mut at = 0;
        loop {
            let len = usize::from(le16(area, at + 8).unwrap_or(0));
            let entry = area.get(at..at + len).filter(|_| len >= 0x10);
            let entry = entry.ok_or_else(|| {
                damaged(self.number, format!("an index entry of {len} bytes at {at:#x} of {:#x}", area.len()))
            })?;
            let flags = le16(entry, 0x0c).unwrap_or(0);
            if flags & HAS_CHILD != 0 {
                let child = le64(entry, (len - 8) & !7).unwrap_or(u64::MAX);
                self.child(child, depth)?;
            }
            if flags & IS_LAST != 0 {
                return Ok(());
            }
            self.entry(entry)?;
            at += len;
        }
    }

    fn child(&mut self, block: u64, depth: u32) -> Result<()> {
        if depth == DEPTH_MAX || !self.seen.insert(block) {
            return Err(damaged(self.number, format!("its index has a loop at block {block:#x}")));
        }
        let bytes = self.blocks.read(self.number, block)?;
        self.node(bytes.get(0x18..).unwrap_or_default(), depth + 1)
    }

    fn entry(&mut self, entry: &[u8]) -> Result<()> {
        let reference = Reference(le64(entry, 0).unwrap_or(0));
        let key = entry.get(0x10..0x10 + usize::from(le16(entry, 0x0a).unwrap_or(0))).unwrap_or_default();
        let units = key.get(0x40).map(|n| usize::from(*n) * 2);
        let name = units.and_then(|units| key.get(0x42..0x42 + units));
        let (Some(name), Some(space)) = (name, key.get(0x41)) else {
            return Err(damaged(self.number, format!("an index entry has a name in {} bytes", key.len())));
        };
        if *space == NAMESPACE_DOS || self.number == ROOT && reference.record() < FIRST_USER {
            return Ok(());
        }
        let name = wtf8::from_le_bytes(name);
        self.entries.push(Entry { name, id: NodeId(reference.0) });
        Ok(())
    }
}

/// Whether a value of the attribute `FILE_NAME` is a name of its own, and not the DOS form of another.
pub(super) fn is_own_name(name: &[u8]) -> bool {
    name.get(0x41).is_some_and(|space| *space != NAMESPACE_DOS)
}
