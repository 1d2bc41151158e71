//! How chunks get from their place in the input to their place in a block (Lin 2015, 2.4.1.2): all at once where the input
//! is in memory, chunk by chunk, or in several passes over the input.

use super::base::error::{MzipError, Result};
use super::base::read_at::ReadAt;
use super::plan::{Piece, DELTAS_AT};
use format::mzip::PlaceSum;
use std::collections::VecDeque;
use std::io;
use std::str::FromStr;

/// Bytes that a pass reads at a time.
const PASS_BYTES: u64 = 4 << 20;

/// How chunks are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// The input is in memory.
    Memory,
    /// Each chunk is read where it is.
    Chunk,
    /// The input is read several times from its begin to its end; each time what goes into the next blocks is kept.
    MultiPass,
}

impl Mover {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mover::Memory => "memory",
            Mover::Chunk => "chunk",
            Mover::MultiPass => "multipass",
        }
    }

    /// The cheaper of the two for an input that is not in memory (the break-even formula of Lin 2015, 2.4.1.2, as times).
    ///
    /// Multi-pass reads all of the input in each pass; chunk-level reads it once in all, and begins anew with each piece that
    /// does not follow the one before.
    pub fn cheaper(disk: Disk, input_bytes: u64, pieces: u64, passes: u64) -> Mover {
        let once = input_bytes as f64 / disk.bytes_per_second;
        let by_chunk = once + pieces as f64 / disk.reads_per_second;
        if by_chunk <= once * passes as f64 {
            Mover::Chunk
        } else {
            Mover::MultiPass
        }
    }
}

/// Why a text is no [`Mover`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a mover: memory, chunk or multipass")]
pub struct MoverError(String);

impl FromStr for Mover {
    type Err = MoverError;

    fn from_str(text: &str) -> std::result::Result<Self, MoverError> {
        let all = [Mover::Memory, Mover::Chunk, Mover::MultiPass];
        all.into_iter().find(|mover| mover.name() == text).ok_or_else(|| MoverError(text.into()))
    }
}

/// How fast what holds the input is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Random reads of a chunk.
    pub reads_per_second: f64,
    /// In order.
    pub bytes_per_second: f64,
}

impl Disk {
    /// A hard disk: the numbers of the paper.
    pub const SPINNING: Disk = Disk { reads_per_second: 100.0, bytes_per_second: 100e6 };
    /// A solid-state disk: the numbers of the paper.
    pub const SOLID: Disk = Disk { reads_per_second: 22_000.0, bytes_per_second: 264e6 };
}

/// What becomes the content of a block.
pub(super) struct Content {
    pub pieces: Vec<Piece>,
    /// If they have been read.
    pub bytes: Option<Vec<u8>>,
}

impl Content {
    /// The bytes, and the sum of those of the input.
    pub(super) fn gathered(self, input: &dyn ReadAt) -> Result<(Vec<u8>, PlaceSum)> {
        let Content { pieces, bytes } = self;
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                let mut bytes = vec![0; pieces.iter().map(|piece| piece.bytes as usize).sum()];
                let mut rest = &mut bytes[..];
                for piece in &pieces {
                    let (part, after) = rest.split_at_mut(piece.bytes as usize);
                    input.read_at(part, piece.offset).map_err(MzipError::of_reading)?;
                    rest = after;
                }
                bytes
            }
        };
        let (mut sum, mut rest) = (PlaceSum::default(), &bytes[..]);
        for piece in &pieces {
            let (part, after) = rest.split_at(piece.bytes as usize);
            if piece.offset < DELTAS_AT {
                sum += PlaceSum::of(piece.offset, part);
            }
            rest = after;
        }
        Ok((bytes, sum))
    }
}

/// Gathers the contents of blocks in passes over the input.
pub(super) struct Passes<'a, B> {
    input: &'a dyn ReadAt,
    blocks: B,
    /// Blocks of a pass.
    width: usize,
    ready: VecDeque<Content>,
}

