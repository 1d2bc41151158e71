//! The mark on the target of a live restore: what tells it from every other file and device, and how far it got.
//!
//! It takes the place of one sector of the disk; the map keeps that sector meanwhile: docs/format/arriving.md.

use super::id::MapId;
use super::layout::{self, DISPLACED_AT, SUMS_AT};
use crate::file::bytes::{le_u32, le_u64};
use crate::file::random_file::RandomFile;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::ops::Range;
use std::sync::Arc;

const SECTOR_BYTES: usize = layout::SECTOR_BYTES as usize;
const MAGIC: [u8; 8] = *b"SAPMARK\0";
const FLAG_SETTLED: u32 = 1;
const SUM_AT: usize = SECTOR_BYTES - 4;

/// A sector of a disk.
pub(super) type Sector = [u8; SECTOR_BYTES];

/// The content of the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The generation of the map that goes with it.
    pub generation: u64,
    /// The map has durably got to that generation.
    pub is_settled: bool,
}

impl Mark {
    /// The sector as the target has it.
    pub fn encode(self, id: &MapId) -> Sector {
        let mut bytes = [0; SECTOR_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&id.0);
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..36].copy_from_slice(&(u32::from(self.is_settled) * FLAG_SETTLED).to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` where this is not the mark of the map with that id.
    pub fn decode(id: &MapId, bytes: &Sector) -> Option<Mark> {
        let is_mark = bytes[..8] == MAGIC && bytes[8..24] == id.0;
        if !is_mark || le_u32(bytes, SUM_AT) != crc32c::crc32c(&bytes[..SUM_AT]) {
            return None;
        }
        Some(Mark { generation: le_u64(bytes, 24), is_settled: le_u32(bytes, 32) & FLAG_SETTLED != 0 })
    }
}

/// A target with a mark. It is read and written as if there were no mark: the displaced sector is in the map.
pub(super) struct MarkedTarget {
    file: Box<dyn RandomFile>,
    map: Arc<dyn RandomFile>,
    id: MapId,
    /// Where the mark is, or was; a disk of less than a sector has none.
    place: Option<Range<u64>>,
    displaced: Mutex<DisplacedSector>,
}

/// The sector of the disk whose place the mark has.
struct DisplacedSector {
    bytes: Sector,
    is_displaced: bool,
    /// The map's copy was written since it was last synced.
    is_unsynced: bool,
}

impl MarkedTarget {
    /// A target without a mark, of a disk of `size` bytes.
    pub fn new(file: Box<dyn RandomFile>, map: Arc<dyn RandomFile>, id: MapId, size: u64) -> MarkedTarget {
        // A whole sector: it is written whole or not at all, and so is what it displaces.
        let sector = SECTOR_BYTES as u64;
        let at = (size / sector * sector).checked_sub(sector);
        let place = at.map(|at| at..at + sector);
        let displaced = DisplacedSector { bytes: [0; SECTOR_BYTES], is_displaced: false, is_unsynced: false };
        MarkedTarget { file, map, id, place, displaced: Mutex::new(displaced) }
    }

    /// Whether its disk has room for a mark.
    pub fn can_be_marked(&self) -> bool {
        self.place.is_some()
    }

    /// The mark that is there, if it is this map's.
    pub fn mark(&self) -> io::Result<Option<Mark>> {
        let Some(place) = &self.place else { return Ok(None) };
        let mut bytes = [0; SECTOR_BYTES];
        self.file.read_at(place.start, &mut bytes)?;
        Ok(Mark::decode(&self.id, &bytes))
    }

    /// From now on the mark is in the place of a sector, whose content is `bytes` and in the map.
    pub fn displace(&self, bytes: Sector) {
        *self.lock() = DisplacedSector { bytes, is_displaced: self.place.is_some(), is_unsynced: true };
    }

    /// Writes the mark, unless it was taken off.
    pub fn set_mark(&self, mark: Mark) -> io::Result<()> {
        match (&self.place, self.lock()) {
            (Some(place), held) if held.is_displaced => {
                self.file.write_at(place.start, &mark.encode(&self.id))
            }
            _ => Ok(()),
        }
    }

    /// Replaces the mark with the displaced sector, durably.
    pub fn take_mark_off(&self) -> io::Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let mut held = self.lock();
        if held.is_displaced {
            self.file.write_at(place.start, &held.bytes)?;
            self.file.sync()?;
            held.is_displaced = false;
        }
        Ok(())
    }

    /// The part of a range where the mark is, if any.
    fn overlap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let place = self.place.as_ref()?;
        let both = range.start.max(place.start)..range.end.min(place.end);
        (!both.is_empty()).then_some(both)
    }

    /// Writes the parts of `range` on both sides of the displaced sector with `write`; applies `change` to the part
    /// within it and writes that into the map. Returns `false` where the range does not touch the displaced sector.
    fn split(
        &self,
        range: &Range<u64>,
        write: &dyn Fn(Range<u64>) -> io::Result<()>,
        change: &dyn Fn(&mut [u8], u64),
    ) -> io::Result<bool> {
        let (Some(both), Some(place)) = (self.overlap(range), &self.place) else { return Ok(false) };
        let mut held = self.lock();
        if !held.is_displaced {
            return Ok(false);
        }
        for side in [range.start..both.start, both.end..range.end] {
            if !side.is_empty() {
                write(side)?;
            }
        }
        let mut bytes = held.bytes;
        change(
            &mut bytes[(both.start - place.start) as usize..(both.end - place.start) as usize],
            both.start,
        );
        self.keep(&mut held, bytes)?;
        Ok(true)
    }

    /// Writes the displaced sector into the map. Wherever a power cut interrupts that, the sector there matches one of
    /// the two checksums.
    fn keep(&self, held: &mut DisplacedSector, bytes: Sector) -> io::Result<()> {
        if held.is_unsynced {
            self.map.sync()?;
            held.is_unsynced = false;
        }
        self.map.write_at(SUMS_AT, &encode_sums(&self.id, &held.bytes, &bytes))?;
        self.map.sync()?;
        held.is_unsynced = true;
        self.map.write_at(DISPLACED_AT, &bytes)?;
        held.bytes = bytes;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, DisplacedSector> {
        self.displaced.lock()
    }
}

impl RandomFile for MarkedTarget {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + buf.len() as u64;
        let (Some(both), Some(place)) = (self.overlap(&range), &self.place) else {
            return self.file.read_at(offset, buf);
        };
        let held = self.lock();
        self.file.read_at(offset, buf)?;
        if held.is_displaced {
            let from = &held.bytes[(both.start - place.start) as usize..(both.end - place.start) as usize];
            buf[(both.start - offset) as usize..(both.end - offset) as usize].copy_from_slice(from);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = offset..offset + data.len() as u64;
        let of_data = |part: Range<u64>| &data[(part.start - offset) as usize..(part.end - offset) as usize];
        let write = |side: Range<u64>| self.file.write_at(side.start, of_data(side));
        let change = |part: &mut [u8], at: u64| part.copy_from_slice(of_data(at..at + part.len() as u64));
        if self.split(&range, &write, &change)? {
            Ok(())
        } else {
            self.file.write_at(offset, data)
        }
    }

    fn sync(&self) -> io::Result<()> {
        // The displaced sector must be durable before the bits say so.
        let is_unsynced = std::mem::take(&mut self.lock().is_unsynced);
        if is_unsynced {
            self.map.sync().inspect_err(|_| self.lock().is_unsynced = true)?;
        }
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        if self.split(&range, &|side| self.file.zero(side), &|part, _| part.fill(0))? {
            Ok(())
        } else {
            self.file.zero(range)
        }
    }

    /// The mark counts as data.
    fn data_from(&self, from: u64) -> io::Result<Range<u64>> {
        self.file.data_from(from)
    }
}

/// The checksums of the displaced sector as it was and as it becomes, for the map.
pub(super) fn encode_sums(id: &MapId, old: &Sector, new: &Sector) -> Sector {
    let mut bytes = [0; SECTOR_BYTES];
    bytes[..4].copy_from_slice(&checksum(id, old).to_le_bytes());
    bytes[4..8].copy_from_slice(&checksum(id, new).to_le_bytes());
    let sum = checksum(id, &bytes[..SUM_AT]);
    bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The displaced sector, of the two sectors that the map has of it; `None` where they do not go together.
pub(super) fn decode_displaced(id: &MapId, sums: &[u8], displaced: &[u8]) -> Option<Sector> {
    let sum = checksum(id, displaced);
    let is_good = le_u32(sums, SUM_AT) == checksum(id, &sums[..SUM_AT])
        && (le_u32(sums, 0) == sum || le_u32(sums, 4) == sum);
    is_good.then(|| {
        let mut sector = [0; SECTOR_BYTES];
        sector.copy_from_slice(&displaced[..SECTOR_BYTES]);
        sector
    })
}

fn checksum(id: &MapId, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.0), bytes)
}
