//! The header of a qcow2 file.

use super::entry::OFFSET_MASK;
use crate::error::{ImageError, Result};
use crate::file::bytes::{be_u32, be_u64, read_full, ReadAt};
use crate::mapping::tables::MAX_TOP_TABLE_BYTES;

/// The first four bytes of a qcow2 file.
pub(crate) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// What errors call the format.
pub(super) const FORMAT: &str = "qcow2";

/// Bytes of a version 3 header without extensions.
pub(super) const HEADER_LEN_V3: usize = 104;
const HEADER_LEN_V2: usize = 72;
/// Where a version 3 header keeps its compression type, when it is long enough.
const COMPRESSION_TYPE_AT: usize = 104;
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Bytes of a backing file's name at most.
pub(super) const MAX_BACKING_NAME: u32 = 1023;
/// Clusters cannot be cut in 32 below this.
const MIN_SUBCLUSTER_CLUSTER_BITS: u32 = 14;

const INCOMPATIBLE_DIRTY: u64 = 1 << 0;
const INCOMPATIBLE_CORRUPT: u64 = 1 << 1;
const INCOMPATIBLE_DATA_FILE: u64 = 1 << 2;
const INCOMPATIBLE_COMPRESSION: u64 = 1 << 3;
const INCOMPATIBLE_EXTENDED_L2: u64 = 1 << 4;

const EXTENSION_END: u32 = 0;
const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;

/// How compressed clusters are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Deflate,
    Zstd,
}

/// The file that holds what the image does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingName {
    /// The name as it stands in the image.
    pub name: Vec<u8>,
    /// The format the image gives it, if any.
    pub format: Option<String>,
}

/// What a header says, checked.
#[derive(Debug)]
pub(super) struct Header {
    /// 2 or 3.
    pub version: u32,
    /// A cluster has 2^this bytes: 9 to 21.
    pub cluster_bits: u32,
    /// Bytes of the disk.
    pub size: u64,
    /// Where the L1 table is in the file.
    pub l1_offset: u64,
    /// Entries of the L1 table.
    pub l1_entries: u32,
    /// How compressed clusters are compressed.
    pub compression: Compression,
    /// Whether clusters have subclusters.
    pub extended_l2: bool,
    /// The file that holds what the image does not.
    pub backing: Option<BackingName>,
}

