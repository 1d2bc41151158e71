//! The index of the popular set: its chunks, and the containers that they are in.

use crate::bytes::{Malformed, Result};
use crate::frame::{encode_frame, Context, FrameCheck, FrameHeader, Kind, FRAME_HEADER_BYTES};
use crate::ids::{ChunkNo, ContainerId};
use crate::runs::RunSet;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Fills a buffer from an offset of a frame.
pub type ReadPiece<'a, E> = dyn FnMut(u64, &mut [u8]) -> std::result::Result<(), E> + 'a;

/// Most containers of a set: it has 60 million chunks at most, and a container thousands of them.
const CONTAINERS_MAX: u64 = 1 << 20;
/// Chunks that are put in order at once.
const CHUNKS_AT_ONCE: usize = 1 << 20;
/// What is checked at once.
const CHECKED_BYTES: usize = 1 << 20;
/// Fingerprint prefix, container's place in the list, chunk.
const ENTRY_BYTES: usize = 16;

/// A chunk of a set: the number that the set is sorted by, its container, its number.
pub type PopularChunk = (u64, ContainerId, ChunkNo);

/// How a set is stored that need not fit into memory: its header, its list of containers, an entry for each chunk.
pub struct PopularLayout {
    containers: Vec<ContainerId>,
    list: Vec<u8>,
    chunks: u64,
}

impl PopularLayout {
    /// Of a set of so many chunks in these containers, [`PopularSet::CHUNKS_MAX`] at most.
    pub fn new(containers: BTreeSet<ContainerId>, chunks: u64) -> Self {
        let mut list = (containers.len() as u32).to_le_bytes().to_vec();
        containers.iter().for_each(|c| list.extend_from_slice(&c.raw().to_le_bytes()));
        PopularLayout { containers: containers.into_iter().collect(), list, chunks }
    }

    /// The header, to which all entries are to be fed in order.
    pub fn header(&self, context: Context<'_>) -> FrameHeader {
        let body_len = self.list.len() + self.chunks as usize * ENTRY_BYTES;
        let mut header = FrameHeader::begin(Kind::Popular, context, body_len);
        header.feed(&self.list);
        header
    }

    /// What stands between the header and the entries.
    pub fn list(&self) -> &[u8] {
        &self.list
    }

    /// The entry of a chunk. Entries are sorted by what they are made of.
    pub fn entry(&self, (prefix, container, chunk): &PopularChunk) -> [u8; ENTRY_BYTES] {
        let at = self.containers.partition_point(|c| c < container) as u32;
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&prefix.to_be_bytes());
        entry[8..12].copy_from_slice(&at.to_le_bytes());
        entry[12..].copy_from_slice(&chunk.0.to_le_bytes());
        entry
    }
}

/// The chunks of a set in order of their fingerprints, of which the first 8 bytes are kept: an answer is a hint.
///
/// It is used as it is stored, so that it can stay in a mapped file.
#[derive(Clone)]
pub struct PopularSet {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    /// Where the body is in them.
    body: Range<usize>,
    containers: Vec<ContainerId>,
    first_entry: usize,
}

impl PopularSet {
    /// As many chunks as an index takes, with the list of their containers.
    pub const CHUNKS_MAX: usize = 60_000_000;

    /// The number by which a set is sorted: a fingerprint's first 8 bytes as they stand.
    pub fn prefix(fingerprint: &[u8; 32]) -> u64 {
        number(&fingerprint[..8])
    }

    /// Of chunks in any order: prefix, container, number. [`Self::CHUNKS_MAX`] of them at most.
    pub fn new(mut chunks: Vec<PopularChunk>) -> Self {
        assert!(chunks.len() <= Self::CHUNKS_MAX, "a popular set of {} chunks", chunks.len());
        chunks.sort_unstable();
        let containers = chunks.iter().map(|c| c.1).collect();
        let layout = PopularLayout::new(containers, chunks.len() as u64);
        let mut body = layout.list.clone();
        chunks.iter().for_each(|chunk| body.extend_from_slice(&layout.entry(chunk)));
        let (containers, first_entry) = (layout.containers, layout.list.len());
        PopularSet { body: 0..body.len(), bytes: Arc::new(body), containers, first_entry }
    }

