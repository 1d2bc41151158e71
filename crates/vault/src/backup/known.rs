//! A disk whose blocks have been fingerprinted before: only what the vault does not have is read.
//!
//! Segments are cut into chunks of 4 KiB by such a policy as the source's blocks are, and both are fingerprinted alike. So
//! the fingerprints are those of the chunks. Blocks that the source knows nothing of are read and fingerprinted here.

use crate::backup::pipeline::Fingerprinted;
use crate::backup::read_bytes::ReadBytes;
use crate::base::error::Result;
use crate::lookup::place::{Analysed, ReadRange, SegmentData};
use chunk::{Fingerprint, Piece};
use format::SegmentNo;
use image::{Changes, KnownBlock, KnownBlocks, Source, KNOWN_BLOCK_BYTES};
use std::ops::Range;
use std::sync::Arc;

const BLOCK: u64 = KNOWN_BLOCK_BYTES as u64;

/// The segments of such a disk.
pub(crate) struct KnownSegments {
    source: Box<dyn Source>,
    blocks: Arc<dyn KnownBlocks>,
    size: u64,
    segment_bytes: u64,
    /// The segments that are wanted; `None`: all.
    touched: Option<Changes>,
    bytes: Arc<ReadBytes>,
}

impl KnownSegments {
    /// The segments of a source, if its blocks are known and the size is. Otherwise the source.
    pub fn of(
        source: Box<dyn Source>,
        segment_bytes: u32,
        chunk_bytes: Option<u32>,
    ) -> std::result::Result<Self, Box<dyn Source>> {
        let known = source.known_blocks().filter(|_| chunk_bytes == Some(KNOWN_BLOCK_BYTES));
        let (Some(blocks), Some(size)) = (known, source.size()) else { return Err(source) };
        let segment_bytes = u64::from(segment_bytes);
        Ok(KnownSegments { source, blocks, size, segment_bytes, touched: None, bytes: Arc::default() })
    }

    /// The first segment from `no` on that is wanted.
    fn next_wanted(&self, no: SegmentNo) -> Option<SegmentNo> {
        let Some(touched) = &self.touched else { return Some(no) };
        let from = no.0 * self.segment_bytes;
        let ranges = touched.ranges();
        let range = ranges.get(ranges.partition_point(|r| r.end <= from))?;
        Some(SegmentNo(range.start.max(from) / self.segment_bytes))
    }

    fn analysed(&self, no: SegmentNo) -> Result<Analysed> {
        let start = no.0 * self.segment_bytes;
        let end = (start + self.segment_bytes).min(self.size);
        let mut known = self.blocks.known(start..end)?;
        known.resize((end - start).div_ceil(BLOCK) as usize, KnownBlock::Unknown);
        if (end - start) % BLOCK != 0 {
            // The source may have fingerprinted more than there is.
            known.pop();
            known.push(KnownBlock::Unknown);
        }
        let looked_at = self.look_at(start..end, &mut known)?;
        let length = |n: usize| BLOCK.min(end - start - n as u64 * BLOCK) as u32;
        let (mut pieces, mut fingerprints) = (Vec::with_capacity(known.len()), Vec::new());
        for (n, block) in known.iter().enumerate() {
            match block {
                KnownBlock::Fingerprint(fingerprint) => {
                    pieces.push(Piece::Data { bytes: length(n) });
                    fingerprints.push(Fingerprint(*fingerprint));
                }
                KnownBlock::Zeros | KnownBlock::Unknown => pieces.push(Piece::Null { bytes: length(n) }),
            }
        }
        let fingerprint = chunk::segment_fingerprint(&pieces, &fingerprints);
        let signature = chunk::signature(&fingerprints).unwrap_or(0);
        let (blocks, bytes) = (Arc::clone(&self.blocks), Arc::clone(&self.bytes));
        let data = SegmentData::Elsewhere(Arc::new(SegmentSource { blocks, start, looked_at, bytes }));
        Ok(Analysed { seq: 0, no, data, pieces, fingerprints, fingerprint, signature })
    }

