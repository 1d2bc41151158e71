//! What transactions change, applied: buffers, inodes, and fresh inodes.

use super::fork::InodeChange;
use super::transaction::{Item, Transaction};
use crate::bytes::{array, be32, le16, le32, le64};
use crate::error::Result;
use crate::xfs::error::corrupt;
use crate::xfs::inode;
use crate::xfs::superblock::FsBlock;
use crate::xfs::volume::{Volume, SECTOR};
use std::collections::{BTreeMap, HashSet};

const TYPE_INODE: u16 = 0x123b;
const TYPE_BUFFER: u16 = 0x123c;
const TYPE_FRESH_INODES: u16 = 0x123f;
/// The intents that change files when they are carried out: of extents, attributes, and exchanges. That they are done
/// has the type one above. Others free space or count it.
const TYPES_INTENT: [u16; 3] = [0x1244, 0x1246, 0x1248];

const BUFFER_FLAG_UNLINKED: u16 = 1 << 0;
const BUFFER_FLAG_CANCEL: u16 = 1 << 1;
const BUFFER_FLAGS_QUOTA: u16 = 1 << 2 | 1 << 3 | 1 << 4;
const BUFFER_MAP_AT: usize = 20;
/// What a bit of a buffer's map stands for.
const CHUNK_BYTES: usize = 128;

/// What the log may change.
const MAX_REPLAYED_BYTES: usize = 1 << 30;
/// The log sequence number of what never was in the log.
const NO_LSN: u64 = u64::MAX;

/// Buffers that were given up, by place and length in sectors, and how often: until the last time comes, their changes
/// are not applied.
#[derive(Default)]
pub(super) struct Cancelled(BTreeMap<(u64, u32), u32>);

impl Cancelled {
    /// Counts the buffer that an item gives up, if it does.
    pub fn note(&mut self, item: &Item) -> Result<()> {
        if let Some(buffer) = Buffer::parse(item)?.filter(|b| b.flags & BUFFER_FLAG_CANCEL != 0) {
            *self.0.entry(buffer.place()).or_default() += 1;
        }
        Ok(())
    }

    fn forget(&mut self, place: (u64, u32)) {
        if let Some(times) = self.0.get_mut(&place) {
            *times -= 1;
            if *times == 0 {
                self.0.remove(&place);
            }
        }
    }
}

/// Intents that were not carried out yet.
#[derive(Default)]
pub(super) struct Intents(HashSet<(u16, u64)>);

impl Intents {
    /// How many there are.
    pub fn unfinished(&self) -> usize {
        self.0.len()
    }

    fn note(&mut self, kind: u16, description: &[u8]) {
        let Some(number) = le64(description, 8) else { return };
        if TYPES_INTENT.contains(&kind) {
            self.0.insert((kind, number));
        } else {
            self.0.remove(&(kind.wrapping_sub(1), number));
        }
    }
}

/// Applies a transaction: buffers, then inodes, then the buffers given up.
pub(super) fn apply(
    volume: &mut Volume,
    transaction: Transaction,
    cancelled: &mut Cancelled,
    intents: &mut Intents,
) -> Result<()> {
    let (mut inodes, mut given_up) = (Vec::new(), Vec::new());
    for item in &transaction.items {
        match item.kind() {
            TYPE_BUFFER => {
                let Some(buffer) = Buffer::parse(item)? else { continue };
                if buffer.flags & BUFFER_FLAG_CANCEL != 0 {
                    given_up.push(buffer.place());
                } else if !cancelled.0.contains_key(&buffer.place()) {
                    buffer.apply(volume, transaction.lsn)?;
                }
            }
            TYPE_FRESH_INODES => fresh_inodes(volume, item, cancelled)?,
            TYPE_INODE => inodes.push(item),
            other => intents.note(other, item.description()),
        }
        check_size(volume)?;
    }
    for item in inodes {
        apply_inode(volume, item, transaction.lsn, cancelled)?;
        check_size(volume)?;
    }
    given_up.into_iter().for_each(|place| cancelled.forget(place));
    Ok(())
}

