//! The map of an arriving disk: which blocks are there. docs/format/arriving.md is its description.

use super::arrived::{Arrived, SectorBits};
use super::bits::{self, Set};
use super::header::{Header, State};
use super::id::BootId;
use super::layout::{map_bytes, sectors, set_bytes};
use super::layout::{BITS_AT, BLOCK_BYTES, SECTOR_BYTES, SECTOR_WORDS, STATE_AT, SUMS_AT};
use super::mark::encode_sums;
use crate::error::{ImageError, Result};
use crate::file::random_file::RandomFile;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Sectors that are written at once where all are.
const SECTORS_AT_ONCE: u64 = 256;

/// Which blocks have arrived, in memory and in the file.
pub(super) struct Map {
    name: String,
    file: Arc<dyn RandomFile>,
    header: Header,
    /// As the file's first bits have it.
    arrived: Arrived,
    /// The file lacks some of them: it was full.
    is_behind: AtomicBool,
    /// Sectors of the durable bits that differ from the first bits.
    dirty: Mutex<BTreeSet<u64>>,
    durable: Mutex<DurableBits>,
}

/// What the file durably has.
pub(super) struct DurableBits {
    state: State,
    /// Bits in each sector.
    counts: Vec<u16>,
    /// Bits in all of them.
    count: u64,
}

impl DurableBits {
    /// No bit of the file counts as durable until this run has written and synced it.
    pub fn new(state: State, size: u64) -> DurableBits {
        DurableBits { state, counts: vec![0; sectors(size) as usize], count: 0 }
    }
}

/// Sectors of bits at one moment.
pub(super) type Sectors = Vec<(u64, Option<SectorBits>)>;

impl Map {
    /// A map of what has arrived; `name` is what errors call it.
    pub fn with(
        name: &str,
        file: Arc<dyn RandomFile>,
        header: Header,
        arrived: Arrived,
        durable: DurableBits,
    ) -> Map {
        let (is_behind, dirty) = Default::default();
        Map { name: name.to_owned(), file, header, arrived, is_behind, dirty, durable: Mutex::new(durable) }
    }

    /// A map of a disk of which nothing has arrived.
    pub fn create(file: Arc<dyn RandomFile>, name: &str, header: Header, state: State) -> Result<Map> {
        header.check(name)?;
        let durable = DurableBits::new(state, header.size);
        let arrived = Arrived::none(header.size);
        let map = Map::with(name, file, header, arrived, durable);
        let (header, id) = (&map.header, &map.header.id);
        let io = |e| ImageError::io(name, "write", e);
        map.file.set_len(map_bytes(header.size)).map_err(io)?;
        let bytes = header.encode();
        let (first, rest) = bytes.split_at(SECTOR_BYTES as usize);
        map.file.write_at(SECTOR_BYTES, rest).map_err(io)?;
        map.file.write_at(STATE_AT, &state.encode(id)).map_err(io)?;
        let zeros = [0; SECTOR_BYTES as usize];
        map.file.write_at(SUMS_AT, &encode_sums(id, &zeros, &zeros)).map_err(io)?;
        map.sync()?;
        // The first sector last: without it there is no map.
        map.file.write_at(0, first).map_err(io)?;
        map.sync()?;
        Ok(map)
    }

    /// Whether a hold was put on the snapshot for this restore.
    pub fn holds(&self) -> bool {
        self.header.holds
    }

    /// Flushes that made new bits durable.
    pub fn generation(&self) -> u64 {
        self.durable().state.generation
    }

    /// All has arrived, durably: from now on the target is whole, with or without its mark.
    pub fn set_whole(&self) -> Result<()> {
        let mut durable = self.durable();
        durable.state.is_whole = true;
        self.write_state(&durable.state)?;
        self.sync()
    }

    /// From now on only durable bits count when the map is opened again, even in this run of the system.
    pub fn distrust(&self) {
        let mut durable = self.durable();
        durable.state.boot = BootId([0; 16]);
        // If that fails as well, nothing more can be done; the first error is reported.
        drop(self.write_state(&durable.state).and_then(|()| self.sync()));
    }

    /// Blocks that have arrived.
    pub fn count(&self) -> u64 {
        self.arrived.count()
    }

