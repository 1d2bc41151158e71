//! The map of an arriving disk: which blocks are there. docs/format/arriving.md is its description.

use crate::bytes::{le_u32, le_u64};
use crate::random_file::RandomFile;
use crate::{ImageError, Result};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What has arrived, or not.
pub(super) const BLOCK_BYTES: u64 = 4096;

const FORMAT: &str = "map of an arriving disk";
const MAGIC: [u8; 8] = *b"SAPARRIV";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 4096;
/// What of the bits is written at once.
const PAGE_BYTES: u64 = 4096;
const PAGE_WORDS: u64 = PAGE_BYTES / 8;

const FLAG_HOLDS: u32 = 1;
const SIZE_AT: usize = 16;
const BOOT_AT: usize = 24;
const OF_AT: usize = 56;
const OF_BYTES_MAX: usize = 1024;
const CHECKSUM_AT: usize = HEADER_BYTES as usize - 4;

/// Which run of the system it is: what was written in this one is in its cache, if not on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId([u8; 16]);

impl BootId {
    /// That of the system as it runs; all zeros, which equals none, where it does not say.
    pub fn current() -> BootId {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        BootId(u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes())
    }

    #[cfg(test)]
    pub fn of_test(n: u8) -> BootId {
        BootId([n; 16])
    }

    fn is_same(&self, other: &BootId) -> bool {
        self == other && self.0 != [0; 16]
    }
}

pub(super) struct Map {
    name: String,
    file: Box<dyn RandomFile>,
    size: u64,
    holds: bool,
    /// A bit for each block, as the file's first bits have it.
    bits: Vec<AtomicU64>,
    /// The file lacks some of them: it had no room.
    is_behind: AtomicBool,
    /// Pages of the durable bits that are not as the first bits are.
    dirty: Mutex<BTreeSet<u64>>,
}

/// What the header says.
struct Header<'a> {
    size: u64,
    boot: BootId,
    holds: bool,
    of: &'a [u8],
}

impl Header<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(BLOCK_BYTES as u32).to_le_bytes());
        put(SIZE_AT, &self.size.to_le_bytes());
        put(BOOT_AT, &self.boot.0);
        put(40, &u32::from(self.holds).to_le_bytes());
        put(44, &(self.of.len() as u32).to_le_bytes());
        put(OF_AT, self.of);
        let sum = checksum(&bytes);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Header<'_>, String> {
        if bytes[..8] != MAGIC {
            return Err("does not begin like one".into());
        }
        let version = le_u32(bytes, 8);
        if version != VERSION {
            return Err(format!("is of version {version}, and {VERSION} is known"));
        }
        if le_u32(bytes, CHECKSUM_AT) != checksum(bytes) {
            return Err("its header does not match its checksum".into());
        }
        let (block, len) = (le_u32(bytes, 12), le_u32(bytes, 44) as usize);
        if u64::from(block) != BLOCK_BYTES || len > OF_BYTES_MAX {
            return Err(format!("has blocks of {block} bytes and a name of {len}"));
        }
        let mut boot = BootId([0; 16]);
        boot.0.copy_from_slice(&bytes[BOOT_AT..BOOT_AT + 16]);
        let holds = le_u32(bytes, 40) & FLAG_HOLDS != 0;
        Ok(Header { size: le_u64(bytes, SIZE_AT), boot, holds, of: &bytes[OF_AT..OF_AT + len] })
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(&bytes[..CHECKSUM_AT])
}

/// Bytes of a map.
fn map_bytes(size: u64) -> u64 {
    HEADER_BYTES + 2 * bits_bytes(size)
}

/// Bytes of one set of bits.
fn bits_bytes(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES).div_ceil(8).next_multiple_of(PAGE_BYTES)
}

impl Map {
    fn with(name: &str, file: Box<dyn RandomFile>, size: u64, holds: bool, bits: Vec<AtomicU64>) -> Map {
        let (is_behind, dirty) = Default::default();
        Map { name: name.to_owned(), file, size, holds, bits, is_behind, dirty }
    }

    /// Whether a file holds a map, of whatever disk.
    pub fn is_map(file: &dyn RandomFile, name: &str) -> Result<bool> {
        let read = |e| ImageError::read(name, "read", e);
        if file.len().map_err(read)? < HEADER_BYTES {
            return Ok(false);
        }
        let mut bytes = vec![0; HEADER_BYTES as usize];
        file.read_at(0, &mut bytes).map_err(read)?;
        Ok(Header::decode(&bytes).is_ok())
    }