/// A piece that goes into a block of the pass.
struct Part {
    offset: u64,
    bytes: u64,
    block: usize,
    to: usize,
}

impl<'a, B: Iterator<Item = io::Result<Vec<Piece>>>> Passes<'a, B> {
    /// With so many blocks in each pass.
    pub(super) fn new(input: &'a dyn ReadAt, blocks: B, width: usize) -> Self {
        Passes { input, blocks, width, ready: VecDeque::new() }
    }

    /// The content of the next block.
    pub(super) fn next(&mut self) -> Result<Option<Content>> {
        if self.ready.is_empty() {
            self.pass()?;
        }
        Ok(self.ready.pop_front())
    }

    /// Reads the input once, in order, but for ranges of which nothing is needed.
    fn pass(&mut self) -> Result<()> {
        let (mut parts, mut contents) = (Vec::new(), Vec::new());
        for (block, pieces) in self.blocks.by_ref().take(self.width).enumerate() {
            let pieces = pieces.map_err(MzipError::Scratch)?;
            let mut to = 0;
            for Piece { offset, bytes } in &pieces {
                parts.push(Part { offset: *offset, bytes: *bytes, block, to });
                to += *bytes as usize;
            }
            contents.push(vec![0; to]);
            self.ready.push_back(Content { pieces, bytes: None });
        }
        parts.sort_unstable_by_key(|part| part.offset);
        let mut buffer = vec![0; PASS_BYTES as usize];
        // What the buffer holds of the input.
        let mut held = 0..0;
        for Part { mut offset, mut bytes, block, mut to } in parts {
            while bytes > 0 {
                if !held.contains(&offset) {
                    held = offset..(offset + PASS_BYTES).min(self.input.len());
                    let len = (held.end - held.start) as usize;
                    self.input.read_at(&mut buffer[..len], offset).map_err(MzipError::of_reading)?;
                }
                let len = bytes.min(held.end - offset) as usize;
                let from = (offset - held.start) as usize;
                contents[block][to..to + len].copy_from_slice(&buffer[from..from + len]);
                (offset, bytes, to) = (offset + len as u64, bytes - len as u64, to + len);
            }
        }
        self.ready.iter_mut().zip(contents).for_each(|(block, bytes)| block.bytes = Some(bytes));
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Section 2.4.1.2: 15 GB, 3 passes, 100 MB/s, 100 reads of 8 KiB a second break even where 1.6 % of the chunks are read
    /// out of order.
    #[test]
    fn the_example_of_the_paper() {
        let bytes = 15_000_000_000;
        let chunks = bytes / 8192;
        let at =
            |percent: f64| Mover::cheaper(Disk::SPINNING, bytes, (chunks as f64 * percent / 100.0) as u64, 3);
        assert_eq!(
            [at(0.1), at(1.5), at(1.8), at(50.0)],
            [Mover::Chunk, Mover::Chunk, Mover::MultiPass, Mover::MultiPass]
        );
        // Without seeks, chunks are cheaper.
        assert_eq!(Mover::cheaper(Disk::SOLID, bytes, chunks / 5, 3), Mover::Chunk);
        assert_eq!(Mover::cheaper(Disk::SPINNING, bytes, 0, 1), Mover::Chunk);
    }

    proptest! {
        #[test]
        fn passes_give_what_single_reads_give(
            pieces in proptest::collection::vec((0u64..5_000_000, 1u64..200_000), 0..40),
            width in 1usize..6,
        ) {
            let input = testing::noise(1, 5_200_000);
            let blocks: Vec<Vec<Piece>> = pieces
                .chunks(5)
                .map(|some| some.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes: *bytes }).collect())
                .collect();
            let mut passes = Passes::new(&input, blocks.clone().into_iter().map(Ok), width);
            for block in blocks {
                let expected = Content { pieces: block, bytes: None }.gathered(&input).unwrap();
                let got = passes.next().unwrap().unwrap().gathered(&input).unwrap();
                prop_assert!(got == expected);
            }
            prop_assert!(passes.next().unwrap().is_none());
        }
    }
}
