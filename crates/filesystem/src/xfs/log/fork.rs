//! A change to an inode. The log has the core in the machine's order of bytes, and the forks as the disk has them, but
//! for the root of a tree, which it has as memory has it.

use super::transaction::Item;
use crate::bytes::{be16, be64, le16, le32, le64};
use crate::error::Result;
use crate::xfs::error::corrupt;
use crate::xfs::inode;

const FIELD_DATA_LOCAL: u32 = 0x002;
const FIELD_DATA_EXTENTS: u32 = 0x004;
const FIELD_DATA_ROOT: u32 = 0x008;
const FIELD_DEVICE: u32 = 0x010;
const FIELDS_DATA: u32 = FIELD_DATA_LOCAL | FIELD_DATA_EXTENTS | FIELD_DATA_ROOT;
const FIELD_ATTRIBUTES_LOCAL: u32 = 0x040;
const FIELD_ATTRIBUTES_EXTENTS: u32 = 0x080;
const FIELD_ATTRIBUTES_ROOT: u32 = 0x100;
const FIELDS_ATTRIBUTES: u32 = FIELD_ATTRIBUTES_LOCAL | FIELD_ATTRIBUTES_EXTENTS | FIELD_ATTRIBUTES_ROOT;
const FIELDS_OWNER: u32 = 0x200 | 0x400;

/// A description with padding, and one without, from machines of 32 bits.
const DESCRIPTION_BYTES: usize = 56;
const DESCRIPTION_PACKED_BYTES: usize = 52;

const CORE_2_BYTES: usize = 96;
const CORE_3_BYTES: usize = 176;
/// How the fields of the core that are numbers lie in it: where, and how long.
const NUMBERS: [(usize, usize); 20] = [
    (0, 2),
    (2, 2),
    (6, 2),
    (8, 4),
    (12, 4),
    (16, 4),
    (20, 2),
    (22, 2),
    (56, 8),
    (64, 8),
    (72, 4),
    (76, 4),
    (80, 2),
    (84, 4),
    (88, 2),
    (90, 2),
    (92, 4),
    (104, 8),
    (120, 8),
    (128, 4),
];
const TIMES_AT: [usize; 4] = [32, 40, 48, 144];
const FLAG2_BIGTIME: u64 = 1 << 3;
const FLAG2_NREXT64: u64 = 1 << 4;
const MAX_FLUSHES: u16 = u16::MAX;

/// A change to an inode.
pub(super) struct InodeChange<'a> {
    /// The number of the inode.
    pub number: u64,
    /// The buffer that it lies in: sector and count.
    pub place: (u64, u32),
    fields: u32,
    device: u32,
    regions: &'a [Vec<u8>],
}

impl InodeChange<'_> {
    /// Takes an item of the log; `None` where its description cannot be understood.
    pub fn parse(item: &Item) -> Option<InodeChange<'_>> {
        let (description, regions) = item.regions.split_first()?;
        let packed = match description.len() {
            DESCRIPTION_BYTES => 0,
            DESCRIPTION_PACKED_BYTES => 4,
            _ => return None,
        };
        Some(InodeChange {
            number: le64(description, 16 - packed)?,
            place: (le64(description, 40 - packed)?, le32(description, 48 - packed)?),
            fields: le32(description, 4)?,
            device: le32(description, 24 - packed)?,
            regions,
        })
    }

    /// Whether the blocks of its forks came from another inode.
    pub fn changes_owner(&self) -> bool {
        self.fields & FIELDS_OWNER != 0
    }

    /// Changes the bytes of an inode; `false` where they are newer.
    pub fn apply(&self, bytes: &mut [u8], has_crc: bool, lsn: u64) -> Result<bool> {
        let wrong = |why: &str| corrupt(format!("the log changes inode {}: {why}", self.number));
        if be16(bytes, 0) != Some(inode::MAGIC) {
            return Err(wrong("no inode is there"));
        }
        let core = self.regions.first().ok_or_else(|| wrong("without its core"))?;
        let core_bytes = if has_crc { CORE_3_BYTES } else { CORE_2_BYTES };
        let core = core.get(..core_bytes).ok_or_else(|| wrong("its core is cut off"))?;
        if is_newer(bytes, core, has_crc, lsn) {
            return Ok(false);
        }
        apply_core(bytes, core, has_crc, lsn);
        self.apply_forks(bytes, has_crc).ok_or_else(|| wrong("its forks do not fit"))?;
        Ok(true)
    }

    fn apply_forks(&self, bytes: &mut [u8], has_crc: bool) -> Option<()> {
        let forks = bytes.len().min(if has_crc { CORE_3_BYTES } else { CORE_2_BYTES + 4 });
        let attributes_at = forks + usize::from(*bytes.get(82)?) * 8;
        let data_end = if attributes_at == forks { bytes.len() } else { attributes_at };
        let mut regions = self.regions.iter().skip(1);
        let data = bytes.get_mut(forks..data_end)?;
        if self.fields & FIELD_DEVICE != 0 {
            data.get_mut(..4)?.copy_from_slice(&self.device.to_be_bytes());
        }
        if self.fields & FIELDS_DATA != 0 {
            put(data, regions.next()?, self.fields & FIELD_DATA_ROOT != 0, has_crc)?;
        }
        if self.fields & FIELDS_ATTRIBUTES != 0 {
            let attributes = bytes.get_mut(attributes_at..).filter(|_| attributes_at != forks)?;
            put(attributes, regions.next()?, self.fields & FIELD_ATTRIBUTES_ROOT != 0, has_crc)?;
        }
        Some(())
    }
}

