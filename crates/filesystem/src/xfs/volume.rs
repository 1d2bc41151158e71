//! Metadata of the volume as the log leaves it: blocks of the disk, and what was replayed over them.

use super::error::corrupt;
use super::superblock::{crc_is_right, FsBlock, Superblock};
use crate::bytes::{array, be64};
use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::Result;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// What disks count in, whatever their own sectors.
pub(super) const SECTOR: usize = 512;

/// What is read at once, so that neighbours (inodes above all) come along.
const PAGE_BYTES: u64 = 16 << 10;
const PAGES_KEPT_BYTES: usize = 8 << 20;

/// What the log changes, by sectors.
#[derive(Default)]
pub(super) struct Overlay {
    sectors: BTreeMap<u64, Box<[u8; SECTOR]>>,
    /// Inodes whose blocks still name another owner.
    pub moved: HashSet<u64>,
}

impl Overlay {
    /// Bytes of memory that its sectors take.
    pub fn bytes(&self) -> usize {
        self.sectors.len() * SECTOR
    }

    /// Whether any of these bytes were replayed.
    fn touches(&self, offset: u64, len: usize) -> bool {
        let (first, end) = sectors(offset, len);
        self.sectors.range(first..end).next().is_some()
    }

    /// Puts what was replayed over `buf`.
    fn patch(&self, offset: u64, buf: &mut [u8]) {
        let (first, end) = sectors(offset, buf.len());
        let buf_end = offset + buf.len() as u64;
        for (sector, data) in self.sectors.range(first..end) {
            let at = sector * SECTOR as u64;
            let (from, to) = (at.max(offset), (at + SECTOR as u64).min(buf_end));
            let source = &data[(from - at) as usize..(to - at) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
        }
    }
}

/// The sectors of some bytes.
fn sectors(offset: u64, len: usize) -> (u64, u64) {
    let end = offset.saturating_add(len as u64);
    (offset / SECTOR as u64, end.div_ceil(SECTOR as u64))
}

/// Where a header that describes its block has its fields.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    /// The checksum.
    pub crc: usize,
    /// The number of the block on the disk.
    pub place: usize,
    /// The file system.
    pub uuid: usize,
    /// The inode that the block belongs to.
    pub owner: usize,
}

/// Bytes of metadata, and where they come from.
pub(super) struct Block {
    /// What was read.
    pub bytes: Vec<u8>,
    /// Where the first of them lies on the volume.
    pub offset: u64,
    /// Whether the log changed them: then their checksum was not made yet.
    pub replayed: bool,
}

/// The metadata of a volume.
pub(super) struct Volume {
    disk: Arc<dyn Disk>,
    /// Its superblock.
    pub superblock: Superblock,
    /// What the log replayed.
    pub overlay: Overlay,
    /// Whether checksums are compared.
    pub check_crc: bool,
    pages: Cache<u64, Arc<Vec<u8>>>,
}

impl Volume {
    /// Nothing was replayed yet.
    pub fn new(disk: Arc<dyn Disk>, superblock: Superblock, check_crc: bool) -> Volume {
        let (overlay, pages) = (Overlay::default(), Cache::new(PAGES_KEPT_BYTES));
        Volume { disk, superblock, overlay, check_crc, pages }
    }

    /// What it is read from.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// The same, to be kept.
    pub fn disk_shared(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }

    /// Where a run of blocks lies, if it is within its group and on the disk.
    pub fn offset_of(&self, block: FsBlock, count: u64) -> Option<u64> {
        let offset = self.superblock.offset_of(block, count)?;
        let end = offset.checked_add(count << self.superblock.block_log)?;
        (end <= self.disk.size()).then_some(offset)
    }

    /// Reads metadata. It must lie within the disk.
    pub fn read(&self, offset: u64, len: usize) -> Result<Block> {
        let mut bytes = vec![0; len];
        self.read_into(offset, &mut bytes)?;
        Ok(Block { bytes, offset, replayed: self.overlay.touches(offset, len) })
    }