    fn body(&self) -> &[u8] {
        &(*self.bytes).as_ref()[self.body.clone()]
    }

    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        encode_frame(Kind::Popular, context, self.body())
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let whole = || Malformed::new("is cut short");
        let mut read = |at: u64, buf: &mut [u8]| -> Result<()> {
            let from = at as usize;
            buf.copy_from_slice(bytes.get(from..from + buf.len()).ok_or_else(whole)?);
            Ok(())
        };
        Self::check(context, bytes.len() as u64, &mut read)??;
        Self::over_checked(Arc::new(bytes.to_vec()))
    }

    /// Checks a frame of `len` bytes: `read` fills a buffer from an offset of it. The outer error is one of reading.
    pub fn check<E>(
        context: Context<'_>,
        len: u64,
        read: &mut ReadPiece<'_, E>,
    ) -> std::result::Result<Result<()>, E> {
        Self::scan(context, len, read, &mut |_, _| {})
    }

    /// The same, and calls `each` for every chunk in order of fingerprints: all for nothing if the frame turns out to be
    /// damaged. All of it is read once, piece by piece, and none of it stays in memory.
    pub fn scan<E>(
        context: Context<'_>,
        len: u64,
        read: &mut ReadPiece<'_, E>,
        each: &mut dyn FnMut(ContainerId, ChunkNo),
    ) -> std::result::Result<Result<()>, E> {
        let mut header = [0; FRAME_HEADER_BYTES];
        if len < FRAME_HEADER_BYTES as u64 {
            return Ok(Err(Malformed::new(format!("only {len} bytes long"))));
        }
        read(0, &mut header)?;
        let mut frame = match FrameCheck::begin(Kind::Popular, context, &header, len) {
            Ok(frame) => frame,
            Err(e) => return Ok(Err(e)),
        };
        let mut order = OrderCheck::default();
        let mut in_order = Ok(());
        let (mut at, mut buf) = (FRAME_HEADER_BYTES as u64, vec![0; CHECKED_BYTES]);
        while at < len {
            let piece = (CHECKED_BYTES as u64).min(len - at) as usize;
            read(at, &mut buf[..piece])?;
            frame.feed(&buf[..piece]);
            in_order = in_order.and_then(|()| order.feed(&buf[..piece], each));
            at += piece as u64;
        }
        Ok(frame.finish().and(in_order).and_then(|()| order.finish()))
    }

    /// Over a frame that was checked, which stays where it is.
    pub fn over_checked(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Result<Self> {
        let short = || Malformed::new("is cut short");
        let frame = (*bytes).as_ref();
        let body = frame.get(FRAME_HEADER_BYTES..).ok_or_else(short)?;
        let count = number_le(body.get(..4).ok_or_else(short)?) as usize;
        let first_entry = count.checked_mul(8).and_then(|n| n.checked_add(4)).ok_or_else(short)?;
        let list = body.get(4..first_entry).ok_or_else(short)?;
        let containers: Result<Vec<_>> =
            list.chunks_exact(8).map(|raw| ContainerId::from_raw(number_le(raw))).collect();
        let body = FRAME_HEADER_BYTES..frame.len();
        Ok(PopularSet { body, bytes: bytes.clone(), containers: containers?, first_entry })
    }

    /// Chunks in it.
    pub fn len(&self) -> usize {
        (self.body.len() - self.first_entry) / ENTRY_BYTES
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its chunks by container.
    pub fn chunks(&self) -> BTreeMap<ContainerId, RunSet> {
        let mut chunks = ChunksByContainer::default();
        (0..self.len()).filter_map(|n| self.place(n)).for_each(|(id, chunk)| chunks.add(id, chunk));
        chunks.finish()
    }

    /// Where a chunk of this fingerprint may be. Prefixes are spread evenly: the first guess is where it would stand then,
    /// and the range around it is halved.
    pub fn find(&self, fingerprint: &[u8; 32]) -> Option<(ContainerId, ChunkNo)> {
        let (wanted, len) = (Self::prefix(fingerprint), self.len());
        let guess = ((u128::from(wanted) * len as u128) >> 64) as usize;
        let (mut low, mut high, mut step) = (guess, guess, 8);
        while low > 0 && self.prefix_at(low - 1) >= wanted {
            low = low.saturating_sub(step);
            step *= 4;
        }
        step = 8;
        while high < len && self.prefix_at(high) < wanted {
            high = (high + step).min(len);
            step *= 4;
        }
        // The first that is not smaller lies in low..=high.
        while low < high {
            let middle = low + (high - low) / 2;
            if self.prefix_at(middle) < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < len && self.prefix_at(low) == wanted).then(|| self.place(low)).flatten()
    }

    fn prefix_at(&self, n: usize) -> u64 {
        let at = self.first_entry + n * ENTRY_BYTES;
        number(&self.body()[at..at + 8])
    }

    fn place(&self, n: usize) -> Option<(ContainerId, ChunkNo)> {
        let at = self.first_entry + n * ENTRY_BYTES + 8;
        let body = self.body();
        let container = self.containers.get(number_le(&body[at..at + 4]) as usize)?;
        Some((*container, ChunkNo(number_le(&body[at + 4..at + 8]) as u32)))
    }
}

/// Chunks in any order become sets of runs, a piece at a time: most chunks of a container follow each other.
#[derive(Default)]
pub struct ChunksByContainer {
    chunks: BTreeMap<ContainerId, RunSet>,
    fresh: BTreeMap<ContainerId, Vec<(u32, u32)>>,
    fresh_len: usize,
}

impl ChunksByContainer {
    /// Adds a chunk.
    pub fn add(&mut self, id: ContainerId, chunk: ChunkNo) {
        self.fresh.entry(id).or_default().push((chunk.0, 1));
        self.fresh_len += 1;
        if self.fresh_len == CHUNKS_AT_ONCE {
            self.put_in_order();
        }
    }

    /// All of them.
    pub fn finish(mut self) -> BTreeMap<ContainerId, RunSet> {
        self.put_in_order();
        self.chunks
    }

    fn put_in_order(&mut self) {
        for (id, runs) in std::mem::take(&mut self.fresh) {
            let known = self.chunks.entry(id).or_default();
            *known = known.union(&RunSet::from_unsorted(runs));
        }
        self.fresh_len = 0;
    }
}

/// Whether containers and chunks are in order, and each chunk is in a container of the list. Takes a body in pieces.
#[derive(Default)]
struct OrderCheck {
    /// What was fed and is no whole item yet.
    rest: Vec<u8>,
    /// Containers in the list, once that is known, and those that came.
    count: Option<u64>,
    containers: Vec<ContainerId>,
    prefix: u64,
}

impl OrderCheck {
    fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(ContainerId, ChunkNo)) -> Result<()> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut left = &all[..];
        while let Some((item, behind)) = left.split_at_checked(self.item_bytes()) {
            self.item(item, each)?;
            left = behind;
        }
        self.rest = left.to_vec();
        Ok(())
    }

    fn item_bytes(&self) -> usize {
        match self.count {
            None => 4,
            Some(count) if (self.containers.len() as u64) < count => 8,
            Some(_) => ENTRY_BYTES,
        }
    }

    fn item(&mut self, item: &[u8], each: &mut dyn FnMut(ContainerId, ChunkNo)) -> Result<()> {
        let Some(count) = self.count else {
            let count = number_le(item);
            if count > CONTAINERS_MAX {
                let why = format!("has {count} containers, at most {CONTAINERS_MAX} are plausible");
                return Err(Malformed::new(why));
            }
            self.count = Some(count);
            return Ok(());
        };
        if (self.containers.len() as u64) < count {
            let id = ContainerId::from_raw(number_le(item))?;
            if self.containers.last().is_some_and(|last| *last >= id) {
                return Err(Malformed::new("has containers out of order"));
            }
            self.containers.push(id);
            return Ok(());
        }
        let prefix = number(&item[..8]);
        if prefix < self.prefix {
            return Err(Malformed::new("has chunks out of order"));
        }
        self.prefix = prefix;
        match self.containers.get(number_le(&item[8..12]) as usize) {
            Some(id) => each(*id, ChunkNo(number_le(&item[12..]) as u32)),
            None => return Err(Malformed::new("has a chunk in no container")),
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self.count {
            Some(count) if self.containers.len() as u64 == count && self.rest.is_empty() => Ok(()),
            Some(count) if self.containers.len() as u64 == count => Err(Malformed::new("has half an entry")),
            _ => Err(Malformed::new("is cut short")),
        }
    }
}

