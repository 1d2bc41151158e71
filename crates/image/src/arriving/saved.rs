//! A map as it was found, before anything is done with it.

use super::arrived::Arrived;
use super::bits::{self, Set};
use super::header::{read, Header, State};
use super::id::BootId;
use super::identity::Attachment;
use super::layout::{map_bytes, sectors, set_bytes};
use super::layout::{BITS_AT, BLOCK_BYTES, DISPLACED_AT, HEADER_BYTES};
use super::layout::{SECTOR_BYTES, SECTOR_WORDS, STATE_AT, SUMS_AT};
use super::map::{DurableBits, Map};
use super::mark::{decode_displaced, Sector};
use crate::error::{ImageError, Result};
use crate::file::random_file::RandomFile;
use std::sync::Arc;

const FORMAT: &str = "map of an arriving disk";
/// Sectors of bits that are read at once.
const SECTORS_AT_ONCE: u64 = 128;

/// A map as it was found: its header and its state are whole.
pub(super) struct SavedMap {
    /// Its file.
    pub file: Arc<dyn RandomFile>,
    /// What errors call it.
    pub name: String,
    /// What never changes in it.
    pub header: Header,
    /// What changes in it beside its bits.
    pub state: State,
}

impl SavedMap {
    /// Whether a file begins like a map.
    pub fn is_map(file: &dyn RandomFile, name: &str) -> Result<bool> {
        let len = file.len().map_err(|e| ImageError::read(name, "read", e))?;
        Ok(len >= BITS_AT && Header::is_one(&read(file, name, 0, HEADER_BYTES)?))
    }