    /// Reads blocks at the places given, which follow one another in a file. None is empty.
    pub fn read_pieces(&self, pieces: &[(u64, usize)]) -> Result<Block> {
        let mut bytes = vec![0; pieces.iter().map(|(_, len)| len).sum()];
        let (mut at, mut replayed) = (0, false);
        for (offset, len) in pieces {
            self.read_into(*offset, &mut bytes[at..at + len])?;
            replayed |= self.overlay.touches(*offset, *len);
            at += len;
        }
        Ok(Block { bytes, offset: pieces.first().map_or(0, |p| p.0), replayed })
    }

    fn read_into(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let page = self.page(at / PAGE_BYTES)?;
            let within = (at % PAGE_BYTES) as usize;
            let Some(rest) = page.get(within..).filter(|rest| !rest.is_empty()) else {
                return Err(corrupt(format!("metadata at offset {at:#x}, beyond the volume's end")));
            };
            let len = rest.len().min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&rest[..len]);
            done += len;
        }
        self.overlay.patch(offset, buf);
        Ok(())
    }

    /// A page of the disk, short at its end.
    fn page(&self, number: u64) -> Result<Arc<Vec<u8>>> {
        if let Some(page) = self.pages.get(number) {
            return Ok(page);
        }
        let at = number.saturating_mul(PAGE_BYTES);
        let mut bytes = vec![0; self.disk.size().saturating_sub(at).min(PAGE_BYTES) as usize];
        if !bytes.is_empty() {
            self.disk.read_at(at, &mut bytes)?;
        }
        let page = Arc::new(bytes);
        self.pages.put(number, page.clone(), PAGE_BYTES as usize);
        Ok(page)
    }

    /// Holds the header of a version 5 block against where it was found and whose it must be.
    pub fn verify(&self, block: &Block, stamp: Stamp, owner: u64, what: &str) -> Result<()> {
        let wrong =
            |why: String| Err(corrupt(format!("inode {owner}: {what} at offset {:#x}: {why}", block.offset)));
        if self.check_crc && !block.replayed && !crc_is_right(&block.bytes, stamp.crc) {
            return wrong("its checksum is wrong".into());
        }
        let place = be64(&block.bytes, stamp.place);
        if place != Some(block.offset / SECTOR as u64) {
            return wrong(format!("it says it is at sector {}", place.unwrap_or_default()));
        }
        if array::<16>(&block.bytes, stamp.uuid) != Some(self.superblock.uuid) {
            return wrong("it belongs to another file system".into());
        }
        let named = be64(&block.bytes, stamp.owner);
        if named != Some(owner) && !self.overlay.moved.contains(&owner) {
            return wrong(format!("it belongs to inode {}", named.unwrap_or_default()));
        }
        Ok(())
    }

    /// Writes over the metadata, in memory. Beyond the disk is damage.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= self.disk.size());
        if end.is_none() {
            let why = format!("the log writes {} bytes at offset {offset:#x}", data.len());
            return Err(corrupt(format!("{why}, beyond the volume's end")));
        }
        let (first, last) = sectors(offset, data.len());
        for sector in first..last {
            let at = sector * SECTOR as u64;
            if !self.overlay.sectors.contains_key(&sector) {
                let len = (self.disk.size() - at).min(SECTOR as u64) as usize;
                let mut whole = Box::new([0; SECTOR]);
                self.read_into(at, &mut whole[..len])?;
                self.overlay.sectors.insert(sector, whole);
            }
            let (from, to) = (at.max(offset), (at + SECTOR as u64).min(offset + data.len() as u64));
            let source = &data[(from - offset) as usize..(to - offset) as usize];
            if let Some(whole) = self.overlay.sectors.get_mut(&sector) {
                whole[(from - at) as usize..(to - at) as usize].copy_from_slice(source);
            }
        }
        Ok(())
    }
}