impl Header {
    /// Reads and checks the header of `file`; errors call it `name`.
    pub fn read(file: &dyn ReadAt, name: &str) -> Result<Self> {
        let corrupt = |why: String| ImageError::corrupt(name, FORMAT, why);
        // Zeros after a short header stand for fields that older versions lack.
        let mut buf = [0; HEADER_LEN_V3 + 8];
        let got = read_full(file, 0, &mut buf).map_err(|e| ImageError::read(name, "read", e))?;
        if got < HEADER_LEN_V2 || buf[..4] != MAGIC {
            return Err(corrupt("no complete header".into()));
        }
        let version = be_u32(&buf, 4);
        if !(2..=3).contains(&version) {
            return Err(ImageError::unsupported(
                name,
                format!("qcow version {version}"),
                Some("convert it with qemu-img convert -O qcow2"),
            ));
        }
        let cluster_bits = be_u32(&buf, 20);
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(corrupt(format!("clusters of 2^{cluster_bits} bytes; 2^9 to 2^21 are possible")));
        }
        if be_u32(&buf, 32) != 0 {
            return Err(ImageError::unsupported(
                name,
                "an encrypted qcow2 image",
                Some("decrypt it with qemu-img convert"),
            ));
        }
        let (header_len, incompatible) = if version == 2 {
            buf[HEADER_LEN_V2..].fill(0);
            (HEADER_LEN_V2, 0)
        } else {
            check_v3(&buf, got, cluster_bits, &corrupt)?
        };
        check_incompatible(name, incompatible, cluster_bits)?;
        let compression = match (
            incompatible & INCOMPATIBLE_COMPRESSION != 0,
            (header_len > COMPRESSION_TYPE_AT).then(|| buf[COMPRESSION_TYPE_AT]),
        ) {
            (false, None | Some(0)) => Compression::Deflate,
            (true, Some(1)) => Compression::Zstd,
            (true, Some(kind)) if kind > 1 => {
                return Err(ImageError::unsupported(name, format!("compression type {kind}"), None))
            }
            (_, kind) => {
                return Err(corrupt(format!(
                    "compression type {kind:?} contradicts the feature bits {incompatible:#x}"
                )))
            }
        };
        let extended_l2 = incompatible & INCOMPATIBLE_EXTENDED_L2 != 0;
        let header = Self {
            version,
            cluster_bits,
            size: be_u64(&buf, 24),
            l1_entries: be_u32(&buf, 36),
            l1_offset: be_u64(&buf, 40),
            compression,
            extended_l2,
            backing: read_backing(file, name, &buf, header_len, cluster_bits)?,
        };
        header.check_tables(file.len(), &buf, &corrupt)?;
        Ok(header)
    }

    /// Bits of an L2 entry's index.
    pub fn l2_bits(&self) -> u32 {
        self.cluster_bits - if self.extended_l2 { 4 } else { 3 }
    }

    /// How many L1 entries the disk's size needs.
    pub fn l1_needed(&self) -> u64 {
        self.size.div_ceil(1 << (self.cluster_bits + self.l2_bits()))
    }

    fn check_tables(&self, file_len: u64, buf: &[u8], corrupt: &dyn Fn(String) -> ImageError) -> Result<()> {
        let cluster = 1u64 << self.cluster_bits;
        let l1_bytes = u64::from(self.l1_entries) * 8;
        if l1_bytes > MAX_TOP_TABLE_BYTES {
            return Err(corrupt(format!(
                "an L1 table of {l1_bytes} bytes; {MAX_TOP_TABLE_BYTES} are possible"
            )));
        }
        if self.l1_needed() > u64::from(self.l1_entries) {
            return Err(corrupt(format!(
                "an L1 table of {} entries where a disk of {} bytes needs {}",
                self.l1_entries,
                self.size,
                self.l1_needed()
            )));
        }
        if self.l1_offset % cluster != 0 || self.l1_offset & !OFFSET_MASK != 0 {
            return Err(corrupt(format!(
                "L1 table at offset {:#x}, which is not the start of a cluster",
                self.l1_offset
            )));
        }
        let l1_end = self.l1_offset.saturating_add(l1_bytes);
        if self.l1_entries > 0 && (self.l1_offset == 0 || l1_end > file_len) {
            return Err(corrupt(format!(
                "L1 table at {:#x}..{l1_end:#x} in a file of {file_len:#x} bytes",
                self.l1_offset
            )));
        }
        // Refcounts are not needed for reading, but a place that cannot be theirs says that the header is damaged.
        let refcount_table = be_u64(buf, 48);
        if refcount_table % cluster != 0 || refcount_table >= file_len {
            return Err(corrupt(format!(
                "refcount table at offset {refcount_table:#x} in a file of {file_len:#x} bytes"
            )));
        }
        let snapshots = be_u64(buf, 64);
        if be_u32(buf, 60) > 0 && (snapshots % 8 != 0 || snapshots >= file_len) {
            return Err(corrupt(format!(
                "snapshot table at offset {snapshots:#x} in a file of {file_len:#x} bytes"
            )));
        }
        Ok(())
    }

    /// Writes the header of a version 3 image without backing file, snapshots or extensions. Tables are
    /// (L1 entries or refcount table clusters, offset).
    pub fn encode_plain(
        buf: &mut [u8; HEADER_LEN_V3],
        cluster_bits: u32,
        size: u64,
        l1: (u64, u64),
        refcount_table: (u64, u64),
    ) {
        const REFCOUNT_ORDER_16_BITS: u32 = 4;
        let mut u32_at = |at: usize, n: u32| buf[at..at + 4].copy_from_slice(&n.to_be_bytes());
        u32_at(4, 3);
        u32_at(20, cluster_bits);
        // Both are bounded by MAX_TOP_TABLE_BYTES and by what an offset can address.
        u32_at(36, l1.0 as u32);
        u32_at(56, refcount_table.0 as u32);
        u32_at(96, REFCOUNT_ORDER_16_BITS);
        u32_at(100, HEADER_LEN_V3 as u32);
        let mut u64_at = |at: usize, n: u64| buf[at..at + 8].copy_from_slice(&n.to_be_bytes());
        u64_at(24, size);
        u64_at(40, l1.1);
        u64_at(48, refcount_table.1);
        buf[..4].copy_from_slice(&MAGIC);
    }
}