    /// Whether the file of a map has any content. If not, its maker was killed before it wrote the header.
    pub fn is_begun(file: &dyn RandomFile, name: &str, size: u64) -> Result<bool> {
        let len = file.len().map_err(|e| ImageError::read(name, "read", e))?;
        if len == 0 || len != map_bytes(size) {
            return Ok(len > 0);
        }
        // The first sector is the last part of a new map to be written, and is written before any bit.
        if read(file, name, 0, SECTOR_BYTES)?.iter().any(|b| *b != 0) {
            return Ok(true);
        }
        for at in (BITS_AT..len).step_by(HEADER_BYTES as usize) {
            if read(file, name, at, HEADER_BYTES)?.iter().any(|b| *b != 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the header and the state of a map.
    pub fn read(file: Arc<dyn RandomFile>, name: &str) -> Result<SavedMap> {
        let len = file.len().map_err(|e| ImageError::read(name, "read", e))?;
        if len < BITS_AT {
            let why = format!("has {len} bytes, fewer than its header");
            return Err(ImageError::corrupt(name, FORMAT, why));
        }
        if !Self::is_map(&*file, name)? {
            return Err(ImageError::corrupt(name, FORMAT, "does not begin like one"));
        }
        let bytes = read(&*file, name, 0, HEADER_BYTES)?;
        if let Some(version) = Header::other_version(&bytes) {
            let why = format!(
                "is a map of version {version}, which this sapwood does not know; go on with the one that made it, or \
                 remove the map and its target to begin anew"
            );
            return Err(ImageError::refused(name, why));
        }
        let header = Header::decode(&bytes).map_err(|why| damaged(name, &why))?;
        let expected = map_bytes(header.size);
        if len != expected {
            return Err(damaged(name, &format!("has {len} bytes instead of {expected}")));
        }
        let state = State::decode(&header.id, &read(&*file, name, STATE_AT, SECTOR_BYTES)?);
        let state = state.ok_or_else(|| damaged(name, "its state does not match its checksum"))?;
        Ok(SavedMap { file, name: name.to_owned(), header, state })
    }

    /// Refuses the map of another restore.
    pub fn check_is_of(&self, of: &[u8], size: u64) -> Result<()> {
        if self.header.size == size && self.header.of == of {
            return Ok(());
        }
        let why = format!(
            "is the map of another restore ({}, {} bytes); name that snapshot to go on with it, or give another target",
            String::from_utf8_lossy(&self.header.of),
            self.header.size
        );
        Err(ImageError::refused(&self.name, why))
    }

    /// The sector of the disk whose place the mark has.
    pub fn displaced(&self) -> Result<Sector> {
        let [sums, sector] =
            [SUMS_AT, DISPLACED_AT].map(|at| read(&*self.file, &self.name, at, SECTOR_BYTES));
        let sector = decode_displaced(&self.header.id, &sums?, &sector?);
        sector.ok_or_else(|| damaged(&self.name, "the sector of the disk in it does not match its checksum"))
    }

    /// Resumes the restore. If the system was restarted, only the durable bits count.
    pub fn take_up(self, boot: BootId, attachment: Attachment) -> Result<Map> {
        let is_same_run = self.state.boot.is_same(&boot);
        let state = State { boot, attachment, ..self.state };
        let durable = self.durable(is_same_run || state.is_whole)?;
        let arrived = match (state.is_whole, is_same_run) {
            (true, _) => Arrived::all(self.header.size),
            (false, true) => self.first(&durable)?,
            (false, false) => durable,
        };
        if arrived.count() < state.durable_count {
            let missing = state.durable_count - arrived.count();
            return Err(damaged(&self.name, &format!("{missing} blocks that had arrived are not in it")));
        }
        let io = |e| ImageError::io(&self.name, "write", e);
        // What a killed run wrote must be durable before anything builds on it.
        self.file.sync().map_err(io)?;
        if !is_same_run && !state.is_whole {
            for sector in 0..sectors(self.header.size) {
                let words = arrived.words(sector, arrived.sector(sector).as_ref());
                let bytes = bits::encode(&self.header.id, Set::First, sector, &words);
                self.file.write_at(BITS_AT + sector * SECTOR_BYTES, &bytes).map_err(io)?;
            }
            self.file.sync().map_err(io)?;
        }
        // The new run last: from here on the first bits count.
        self.file.write_at(STATE_AT, &state.encode(&self.header.id)).map_err(io)?;
        self.file.sync().map_err(io)?;
        let durable = DurableBits::new(state, self.header.size);
        let map = Map::with(&self.name, self.file, self.header, arrived, durable);
        if !state.is_whole {
            // Whether the system could write them before is not known: all are written again with the next flush.
            map.set_all_dirty();
        }
        Ok(map)
    }

    /// The durable bits. With `may_be_damaged`, sectors that are count as empty.
    fn durable(&self, may_be_damaged: bool) -> Result<Arrived> {
        let durable = Arrived::none(self.header.size);
        self.each_sector(Set::Durable, &mut |sector, words| match words {
            Some(words) => {
                durable.put_sector(sector, &words);
                Ok(())
            }
            None if may_be_damaged => Ok(()),
            None => Err(self.damaged_bits(sector)),
        })?;
        Ok(durable)
    }

    /// The first bits; each block that is durable has one.
    fn first(&self, durable: &Arrived) -> Result<Arrived> {
        let first = Arrived::none(self.header.size);
        self.each_sector(Set::First, &mut |sector, words| {
            let words = words.ok_or_else(|| self.damaged_bits(sector))?;
            let durable = durable.words(sector, durable.sector(sector).as_ref());
            if words.iter().zip(&durable).any(|(first, durable)| durable & !first != 0) {
                return Err(self.damaged_bits(sector));
            }
            first.put_sector(sector, &words);
            Ok(())
        })?;
        Ok(first)
    }

    fn each_sector(
        &self,
        set: Set,
        each: &mut dyn FnMut(u64, Option<[u64; SECTOR_WORDS as usize]>) -> Result<()>,
    ) -> Result<()> {
        let size = self.header.size;
        let start = match set {
            Set::First => BITS_AT,
            Set::Durable => BITS_AT + set_bytes(size),
        };
        let count = sectors(size);
        for from in (0..count).step_by(SECTORS_AT_ONCE as usize) {
            let bytes = SECTORS_AT_ONCE.min(count - from) * SECTOR_BYTES;
            let bytes = read(&*self.file, &self.name, start + from * SECTOR_BYTES, bytes)?;
            for (sector, bytes) in (from..).zip(bytes.chunks_exact(SECTOR_BYTES as usize)) {
                each(sector, bits::decode(&self.header.id, set, sector, bytes))?;
            }
        }
        Ok(())
    }

    fn damaged_bits(&self, sector: u64) -> ImageError {
        let bytes = SECTOR_WORDS * 64 * BLOCK_BYTES;
        let range = sector * bytes..((sector + 1) * bytes).min(self.header.size);
        damaged(&self.name, &format!("the bits of bytes {} to {} of the disk are", range.start, range.end))
    }
}

fn damaged(name: &str, why: &str) -> ImageError {
    let why = format!(
        "is damaged: {why}. Which blocks of its target a guest has written cannot be told, and nothing was changed; \
         to begin anew without what was written, remove the map and its target (of a device: remove the map and give --force)"
    );
    ImageError::refused(name, why)
}
