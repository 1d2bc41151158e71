//! A simulated file's bytes: what was written, and what of it is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::random::Random;
use crate::file_system::Identity;

/// What a disk writes whole or not at all.
pub(super) const SECTOR: usize = 512;
const SECTOR_BYTES: u64 = SECTOR as u64;

type Sectors = BTreeMap<u64, Arc<[u8; SECTOR]>>;

/// Names a file or directory for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InodeNo(pub u64);

/// How a simulated file system identifies a file or directory.
pub(super) fn identity(inode: InodeNo) -> Identity {
    Identity { device: 0, inode: inode.0, birth: Some(i128::from(inode.0)) }
}

/// The bytes of a file. A sector that is not there is a hole and reads as zeros.
#[derive(Clone, Default)]
pub(super) struct Body {
    len: u64,
    sectors: Sectors,
    /// Space taken from the beginning on, written or not; 0 where only what is written takes some.
    allocated: u64,
    durable_len: u64,
    durable: Sectors,
    unsynced: BTreeSet<u64>,
}

impl Body {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of space that it takes: whole sectors.
    pub fn allocated(&self) -> u64 {
        let behind = self.sectors.range(self.allocated / SECTOR_BYTES..).count() as u64;
        self.allocated + behind * SECTOR_BYTES
    }

    /// Takes the space of the first `len` bytes, whole sectors. A power cut keeps all of it or nothing.
    pub fn allocate(&mut self, len: u64) {
        self.allocated = len.next_multiple_of(SECTOR_BYTES);
        self.len = self.len.max(len);
    }

    /// Bytes that writing a range would newly take.
    pub fn growth(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / SECTOR_BYTES, (offset + len - 1) / SECTOR_BYTES);
        let first = first.max(self.allocated / SECTOR_BYTES);
        if first > last {
            return 0;
        }
        (last - first + 1 - self.sectors.range(first..=last).count() as u64) * SECTOR_BYTES
    }

    /// Fills `buf` from `offset` as far as the file goes; returns how many bytes.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let len = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for piece in pieces(offset, len as u64) {
            let target = &mut buf[piece.at..piece.at + piece.len];
            match self.sectors.get(&piece.sector) {
                Some(sector) => target.copy_from_slice(&sector[piece.start..piece.start + piece.len]),
                None => target.fill(0),
            }
        }
        len
    }

    /// Writes bytes; the file grows where they go beyond its end.
    pub fn write(&mut self, data: &[u8], offset: u64) {
        for piece in pieces(offset, data.len() as u64) {
            let sector = self.sectors.entry(piece.sector).or_insert_with(|| Arc::new([0; SECTOR]));
            let source = &data[piece.at..piece.at + piece.len];
            Arc::make_mut(sector)[piece.start..piece.start + piece.len].copy_from_slice(source);
            self.unsynced.insert(piece.sector);
        }
        if !data.is_empty() {
            self.len = self.len.max(offset + data.len() as u64);
        }
    }

    /// Sets the length: what is cut off gives its space back, what is new is a hole.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            let old = self.len;
            self.zero(len, old - len);
            // What is left was written, and takes space by itself.
            self.allocated = 0;
        }
        self.len = len;
    }

    /// Makes zeros of a range; whole sectors in it become holes.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len);
        self.zero(offset, end.saturating_sub(offset));
    }

    /// Sectors that the range covers to the end of the file become holes, parts of sectors zeros.
    fn zero(&mut self, offset: u64, len: u64) {
        for piece in pieces(offset, len) {
            let reaches_end = piece.sector * SECTOR_BYTES + (piece.start + piece.len) as u64 >= self.len;
            if piece.start == 0 && (piece.len == SECTOR || reaches_end) {
                self.sectors.remove(&piece.sector);
            } else if let Some(sector) = self.sectors.get_mut(&piece.sector) {
                Arc::make_mut(sector)[piece.start..piece.start + piece.len].fill(0);
            }
            self.unsynced.insert(piece.sector);
        }
    }

    /// Makes bytes and length durable.
    pub fn sync(&mut self) {
        while let Some(number) = self.unsynced.pop_first() {
            self.keep(number);
        }
        self.durable_len = self.len;
    }

    /// What a power cut leaves.
    pub fn crash(&mut self, random: &mut Random) {
        for number in std::mem::take(&mut self.unsynced) {
            if random.coin() {
                self.keep(number);
            }
        }
        if random.coin() {
            self.durable_len = self.len;
        }
        let len = self.durable_len;
        if len < self.allocated {
            self.allocated = 0;
        }
        self.durable.retain(|number, _| number * SECTOR_BYTES < len);
        // Growing the file again must not show what stood behind its end.
        let rest = (len % SECTOR_BYTES) as usize;
        if let Some(sector) = self.durable.get_mut(&(len / SECTOR_BYTES)) {
            Arc::make_mut(sector)[rest..].fill(0);
        }
        self.len = len;
        self.sectors = self.durable.clone();
    }

    fn keep(&mut self, number: u64) {
        match self.sectors.get(&number) {
            Some(sector) => self.durable.insert(number, Arc::clone(sector)),
            None => self.durable.remove(&number),
        };
    }
}

/// The part of a range that lies in one sector.
struct Piece {
    sector: u64,
    /// Where it starts in the sector.
    start: usize,
    len: usize,
    /// Where it starts in the range.
    at: usize,
}

fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let start = (offset + at) % SECTOR_BYTES;
        let piece_len = (SECTOR_BYTES - start).min(len - at);
        let piece = Piece {
            sector: (offset + at) / SECTOR_BYTES,
            start: start as usize,
            len: piece_len as usize,
            at: at as usize,
        };
        at += piece_len;
        Some(piece)
    })
}