fn check_size(volume: &Volume) -> Result<()> {
    match volume.overlay.bytes() {
        bytes if bytes > MAX_REPLAYED_BYTES => {
            Err(corrupt(format!("the log changes {bytes} bytes and more")))
        }
        _ => Ok(()),
    }
}

impl Item {
    fn description(&self) -> &[u8] {
        self.regions.first().map_or(&[], Vec::as_slice)
    }

    fn kind(&self) -> u16 {
        le16(self.description(), 0).unwrap_or_default()
    }
}

/// Changes to a run of sectors.
struct Buffer<'a> {
    flags: u16,
    sector: u64,
    sectors: u16,
    map: &'a [u8],
    regions: &'a [Vec<u8>],
}

impl Buffer<'_> {
    /// The buffer of an item; `None` where it is not one.
    fn parse(item: &Item) -> Result<Option<Buffer<'_>>> {
        if item.kind() != TYPE_BUFFER {
            return Ok(None);
        }
        let description = item.description();
        let parse = || {
            let words = usize::try_from(le32(description, 16)?).ok()?;
            Some(Buffer {
                flags: le16(description, 4)?,
                sectors: le16(description, 6)?,
                sector: le64(description, 8)?,
                map: description.get(BUFFER_MAP_AT..BUFFER_MAP_AT.checked_add(words.checked_mul(4)?)?)?,
                regions: &item.regions[1..],
            })
        };
        parse()
            .map(Some)
            .ok_or_else(|| corrupt(format!("the log has a buffer of {} bytes", description.len())))
    }

    fn place(&self) -> (u64, u32) {
        (self.sector, self.sectors.into())
    }

    fn apply(&self, volume: &mut Volume, lsn: u64) -> Result<()> {
        // Chains of deleted files and quotas lead to no file.
        if self.flags & (BUFFER_FLAG_UNLINKED | BUFFER_FLAGS_QUOTA) != 0 {
            return Ok(());
        }
        let len = usize::from(self.sectors) * SECTOR;
        let range = self
            .sector
            .checked_mul(SECTOR as u64)
            .filter(|at| at.checked_add(len as u64).is_some_and(|end| end <= volume.disk().size()));
        let Some(offset) = range.filter(|_| len > 0) else {
            let (count, at) = (self.sectors, self.sector);
            return Err(corrupt(format!("the log changes {count} sectors at {at}, beyond the volume's end")));
        };
        if volume.superblock.has_crc && is_current(volume, offset, len, lsn)? {
            return Ok(());
        }
        let mut chunk = 0;
        for region in self.regions {
            while !self.has(chunk) {
                if chunk >= self.map.len() * 8 {
                    return Err(self.wrong("more regions than its map has"));
                }
                chunk += 1;
            }
            let changed = (chunk..).take_while(|n| self.has(*n)).count() * CHUNK_BYTES;
            // Where the memory of a buffer is in pieces, so are its regions.
            let taken = changed.min(region.len() / CHUNK_BYTES * CHUNK_BYTES);
            let at = chunk * CHUNK_BYTES;
            if taken == 0 || at + taken > len {
                return Err(self.wrong("a region that does not fit"));
            }
            volume.write(offset + at as u64, &region[..taken])?;
            chunk += taken / CHUNK_BYTES;
        }
        Ok(())
    }

    fn has(&self, chunk: usize) -> bool {
        self.map.get(chunk / 8).is_some_and(|byte| byte >> (chunk % 8) & 1 != 0)
    }

    fn wrong(&self, why: &str) -> crate::error::FsError {
        corrupt(format!("the log's buffer of {} sectors at {} has {why}", self.sectors, self.sector))
    }
}