    /// Whether the first block of a range has arrived, and where the run of blocks in the same state ends.
    pub fn run(&self, range: &Range<u64>) -> Option<(bool, u64)> {
        if range.is_empty() {
            return None;
        }
        let (arrived, end) = self.arrived.run(&blocks_of(range));
        Some((arrived, (end * BLOCK_BYTES).min(range.end)))
    }

    /// Records that whole blocks have arrived: in the file at once, but not durably.
    pub fn set(&self, range: &Range<u64>) -> Result<()> {
        let blocks = blocks_of(range);
        let changed = self.arrived.set(&blocks);
        if !changed && !self.is_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        let of_sector = SECTOR_WORDS * 64;
        let of_range = blocks.start / of_sector..(blocks.end - 1) / of_sector + 1;
        // While this is held, no other thread writes the same sectors with older bits.
        let mut dirty = self.dirty();
        dirty.extend(of_range.clone());
        // Bits for which the file had no room are written with the next ones.
        let is_behind = self.is_behind.load(Ordering::Acquire);
        let to_write = if is_behind { 0..sectors(self.header.size) } else { of_range };
        let written = self.write_first(to_write);
        self.is_behind.store(written.is_err(), Ordering::Release);
        written
    }

    fn write_first(&self, sectors: Range<u64>) -> Result<()> {
        let mut at = sectors.start;
        while at < sectors.end {
            let end = sectors.end.min(at + SECTORS_AT_ONCE);
            let encode = |n| self.encode(Set::First, n, self.arrived.sector(n).as_ref());
            let bytes: Vec<u8> = (at..end).flat_map(encode).collect();
            let written = self.file.write_at(BITS_AT + at * SECTOR_BYTES, &bytes);
            written.map_err(|e| ImageError::io(&self.name, "write", e))?;
            at = end;
        }
        Ok(())
    }

    fn encode(&self, set: Set, sector: u64, bits: Option<&SectorBits>) -> [u8; SECTOR_BYTES as usize] {
        bits::encode(&self.header.id, set, sector, &self.arrived.words(sector, bits))
    }

    /// Marks the bits of all arrived blocks as not durable.
    pub fn set_all_dirty(&self) {
        let sectors = 0..sectors(self.header.size);
        self.dirty().extend(sectors.filter(|n| self.arrived.sector(*n).is_some()));
    }

    /// Sectors of bits that have to become durable.
    pub fn take_dirty(&self) -> Sectors {
        let sectors = std::mem::take(&mut *self.dirty());
        sectors.into_iter().map(|n| (n, self.arrived.sector(n))).collect()
    }

    /// Takes sectors back that could not be made durable.
    pub fn put_back(&self, sectors: &Sectors) {
        self.dirty().extend(sectors.iter().map(|s| s.0));
    }

    /// Makes sectors durable, as the next generation. The blocks they stand for must be durable.
    pub fn write_durable(&self, sectors: &Sectors) -> Result<()> {
        let start = BITS_AT + set_bytes(self.header.size);
        for (n, bits) in sectors {
            let bytes = self.encode(Set::Durable, *n, bits.as_ref());
            let written = self.file.write_at(start + n * SECTOR_BYTES, &bytes);
            written.map_err(|e| ImageError::io(&self.name, "write", e))?;
        }
        let mut durable = self.durable();
        durable.state.generation = durable.state.generation.wrapping_add(1);
        // Without those of this flush: its state may reach the disk before they do.
        durable.state.durable_count = durable.state.durable_count.max(durable.count);
        self.write_state(&durable.state)?;
        self.sync()?;
        for (n, bits) in sectors {
            let words = self.arrived.words(*n, bits.as_ref());
            let bits = words.iter().map(|w| w.count_ones()).sum::<u32>() as u16;
            let before = std::mem::replace(&mut durable.counts[*n as usize], bits);
            durable.count = durable.count + u64::from(bits) - u64::from(before);
        }
        // Not synced, as it only tells what is durable already.
        durable.state.durable_count = durable.state.durable_count.max(durable.count);
        self.write_state(&durable.state)
    }

    fn write_state(&self, state: &State) -> Result<()> {
        let written = self.file.write_at(STATE_AT, &state.encode(&self.header.id));
        written.map_err(|e| ImageError::io(&self.name, "write", e))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| ImageError::io(&self.name, "sync", e))
    }

    fn dirty(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.dirty.lock()
    }

    fn durable(&self) -> MutexGuard<'_, DurableBits> {
        self.durable.lock()
    }
}

/// The blocks that a range of bytes is in.
fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}
