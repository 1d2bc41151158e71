//! A disk to read, and parts of it: partitions, logical volumes.

use crate::error::Result;
use std::io::{Error, ErrorKind};
use std::sync::Arc;

/// A disk, readable at any offset, from several threads.
pub trait Disk: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset` on. Beyond the end is an error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
}

impl<T: Disk + ?Sized> Disk for Arc<T> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, buf)
    }
}

/// A run of bytes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub offset: u64,
    /// Its length in bytes, never 0.
    pub len: u64,
}

/// A disk that is made of pieces of another one, one behind the other. All pieces lie within it.
#[derive(Clone)]
pub struct Part {
    disk: Arc<dyn Disk>,
    /// Each piece, and where it begins in this part; sorted by the latter.
    pieces: Vec<(u64, Piece)>,
    size: u64,
}

impl Part {
    /// Puts pieces together; `None` where one is empty, reaches beyond the disk, or all are longer than 2^63 bytes.
    pub fn new(disk: Arc<dyn Disk>, pieces: &[Piece]) -> Option<Part> {
        let mut size = 0u64;
        let mut placed = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let end = piece.offset.checked_add(piece.len)?;
            if piece.len == 0 || end > disk.size() {
                return None;
            }
            placed.push((size, *piece));
            size = size.checked_add(piece.len).filter(|s| *s <= i64::MAX as u64)?;
        }
        Some(Part { disk, pieces: placed, size })
    }

    /// The whole of a disk.
    pub fn whole(disk: Arc<dyn Disk>) -> Part {
        let size = disk.size();
        let pieces = if size == 0 { Vec::new() } else { vec![(0, Piece { offset: 0, len: size })] };
        Part { disk, pieces, size }
    }

    /// Where a range of this part lies on the disk below, in order. What is beyond the end is left out.
    pub fn locate(&self, offset: u64, len: u64) -> Vec<Piece> {
        let end = offset.saturating_add(len).min(self.size);
        let mut found = Vec::new();
        let mut at = offset;
        let mut next = self.pieces.partition_point(|(start, p)| start + p.len <= offset);
        while at < end {
            let (start, piece) = self.pieces[next];
            let within = at - start;
            let taken = (piece.len - within).min(end - at);
            found.push(Piece { offset: piece.offset + within, len: taken });
            at += taken;
            next += 1;
        }
        found
    }
}

impl Disk for Part {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size) {
            let why = format!("{} bytes at offset {offset} are beyond the end at {}", buf.len(), self.size);
            return Err(Error::new(ErrorKind::UnexpectedEof, why).into());
        }
        let mut done = 0;
        for piece in self.locate(offset, buf.len() as u64) {
            let len = piece.len as usize;
            self.disk.read_at(piece.offset, &mut buf[done..done + len])?;
            done += len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn pieces_read_as_one_disk() {
        let disk = Arc::new(Memory((0..200).collect()));
        let part =
            Part::new(disk, &[Piece { offset: 100, len: 10 }, Piece { offset: 5, len: 3 }]).expect("a part");
        let mut all = [0; 13];
        part.read_at(0, &mut all).expect("all of it");
        assert_eq!(all, [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 5, 6, 7]);
        let mut across = [0; 3];
        part.read_at(9, &mut across).expect("across");
        assert_eq!(across, [109, 5, 6]);
        assert_eq!(part.locate(9, 100), [Piece { offset: 109, len: 1 }, Piece { offset: 5, len: 3 }]);
        assert_eq!(part.locate(13, 1), []);
        assert!(part.read_at(13, &mut [0]).is_err());
        assert!(part.read_at(u64::MAX, &mut [0]).is_err());
        part.read_at(13, &mut []).expect("nothing at the end");
    }

    #[test]
    fn pieces_beyond_the_disk_are_refused() {
        let disk: Arc<dyn Disk> = Arc::new(Memory(vec![0; 200]));
        for (offset, len) in [(0, 0), (0, 201), (200, 1), (u64::MAX, 2)] {
            assert!(Part::new(disk.clone(), &[Piece { offset, len }]).is_none());
        }
    }
}