    /// Reads the blocks that nothing is known of, and fingerprints them. Returns what was read.
    fn look_at(&self, range: Range<u64>, known: &mut [KnownBlock]) -> Result<Vec<(Range<u64>, Vec<u8>)>> {
        let mut read = Vec::new();
        let mut at = 0;
        while at < known.len() {
            let count = known[at..].iter().take_while(|block| **block == KnownBlock::Unknown).count();
            if count == 0 {
                self.bytes.add_known(if known[at] == KnownBlock::Zeros { 0 } else { BLOCK });
                at += 1;
                continue;
            }
            let start = range.start + at as u64 * BLOCK;
            let end = (start + count as u64 * BLOCK).min(range.end);
            let mut data = vec![0; (end - start) as usize];
            self.blocks.read_at(start, &mut data)?;
            self.bytes.add_read(data.len() as u64);
            let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
            chunk::cut(&data, chunk::ChunkSpec::Fixed { bytes: KNOWN_BLOCK_BYTES }, &mut pieces);
            chunk::fingerprint_pieces(&data, &pieces, &mut fingerprints);
            let mut fingerprints = fingerprints.into_iter();
            for piece in pieces {
                match piece {
                    Piece::Data { bytes } => {
                        self.bytes.add_hashed(u64::from(bytes));
                        known[at] =
                            fingerprints.next().map_or(KnownBlock::Zeros, |f| KnownBlock::Fingerprint(f.0));
                        at += 1;
                    }
                    // Null chunks that follow each other may be one piece.
                    Piece::Null { bytes } => {
                        let blocks = u64::from(bytes).div_ceil(BLOCK) as usize;
                        known[at..at + blocks].fill(KnownBlock::Zeros);
                        at += blocks;
                    }
                }
            }
            read.push((start..end, data));
        }
        Ok(read)
    }
}

impl Fingerprinted for KnownSegments {
    fn size(&self) -> u64 {
        self.size
    }

    fn narrow(&mut self, touched: &Changes) {
        self.touched = Some(touched.clone());
    }

    fn read_bytes(&self) -> Arc<ReadBytes> {
        Arc::clone(&self.bytes)
    }

    fn next_segment(&mut self, no: SegmentNo) -> Result<Option<Analysed>> {
        let mut no = no;
        while let Some(wanted) = self.next_wanted(no).filter(|no| no.0 * self.segment_bytes < self.size) {
            let Some(data) = self.source.next_data(wanted.0 * self.segment_bytes)? else { break };
            let found = SegmentNo(data.start / self.segment_bytes);
            // It may be behind the range that was looked for, and in none.
            if self.next_wanted(found) == Some(found) {
                return self.analysed(found).map(Some);
            }
            no = found;
        }
        self.source.finish()?;
        Ok(None)
    }
}

/// Where the blocks of a segment are read.
struct SegmentSource {
    blocks: Arc<dyn KnownBlocks>,
    start: u64,
    /// What was read to be fingerprinted.
    looked_at: Vec<(Range<u64>, Vec<u8>)>,
    bytes: Arc<ReadBytes>,
}

impl ReadRange for SegmentSource {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        debug_assert!(offset >= self.start);
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let next = &self.looked_at[self.looked_at.partition_point(|(range, _)| range.end <= at)..];
            let upto = match next.first() {
                Some((range, data)) if range.start <= at => {
                    let upto = range.end.min(end);
                    let from = (at - range.start) as usize;
                    buf[(at - offset) as usize..(upto - offset) as usize]
                        .copy_from_slice(&data[from..from + (upto - at) as usize]);
                    upto
                }
                next => {
                    let upto = next.map_or(end, |(range, _)| range.start.min(end));
                    self.blocks.read_at(at, &mut buf[(at - offset) as usize..(upto - offset) as usize])?;
                    self.bytes.add_read(upto - at);
                    upto
                }
            };
            at = upto;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    const SEGMENT: u32 = 16 * KNOWN_BLOCK_BYTES;

    /// A disk of which some blocks are known. It notes what is read.
    struct Half {
        data: Vec<u8>,
        read: Mutex<Vec<Range<u64>>>,
    }

    impl KnownBlocks for Half {
        fn known(&self, range: Range<u64>) -> image::Result<Vec<KnownBlock>> {
            let blocks = self.data[range.start as usize..range.end as usize].chunks(BLOCK as usize);
            Ok((range.start / BLOCK..)
                .zip(blocks)
                .map(|(n, block)| match n % 7 {
                    3 | 4 => KnownBlock::Unknown,
                    _ if chunk::is_null(block) => KnownBlock::Zeros,
                    _ => KnownBlock::Fingerprint(Fingerprint::of(block).0),
                })
                .collect())
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> image::Result<()> {
            self.read.lock().push(offset..offset + buf.len() as u64);
            buf.copy_from_slice(&self.data[offset as usize..][..buf.len()]);
            Ok(())
        }
    }