impl PartialEq for PopularSet {
    fn eq(&self, other: &Self) -> bool {
        self.body() == other.body()
    }
}

impl Eq for PopularSet {}

impl fmt::Debug for PopularSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PopularSet({} chunks in {} containers)", self.len(), self.containers.len())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn number_le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ids::{OwnerNo, VaultId, WriterNo};
    use xxhash_rust::xxh3::xxh3_128_with_seed;

    const HERE: Context<'static> = Context { vault: VaultId([7; 16]), place: "set" };

    fn fingerprint(n: u64) -> [u8; 32] {
        let mut f = [0; 32];
        f[..16].copy_from_slice(&xxh3_128_with_seed(b"", n).to_le_bytes());
        f
    }

    fn in_pieces(mut chunks: Vec<PopularChunk>) -> Vec<u8> {
        chunks.sort_unstable();
        let layout = PopularLayout::new(chunks.iter().map(|c| c.1).collect(), chunks.len() as u64);
        let mut header = layout.header(HERE);
        chunks.iter().for_each(|c| header.feed(&layout.entry(c)));
        let entries: Vec<u8> = chunks.iter().flat_map(|c| layout.entry(c)).collect();
        [&header.finish(), layout.list(), &entries].concat()
    }

    #[test]
    fn every_chunk_of_a_set_is_found_and_no_other() {
        for count in [0, 1, 2, 3, 100, 5000] {
            let chunk = |n: u64| {
                let container = ContainerId::new(OwnerNo::OWN, WriterNo(3), (n % 7) as u32);
                (PopularSet::prefix(&fingerprint(n)), container, ChunkNo(n as u32))
            };
            let set = PopularSet::new((0..count).map(chunk).collect());
            assert_eq!(PopularSet::decode(HERE, &set.encode(HERE)).unwrap(), set);
            assert_eq!((set.len() as u64, set.is_empty()), (count, count == 0));
            assert_eq!(in_pieces((0..count).map(chunk).collect()), set.encode(HERE));
            for n in 0..count {
                assert_eq!(set.find(&fingerprint(n)), Some((chunk(n).1, ChunkNo(n as u32))));
            }
            for n in count..count + 500 {
                assert_eq!(set.find(&fingerprint(n)), None);
            }
            for byte in [0, 255] {
                assert_eq!(set.find(&[byte; 32]), None);
            }
            assert_eq!(set.chunks().values().map(RunSet::len).sum::<u64>(), count);
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        let popular = |n| ContainerId::new(OwnerNo::OWN, WriterNo(1), n).raw().to_le_bytes();
        let entry = |prefix: u64, at: u32| [&prefix.to_be_bytes()[..], &at.to_le_bytes(), &[0; 4]].concat();
        let bad: Vec<Vec<u8>> = vec![
            vec![],
            vec![1, 0],
            vec![1, 0, 0, 0, 7],
            vec![0, 0, 0, 0, 1],
            vec![255; 4],
            [&[1, 0, 0, 0][..], &[0; 8]].concat(),
            [&[2, 0, 0, 0][..], &popular(1), &popular(1)].concat(),
            [&[1, 0, 0, 0][..], &popular(1), &entry(5, 1)].concat(),
            [&[1, 0, 0, 0][..], &popular(1), &entry(5, 0), &entry(4, 0)].concat(),
        ];
        for body in bad {
            assert!(PopularSet::decode(HERE, &encode_frame(Kind::Popular, HERE, &body)).is_err(), "{body:?}");
        }
    }
}