/// Whether the metadata here has this transaction already, as it says itself.
fn is_current(volume: &Volume, offset: u64, len: usize, lsn: u64) -> Result<bool> {
    let bytes = volume.read(offset, len.min(512))?.bytes;
    let Some(magic) = bytes.first_chunk::<4>() else { return Ok(false) };
    // Where the blocks of each kind keep the number, and the file system's UUID.
    let (lsn_at, uuid_at) = match magic {
        b"XFSB" => (240, if volume.superblock.has_meta_uuid { 248 } else { 32 }),
        b"XAGF" => (208, 64),
        b"XAGI" => (320, 296),
        b"XAFL" => (24, 8),
        b"AB3B" | b"AB3C" | b"FIB3" | b"IAB3" | b"RMB3" | b"R3FC" => (24, 32),
        b"BMA3" => (32, 40),
        b"XDB3" | b"XDD3" | b"XDF3" => (16, 24),
        b"XSLM" => (48, 16),
        // Values are written when their transaction is, and carry no number.
        b"XARM" => return Ok(false),
        _ if matches!(bytes.get(8..10), Some([0x3d, 0xf1 | 0xff] | [0x3e, 0xbe] | [0x3b, 0xee])) => (24, 32),
        _ => return Ok(false),
    };
    let is_ours = array::<16>(&bytes, uuid_at) == Some(volume.superblock.uuid);
    let on_disk = crate::bytes::be64(&bytes, lsn_at).filter(|n| is_ours && *n != 0 && *n != NO_LSN);
    Ok(on_disk.is_some_and(|on_disk| on_disk >= lsn))
}

/// Makes inodes that were allocated and not written yet.
fn fresh_inodes(volume: &mut Volume, item: &Item, cancelled: &Cancelled) -> Result<()> {
    let description = item.description();
    let field = |n: usize| be32(description, 4 + 4 * n).unwrap_or_default();
    let (group, block, count, size, blocks, generation) =
        (field(0), field(1), field(2), field(3), field(4), field(5));
    let superblock = volume.superblock.clone();
    let at = FsBlock(u64::from(group) << superblock.group_block_log | u64::from(block));
    let offset = volume.offset_of(at, blocks.into());
    let fits = u64::from(count) << superblock.inode_log == u64::from(blocks) << superblock.block_log
        && size as usize == superblock.inode_bytes()
        && count <= 4096;
    let (Some(offset), true) = (offset, fits) else {
        return Err(corrupt(format!("the log makes {count} inodes in {blocks} blocks at {:#x}", at.0)));
    };
    let first_sector = offset / SECTOR as u64;
    let end_sector = first_sector + (u64::from(blocks) << superblock.block_log >> 9);
    if cancelled.0.range((first_sector, 0)..(end_sector, 0)).next().is_some() {
        return Ok(());
    }
    let first = at.0 << superblock.inodes_per_block_log();
    for n in 0..u64::from(count) {
        let mut bytes = vec![0; superblock.inode_bytes()];
        bytes[..2].copy_from_slice(&inode::MAGIC.to_be_bytes());
        bytes[4] = if superblock.has_crc { 3 } else { 2 };
        bytes[92..96].copy_from_slice(&generation.to_be_bytes());
        if superblock.has_crc {
            bytes[152..160].copy_from_slice(&(first + n).to_be_bytes());
            bytes[160..176].copy_from_slice(&superblock.uuid);
        }
        volume.write(offset + (n << superblock.inode_log), &bytes)?;
    }
    Ok(())
}

/// Changes an inode: its core, and its forks.
fn apply_inode(volume: &mut Volume, item: &Item, lsn: u64, cancelled: &Cancelled) -> Result<()> {
    let Some(change) = InodeChange::parse(item) else {
        return Err(corrupt(format!("the log has an inode of {} bytes", item.description().len())));
    };
    if cancelled.0.contains_key(&change.place) {
        return Ok(());
    }
    let size = volume.superblock.inode_bytes();
    let offset = volume.superblock.inode_offset(change.number);
    let Some(offset) = offset.filter(|at| at + size as u64 <= volume.disk().size()) else {
        return Err(corrupt(format!("the log changes inode {}, which is beyond the volume", change.number)));
    };
    let mut bytes = volume.read(offset, size)?.bytes;
    if change.apply(&mut bytes, volume.superblock.has_crc, lsn)? {
        volume.write(offset, &bytes)?;
        if change.changes_owner() {
            volume.overlay.moved.insert(change.number);
        }
    }
    Ok(())
}