    /// Whether a file holds the map of a disk of which all has arrived, durably.
    pub fn is_whole(file: &dyn RandomFile, name: &str) -> Result<bool> {
        if !Self::is_map(file, name)? {
            return Ok(false);
        }
        let read = |e| ImageError::read(name, "read", e);
        let mut bytes = vec![0; HEADER_BYTES as usize];
        file.read_at(0, &mut bytes).map_err(read)?;
        let size = le_u64(&bytes, SIZE_AT);
        if file.len().map_err(read)? != map_bytes(size) {
            return Ok(false);
        }
        let mut left = size.div_ceil(BLOCK_BYTES);
        let mut page = vec![0; PAGE_BYTES as usize];
        let start = HEADER_BYTES + bits_bytes(size);
        for at in (start..start + bits_bytes(size)).step_by(PAGE_BYTES as usize) {
            file.read_at(at, &mut page).map_err(read)?;
            left -= page.iter().map(|b| u64::from(b.count_ones())).sum::<u64>().min(left);
        }
        Ok(left == 0)
    }

    /// Whether there is anything in a file that is to be a map; if not, its maker was killed before its header.
    pub fn is_begun(file: &dyn RandomFile, name: &str, size: u64) -> Result<bool> {
        let read = |e| ImageError::read(name, "read", e);
        let len = file.len().map_err(read)?;
        if len == 0 || len != map_bytes(size) {
            return Ok(len > 0);
        }
        let mut page = vec![0; PAGE_BYTES as usize];
        for at in (0..len).step_by(PAGE_BYTES as usize) {
            file.read_at(at, &mut page).map_err(read)?;
            if page.iter().any(|b| *b != 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A map of a disk of which nothing has arrived.
    pub fn create(
        file: Box<dyn RandomFile>,
        name: &str,
        size: u64,
        of: &[u8],
        boot: BootId,
        holds: bool,
    ) -> Result<Map> {
        if of.len() > OF_BYTES_MAX {
            return Err(ImageError::refused(name, "what arrives has too long a name"));
        }
        let words = bits_bytes(size) / 8;
        let bits = (0..words).map(|_| AtomicU64::new(0)).collect();
        let map = Map::with(name, file, size, holds, bits);
        let io = |e| ImageError::io(name, "write", e);
        map.file.set_len(map_bytes(size)).map_err(io)?;
        map.sync()?;
        // The header last: without it there is no map.
        map.file.write_at(0, &Header { size, boot, holds, of }.encode()).map_err(io)?;
        map.sync()?;
        Ok(map)
    }

    /// Opens a map. After the system was started anew only its durable bits count.
    pub fn open(file: Box<dyn RandomFile>, name: &str, size: u64, of: &[u8], boot: BootId) -> Result<Map> {
        let read = |e| ImageError::read(name, "read", e);
        let corrupt = |why: String| ImageError::corrupt(name, FORMAT, why);
        let len = file.len().map_err(read)?;
        if len < HEADER_BYTES {
            return Err(corrupt(format!("has {len} bytes, fewer than a header")));
        }
        let mut bytes = vec![0; HEADER_BYTES as usize];
        file.read_at(0, &mut bytes).map_err(read)?;
        let header = Header::decode(&bytes).map_err(corrupt)?;
        if header.size != size || header.of != of {
            let why = format!(
                "is the map of another restore ({}, {} bytes); name that snapshot to go on with it, or give another target",
                String::from_utf8_lossy(header.of),
                header.size
            );
            return Err(ImageError::refused(name, why));
        }
        let len = bits_bytes(size);
        let first = match header.boot.is_same(&boot) {
            true => HEADER_BYTES,
            false => HEADER_BYTES + len,
        };
        let mut all = vec![0; len as usize];
        file.read_at(first, &mut all).map_err(read)?;
        let holds = header.holds;
        let bits = all.chunks_exact(8).map(|w| AtomicU64::new(le_u64(w, 0))).collect();
        let map = Map::with(name, file, size, holds, bits);
        if first == HEADER_BYTES {
            // Which of them are durable is not known: all are written again with the next flush.
            map.lock().extend(0..len / PAGE_BYTES);
        } else {
            map.file.write_at(HEADER_BYTES, &all).map_err(|e| ImageError::io(name, "write", e))?;
            map.sync()?;
            let header = Header { size, boot, holds, of };
            map.file.write_at(0, &header.encode()).map_err(|e| ImageError::io(name, "write", e))?;
            map.sync()?;
        }
        Ok(map)
    }

    /// Whether what arrives is held for it.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Only durable bits count when it is opened again, whatever run of the system that is.
    pub fn distrust(&self) {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        let changed = self.file.read_at(0, &mut bytes).and_then(|()| {
            bytes[BOOT_AT..BOOT_AT + 16].fill(0);
            let sum = checksum(&bytes);
            bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
            self.file.write_at(0, &bytes)?;
            self.file.sync()
        });
        // If that fails as well there is nothing left to be done; the error that led here is told.
        drop(changed);
    }

    /// Blocks that have arrived.
    pub fn count(&self) -> u64 {
        self.bits.iter().map(|w| u64::from(w.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// Whether the first block of a range has arrived, and up to where of the range the same is true.
    pub fn run(&self, range: &Range<u64>) -> Option<(bool, u64)> {
        if range.is_empty() {
            return None;
        }
        let (first, last) = (range.start / BLOCK_BYTES, (range.end - 1) / BLOCK_BYTES);
        let arrived = self.is_set(first);
        let end = (first + 1..=last).find(|b| self.is_set(*b) != arrived).map(|b| b * BLOCK_BYTES);
        Some((arrived, end.unwrap_or(range.end)))
    }

    fn is_set(&self, block: u64) -> bool {
        self.bits[(block / 64) as usize].load(Ordering::Acquire) >> (block % 64) & 1 == 1
    }

    /// Whole blocks have arrived. Told to the file at once, but not made durable.
    pub fn set(&self, range: &Range<u64>) -> Result<()> {
        let (first, last) = (range.start / BLOCK_BYTES, (range.end - 1) / BLOCK_BYTES);
        let words = first / 64..last / 64 + 1;
        let mut changed = false;
        for word in words.clone() {
            let from = first.max(word * 64) - word * 64;
            let to = last.min(word * 64 + 63) - word * 64;
            let mask = u64::MAX << from & u64::MAX >> (63 - to);
            changed |= self.bits[word as usize].fetch_or(mask, Ordering::AcqRel) & mask != mask;
        }
        if !changed && !self.is_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        let pages = words.start / PAGE_WORDS..(words.end - 1) / PAGE_WORDS + 1;
        // While this is held nobody else writes bits of the same words, and older ones over newer ones.
        let mut dirty = self.lock();
        dirty.extend(pages);
        // Bits that the file had no room for must not count as written the next time.
        let words = if self.is_behind.load(Ordering::Acquire) { 0..self.bits.len() as u64 } else { words };
        let written = self.file.write_at(HEADER_BYTES + words.start * 8, &self.bytes(&words));
        self.is_behind.store(written.is_err(), Ordering::Release);
        written.map_err(|e| ImageError::io(&self.name, "write", e))
    }

    /// Pages of bits that have to become durable.
    pub fn take_dirty(&self) -> Vec<(u64, Vec<u8>)> {
        let pages = std::mem::take(&mut *self.lock());
        let page = |p: u64| (p, self.bytes(&(p * PAGE_WORDS..(p + 1) * PAGE_WORDS)));
        pages.into_iter().map(page).collect()
    }

    /// They did not.
    pub fn put_back(&self, pages: &[(u64, Vec<u8>)]) {
        self.lock().extend(pages.iter().map(|p| p.0));
    }

    /// Makes pages durable. What they speak of is.
    pub fn write_durable(&self, pages: &[(u64, Vec<u8>)]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let start = HEADER_BYTES + bits_bytes(self.size);
        for (page, bytes) in pages {
            let at = start + page * PAGE_BYTES;
            self.file.write_at(at, bytes).map_err(|e| ImageError::io(&self.name, "write", e))?;
        }
        self.sync()
    }

    fn bytes(&self, words: &Range<u64>) -> Vec<u8> {
        let words = &self.bits[words.start as usize..words.end as usize];
        words.iter().flat_map(|w| w.load(Ordering::Acquire).to_le_bytes()).collect()
    }

    fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| ImageError::io(&self.name, "sync", e))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