/// Whether the inode on the disk was written after the change.
fn is_newer(bytes: &[u8], core: &[u8], has_crc: bool, lsn: u64) -> bool {
    if has_crc {
        return be64(bytes, 112).is_some_and(|on_disk| on_disk != u64::MAX && on_disk > lsn);
    }
    // A count of writes, which may start anew.
    let (on_disk, logged) = (be16(bytes, 30).unwrap_or_default(), le16(core, 30).unwrap_or_default());
    logged < on_disk && !(on_disk == MAX_FLUSHES && logged < MAX_FLUSHES >> 1)
}

fn apply_core(bytes: &mut [u8], core: &[u8], has_crc: bool, lsn: u64) {
    let mut put = |at: usize, len: usize| {
        if let (Some(to), Some(from)) = (bytes.get_mut(at..at + len), core.get(at..at + len)) {
            to.copy_from_slice(from);
            to.reverse();
        }
    };
    NUMBERS.iter().filter(|(at, len)| at + len <= core.len()).for_each(|(at, len)| put(*at, *len));
    [4, 5, 82, 83].into_iter().for_each(|at| put(at, 1));
    let flags2 = if has_crc { le64(core, 120).unwrap_or_default() } else { 0 };
    for at in TIMES_AT.into_iter().filter(|at| at + 8 <= core.len()) {
        if flags2 & FLAG2_BIGTIME != 0 {
            put(at, 8);
        } else {
            put(at, 4);
            put(at + 4, 4);
        }
    }
    if flags2 & FLAG2_NREXT64 != 0 {
        put(24, 8);
    }
    if has_crc {
        bytes[112..120].copy_from_slice(&lsn.to_be_bytes());
    } else {
        bytes[30..32].fill(0);
    }
}

/// Puts a fork's new bytes in place; `None` where they do not fit.
fn put(fork: &mut [u8], region: &[u8], is_root: bool, has_crc: bool) -> Option<()> {
    if is_root {
        return put_root(fork, region, if has_crc { 72 } else { 24 });
    }
    // The log rounds up to words, and the fork of an inode may end before.
    let len = region.len().min(fork.len());
    if region.len() > len.next_multiple_of(4) {
        return None;
    }
    fork[..len].copy_from_slice(&region[..len]);
    Some(())
}

/// The root of a tree: in memory a whole header, keys and pointers; on the disk only level and count before them.
fn put_root(fork: &mut [u8], memory: &[u8], header: usize) -> Option<()> {
    let count = usize::from(be16(memory, 6)?);
    let (rooms_memory, rooms) = (memory.len().checked_sub(header)? / 16, fork.len().checked_sub(4)? / 16);
    if count > rooms_memory || count > rooms {
        return None;
    }
    fork[..4].copy_from_slice(memory.get(4..8)?);
    for (to, from) in [(4, header), (4 + rooms * 8, header + rooms_memory * 8)] {
        fork[to..to + count * 8].copy_from_slice(memory.get(from..from + count * 8)?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_moves_its_pointers() {
        let mut memory = vec![0; 24];
        memory[4..8].copy_from_slice(&[0, 1, 0, 2]);
        memory.extend((0..3 * 16).map(|n: u8| n));
        let mut fork = vec![0xee; 4 + 5 * 16 + 7];
        assert_eq!(put_root(&mut fork, &memory, 24), Some(()));
        assert_eq!(fork[..4], [0, 1, 0, 2]);
        assert!(fork[4..20].iter().copied().eq(0..16));
        assert!(fork[44..60].iter().copied().eq(24..40));
        assert_eq!(put_root(&mut fork[..20], &memory, 24), None);
    }
}
