//! How an overlay's file is laid out: header, L1 table, then clusters as they come.

use crate::error::{ImageError, Result};
use crate::file::bytes::{be_u32, be_u64, ReadAt};
use crate::file::random_file::RandomFile;
use crate::qcow2::header::{BackingName, Header, MAGIC, MAX_BACKING_NAME};
use std::io;

/// A cluster has 2^this bytes.
pub(super) const CLUSTER_BITS: u32 = 17;
/// Bytes of a cluster: 128 KiB.
pub(super) const CLUSTER_BYTES: u64 = 1 << CLUSTER_BITS;
/// A subcluster: the piece that is written or not.
pub(super) const BLOCK_BYTES: u64 = CLUSTER_BYTES / 32;
/// Entries of an L2 table, of 16 bytes each.
pub(super) const L2_ENTRIES: u64 = CLUSTER_BYTES / 16;
/// Refcounts of 16 bits in a cluster.
pub(super) const REFCOUNTS: u64 = CLUSTER_BYTES / 2;

/// Clusters that the refcount blocks can count whose offsets fill one cluster: 128 TiB.
pub(super) const CLUSTERS_MAX: u64 = CLUSTER_BYTES / 8 * REFCOUNTS;

/// QEMU counts sizes of disks in this unit and ignores the rest.
const SECTOR_BYTES: u64 = 512;

/// The largest disk: one cluster of refcount block offsets is enough for it.
const SIZE_MAX: u64 = 64 << 40;

/// Where the fields that change stand in the header.
pub(super) const REFCOUNT_TABLE_AT: u64 = 48;
/// Where the incompatible features are in the header.
pub(super) const FEATURES_AT: u64 = 72;

const DIRTY: u64 = 1 << 0;
const EXTENDED_L2: u64 = 1 << 4;
const LAZY_REFCOUNTS: u64 = 1 << 0;
const HEADER_LEN: usize = 112;
const REFCOUNT_ORDER_16_BITS: u32 = 4;
const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;

/// Determines where everything is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of the disk, whole sectors.
    pub size: u64,
    /// Where the L1 table is in the file.
    pub l1_offset: u64,
}

impl Layout {
    /// The layout of a new file for a disk of `size` bytes, or a little more: whole sectors.
    pub fn new(name: &str, size: u64) -> Result<Layout> {
        if size > SIZE_MAX {
            let what = format!("an overlay over a disk of {size} bytes, more than 64 TiB");
            return Err(ImageError::unsupported(name, what, None));
        }
        Ok(Layout { size: size.next_multiple_of(SECTOR_BYTES), l1_offset: CLUSTER_BYTES })
    }

    /// L1 entries that the disk needs.
    pub fn l1_entries(&self) -> u64 {
        self.size.div_ceil(CLUSTER_BYTES * L2_ENTRIES)
    }

    /// The clusters of the L1 table.
    pub fn l1_clusters(&self) -> std::ops::Range<u64> {
        let first = self.l1_offset / CLUSTER_BYTES;
        first..first + (self.l1_entries() * 8).div_ceil(CLUSTER_BYTES).max(1)
    }

    /// The first cluster after the header and the L1 table.
    pub fn first_free(&self) -> u64 {
        self.l1_clusters().end
    }

    /// Header and empty L1 table.
    pub fn header(&self, name: &str, backing: Option<&BackingName>) -> Result<Vec<u8>> {
        let mut head = vec![0; (self.first_free() * CLUSTER_BYTES) as usize];
        head[..4].copy_from_slice(&MAGIC);
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(4, &3u32.to_be_bytes());
        put(20, &CLUSTER_BITS.to_be_bytes());
        put(24, &self.size.to_be_bytes());
        put(36, &(self.l1_entries() as u32).to_be_bytes());
        put(40, &self.l1_offset.to_be_bytes());
        put(FEATURES_AT as usize, &DIRTY_FEATURES);
        put(80, &LAZY_REFCOUNTS.to_be_bytes());
        put(96, &REFCOUNT_ORDER_16_BITS.to_be_bytes());
        put(100, &(HEADER_LEN as u32).to_be_bytes());
        let mut at = HEADER_LEN;
        if let Some(backing) = backing {
            let format = backing.format.as_deref().unwrap_or("raw").as_bytes();
            if format.len() > 8 || backing.name.len() > MAX_BACKING_NAME as usize {
                return Err(ImageError::refused(name, "the name of the backing file is too long"));
            }
            put(at, &EXTENSION_BACKING_FORMAT.to_be_bytes());
            put(at + 4, &(format.len() as u32).to_be_bytes());
            put(at + 8, format);
            // Behind it stands the end of the extensions: eight zeros.
            at += 24;
            put(8, &(at as u64).to_be_bytes());
            put(16, &(backing.name.len() as u32).to_be_bytes());
            put(at, &backing.name);
        }
        Ok(head)
    }

    /// The layout of an existing file, and its backing file.
    pub fn read(file: &dyn RandomFile, name: &str) -> Result<(Layout, Option<BackingName>)> {
        let failed = |e| ImageError::read(name, "read", e);
        let bytes = Bytes { file, len: file.len().map_err(failed)? };
        let header = Header::read(&bytes, name)?;
        let mut head = [0; 104];
        file.read_at(0, &mut head).map_err(failed)?;
        let foreign = |what: &str| {
            let hint = "make the overlay with sapwood, and let only one program at a time write it";
            ImageError::unsupported(name, format!("an overlay with {what}"), Some(hint))
        };
        if !header.extended_l2 || header.cluster_bits != CLUSTER_BITS {
            return Err(foreign("other clusters than 128 KiB with subclusters"));
        }
        if be_u32(&head, 60) != 0 {
            return Err(foreign("internal snapshots"));
        }
        if be_u64(&head, 88) != 0 {
            return Err(foreign("bitmaps or other automatic features"));
        }
        let layout = Layout { l1_offset: header.l1_offset, ..Layout::new(name, header.size)? };
        Ok((layout, header.backing))
    }
}

/// The features that a program must know to read the file, while its refcounts are not right.
pub(super) const DIRTY_FEATURES: [u8; 8] = (EXTENDED_L2 | DIRTY).to_be_bytes();

/// The fields from [`REFCOUNT_TABLE_AT`] on of a file whose refcounts are right: where their table is (one cluster), no
/// snapshots, and features. All of it is in one sector, so that a power cut leaves all of it or none.
pub(super) fn clean(refcount_table: u64) -> [u8; 32] {
    let mut fields = [0; 32];
    fields[..8].copy_from_slice(&refcount_table.to_be_bytes());
    fields[8..12].copy_from_slice(&1u32.to_be_bytes());
    fields[24..].copy_from_slice(&EXTENDED_L2.to_be_bytes());
    fields
}

/// An overlay's file for the reader of headers.
struct Bytes<'a> {
    file: &'a dyn RandomFile,
    len: u64,
}

impl ReadAt for Bytes<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let len = (self.len.saturating_sub(offset)).min(buf.len() as u64) as usize;
        self.file.read_at(offset, &mut buf[..len])?;
        Ok(len)
    }
}