    struct HalfSource(Arc<Half>);

    impl Source for HalfSource {
        fn format(&self) -> &'static str {
            "half"
        }
        fn size(&self) -> Option<u64> {
            Some(self.0.data.len() as u64)
        }
        fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
            Ok((from < self.0.data.len() as u64).then(|| from..self.0.data.len() as u64))
        }
        fn read_at(&mut self, _: u64, _: &mut [u8]) -> image::Result<usize> {
            unreachable!("its blocks are known")
        }
        fn known_blocks(&self) -> Option<Arc<dyn KnownBlocks>> {
            Some(self.0.clone())
        }
    }

    fn disk(blocks: usize, tail: usize) -> Vec<u8> {
        let mut data = vec![0; blocks * BLOCK as usize + tail];
        for (n, block) in data.chunks_mut(BLOCK as usize).enumerate() {
            if n % 5 != 0 {
                block.fill(n as u8 + 1);
            }
        }
        data
    }

    #[test]
    fn segments_are_those_of_a_disk_that_is_read() {
        let data = disk(40, 1000);
        let half = Arc::new(Half { data: data.clone(), read: Mutex::default() });
        let source = Box::new(HalfSource(half.clone()));
        let mut known = KnownSegments::of(source, SEGMENT, Some(KNOWN_BLOCK_BYTES)).ok().unwrap();
        let bytes = known.read_bytes();
        for (n, segment) in data.chunks(SEGMENT as usize).enumerate() {
            let found = known.next_segment(SegmentNo(n as u64)).unwrap().unwrap();
            assert_eq!(found.no.0, n as u64);
            let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
            chunk::cut(segment, chunk::ChunkSpec::Fixed { bytes: KNOWN_BLOCK_BYTES }, &mut pieces);
            chunk::fingerprint_pieces(segment, &pieces, &mut fingerprints);
            assert_eq!(found.fingerprints, fingerprints);
            assert_eq!(found.fingerprint, chunk::segment_fingerprint(&pieces, &fingerprints));
            let SegmentData::Elsewhere(from) = found.data else { panic!() };
            half.read.lock().clear();
            let mut whole = vec![9; segment.len()];
            from.read_at(n as u64 * u64::from(SEGMENT), &mut whole).unwrap();
            assert!(whole == segment);
            // What was fingerprinted is not read again.
            let read = half.read.lock().clone();
            assert!(read.iter().all(|r| (r.start / BLOCK..r.end / BLOCK).all(|b| !matches!(b % 7, 3 | 4))));
        }
        assert!(known.next_segment(SegmentNo(3)).unwrap().is_none());
        // Unknown ones, and the short last one, but for zeros.
        let hashed = (0..41).filter(|n| (matches!(n % 7, 3 | 4) || *n == 40) && n % 5 != 0).count() as u64;
        assert_eq!(bytes.get().hashed, hashed * BLOCK);
        let known = (0..40).filter(|n| !matches!(n % 7, 3 | 4) && n % 5 != 0).count() as u64;
        assert_eq!(bytes.get().known, known * BLOCK);
    }

    #[test]
    fn only_what_is_wanted_is_looked_at() {
        let half = Arc::new(Half { data: disk(64, 0), read: Mutex::default() });
        let of = |chunk_bytes| KnownSegments::of(Box::new(HalfSource(half.clone())), SEGMENT, chunk_bytes);
        assert!(of(None).is_err() && of(Some(8192)).is_err());
        let mut known = of(Some(KNOWN_BLOCK_BYTES)).ok().unwrap();
        let segment = u64::from(SEGMENT);
        known.narrow(&Changes::new(vec![segment..2 * segment, 3 * segment..4 * segment]));
        assert_eq!(known.next_segment(SegmentNo(0)).unwrap().unwrap().no, SegmentNo(1));
        assert_eq!(known.next_segment(SegmentNo(2)).unwrap().unwrap().no, SegmentNo(3));
        assert!(known.next_segment(SegmentNo(4)).unwrap().is_none());
        assert!(half.read.lock().iter().all(|r| r.start / segment % 2 == 1));
    }
}
