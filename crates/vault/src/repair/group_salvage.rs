//! Reads a group of a damaged container, as much of it as can be read.

use super::zstd_salvage;
use crate::base::error::{fault, Named, Result};
use crate::container::codec::Unpacker;
use crate::container::group_reader::check_cipher;
use crate::manifest::folder::Folder;
use chunk::Fingerprint;
use format::{group_checksum, names, Codec, Group, Table, TableIndex, TableRange};
use store::{ObjectStore, StoreError};

/// What is read at once where the whole cannot be read.
const SECTOR_BYTES: usize = 4096;

/// Reads groups. One for each thread.
pub(super) struct GroupSalvage {
    unpacker: Unpacker,
    stored: Vec<u8>,
    raw: Vec<u8>,
    fingerprints: Vec<Fingerprint>,
    /// Whether each chunk is whole.
    whole: Vec<bool>,
    matches_checksum: bool,
}

impl GroupSalvage {
    /// With buffers of its own, which it uses again for each group.
    pub fn new() -> Self {
        GroupSalvage {
            unpacker: Unpacker::new(),
            stored: Vec::new(),
            raw: Vec::new(),
            fingerprints: Vec::new(),
            whole: Vec::new(),
            matches_checksum: false,
        }
    }

    /// Reads a group. What cannot be read or decompressed is zeros.
    ///
    /// # Errors
    /// `Newer` where it is encrypted; what keeps the store from reading at all.
    pub fn read(&mut self, folder: &Folder, table: &Table, group: &Group) -> Result<()> {
        let object = names::data(&folder.path, table.data);
        check_cipher(&object, group)?;
        self.stored.clear();
        self.stored.resize(group.stored_len as usize, 0);
        // Twice: what is wrong may be the reading.
        for _ in 0..2 {
            read_sectors(&*folder.store, &object, group.offset, &mut self.stored)?;
            let first = table.number_at(group.first);
            self.matches_checksum =
                first.is_some_and(|n| group_checksum(table.container, n, &self.stored) == group.checksum);
            if self.matches_checksum {
                break;
            }
        }
        self.unpack(group);
        self.fingerprints.clear();
        chunk::fingerprints(&self.raw, group.indices().of(&table.lengths), &mut self.fingerprints);
        self.whole.clear();
        if !table.fingerprints.is_empty() {
            let right = group.indices().of(&table.fingerprints);
            self.whole.extend(right.iter().zip(&self.fingerprints).map(|(right, is)| *right == is.0));
        }
        Ok(())
    }

    fn unpack(&mut self, group: &Group) {
        let raw_len = group.raw_len as usize;
        if self.unpacker.unpack(group.codec, &self.stored, raw_len, &mut self.raw).is_err() {
            match group.codec {
                Codec::Zstd => self.raw = zstd_salvage::salvage(&self.stored, raw_len),
                // What stands before the damage was decompressed; or all of it is there.
                Codec::Lz4 | Codec::Raw => self.raw.resize(raw_len, 0),
            }
        }
    }

    /// Whether it is byte for byte as it was written.
    pub fn matches_checksum(&self) -> bool {
        self.matches_checksum
    }

    /// Its bytes as stored.
    pub fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// Whether the chunk at an index, which is within the group, is whole.
    pub fn is_whole(&self, group: &Group, n: TableIndex) -> bool {
        self.whole.get((n.0 - group.first.0) as usize).copied().unwrap_or_default()
    }

    /// The bytes of the chunk at an index, which is within the group. They may be wrong.
    pub fn chunk(&self, table: &Table, group: &Group, n: TableIndex) -> &[u8] {
        let start = table.bytes_of(TableRange { start: group.first, end: n }) as usize;
        &self.raw[start..start + table.length(n) as usize]
    }

    /// The fingerprints of its chunks as they are.
    pub fn fingerprints(&self) -> &[Fingerprint] {
        &self.fingerprints
    }
}

/// Reads all that can be read; the rest is zeros.
fn read_sectors(store: &dyn ObjectStore, object: &str, offset: u64, bytes: &mut [u8]) -> Result<()> {
    if store.read_at(object, offset, bytes).is_ok() {
        return Ok(());
    }
    bytes.fill(0);
    let len = match store.len(object) {
        Ok(len) => len,
        Err(StoreError::NotFound { .. } | StoreError::Unreadable { .. }) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let mut at = offset;
    for sector in bytes.chunks_mut(SECTOR_BYTES) {
        let there = len.saturating_sub(at).min(sector.len() as u64) as usize;
        if there == 0 {
            break;
        }
        if let Err(e) = store.read_at(object, at, &mut sector[..there]).named() {
            fault(e)?;
            sector.fill(0);
        }
        at += sector.len() as u64;
    }
    Ok(())
}