/// Checks what only version 3 has; returns the header's length and its incompatible features.
fn check_v3(
    buf: &[u8],
    got: usize,
    cluster_bits: u32,
    corrupt: &dyn Fn(String) -> ImageError,
) -> Result<(usize, u64)> {
    let header_len = be_u32(buf, 100);
    if got < HEADER_LEN_V3
        || header_len < HEADER_LEN_V3 as u32
        || header_len % 8 != 0
        || header_len > 1 << cluster_bits
    {
        return Err(corrupt(format!("a header of {header_len} bytes")));
    }
    let refcount_order = be_u32(buf, 96);
    if refcount_order > 6 {
        return Err(corrupt(format!("refcounts of 2^{refcount_order} bits; 2^6 are possible")));
    }
    Ok((header_len as usize, be_u64(buf, 72)))
}

fn check_incompatible(name: &str, features: u64, cluster_bits: u32) -> Result<()> {
    if features & INCOMPATIBLE_CORRUPT != 0 {
        return Err(ImageError::corrupt(
            name,
            FORMAT,
            "QEMU marked it as corrupt; repair it with qemu-img check -r all",
        ));
    }
    if features & INCOMPATIBLE_DATA_FILE != 0 {
        return Err(ImageError::unsupported(
            name,
            "a qcow2 image with an external data file",
            Some("convert it with qemu-img convert -O qcow2"),
        ));
    }
    // A dirty image has wrong refcounts; its data is complete.
    let known = INCOMPATIBLE_DIRTY | INCOMPATIBLE_COMPRESSION | INCOMPATIBLE_EXTENDED_L2;
    if features & !known != 0 {
        return Err(ImageError::unsupported(
            name,
            format!("the qcow2 feature of bits {:#x}", features & !known),
            None,
        ));
    }
    if features & INCOMPATIBLE_EXTENDED_L2 != 0 && cluster_bits < MIN_SUBCLUSTER_CLUSTER_BITS {
        return Err(ImageError::corrupt(
            name,
            FORMAT,
            format!("subclusters in clusters of 2^{cluster_bits} bytes"),
        ));
    }
    Ok(())
}

/// The name of the backing file, with the format that the header extensions give it.
fn read_backing(
    file: &dyn ReadAt,
    name: &str,
    buf: &[u8],
    header_len: usize,
    cluster_bits: u32,
) -> Result<Option<BackingName>> {
    let corrupt = |why: String| ImageError::corrupt(name, FORMAT, why);
    let failed = |e| ImageError::read(name, "read", e);
    let (offset, len) = (be_u64(buf, 8), be_u32(buf, 16));
    let cluster = 1u64 << cluster_bits;
    if offset != 0
        && (len > MAX_BACKING_NAME
            || offset < header_len as u64
            || offset.saturating_add(len.into()) > cluster.min(file.len()))
    {
        return Err(corrupt(format!("a backing file's name of {len} bytes at offset {offset:#x}")));
    }
    let extensions_end = if offset == 0 { cluster } else { offset }.min(file.len());
    let format = read_backing_format(file, name, header_len as u64, extensions_end)?;
    // QEMU takes a name of no bytes for none.
    if offset == 0 || len == 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    if read_full(file, offset, &mut bytes).map_err(failed)? < bytes.len() {
        return Err(corrupt("the backing file's name is cut off".into()));
    }
    Ok(Some(BackingName { name: bytes, format }))
}

/// Walks the header extensions, which must end before `end`.
fn read_backing_format(file: &dyn ReadAt, name: &str, start: u64, end: u64) -> Result<Option<String>> {
    let failed = |e| ImageError::read(name, "read", e);
    let mut at = start;
    let mut format = None;
    let mut head = [0; 8];
    while at + 8 <= end {
        if read_full(file, at, &mut head).map_err(failed)? < head.len() {
            break;
        }
        let (kind, len) = (be_u32(&head, 0), u64::from(be_u32(&head, 4)));
        at += 8;
        if kind == EXTENSION_END {
            break;
        }
        if at + len > end {
            return Err(ImageError::corrupt(
                name,
                FORMAT,
                format!("a header extension of {len} bytes at offset {at:#x}, over the end of the header"),
            ));
        }
        if kind == EXTENSION_BACKING_FORMAT {
            let mut bytes = [0; 16];
            let Some(bytes) = bytes.get_mut(..len as usize) else {
                return Err(ImageError::corrupt(
                    name,
                    FORMAT,
                    format!("a backing file's format of {len} bytes"),
                ));
            };
            read_full(file, at, bytes).map_err(failed)?;
            format = Some(String::from_utf8_lossy(bytes).into_owned());
        }
        at += len.next_multiple_of(8);
    }
    Ok(format)
}
