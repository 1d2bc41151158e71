//! Recipes: the lists of chunks of snapshots. A root over immutable pages of 1,024 segments.

mod bloom;
mod summary;

pub use bloom::Bloom;
pub use summary::Summary;

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{body_len, decode_frame, encode_frame, Context, Kind};
use crate::ids::{ChunkNo, ContainerId, Ordinal, PageNo, SegmentNo, SnapId, WriterNo};
use std::ops::Range;

/// Segments in one page.
pub const SEGMENTS_PER_PAGE: u64 = 1024;

/// Most pages of one recipe: a disk of 2 PiB in segments of 4 MiB. A few bytes may announce them, so they bound
/// what decoding takes in memory.
pub const RECIPE_PAGES_MAX: u64 = 1 << 19;

/// Longest segment in bytes: those of RevDedup have 4 to 32 MiB.
pub const SEGMENT_BYTES_MAX: u32 = 32 << 20;

/// A recipe: the snapshot, and the writer that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecipeName {
    /// The snapshot it was made for.
    pub snap: SnapId,
    /// The writer that wrote it.
    pub generation: WriterNo,
}

/// Where a page and its summary stand: one behind the other in a recipe's `pages` object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecipePageRef {
    /// The recipe that wrote it.
    pub recipe: RecipeName,
    /// Offset of the page's frame in bytes.
    pub offset: u64,
    /// Length of the page's frame.
    pub page_len: u32,
    /// Length of the frame of the page's summary, which follows the page.
    pub summary_len: u32,
}

/// Where a root finds one of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageAt {
    /// All its segments are null.
    Null,
    /// Here.
    Page(RecipePageRef),
    /// As the next newer snapshot has it: all its references lead there (RevDedup 3.2.2, a page at a time).
    Newer,
}

impl PageAt {
    /// The page, where it is one of this recipe's own.
    pub fn page(self) -> Option<RecipePageRef> {
        match self {
            PageAt::Page(at) => Some(at),
            PageAt::Null | PageAt::Newer => None,
        }
    }
}

/// How the snapshot is cut, and its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeRoot {
    /// Size of the disk in bytes.
    pub size: u64,
    /// Bytes in a segment; the disk's last one may be shorter.
    pub segment_bytes: u32,
    /// The chunker, as users write it (`4k`, `cdc:4k`).
    pub chunking: String,
    /// A page for every 1,024 segments.
    pub pages: Vec<PageAt>,
}

/// A run of chunks of a segment, in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Zeros.
    Null {
        /// How many.
        bytes: u32,
    },
    /// Chunks in a container.
    Direct {
        /// The container.
        container: ContainerId,
        /// The first chunk.
        first: ChunkNo,
        /// How many chunks.
        count: u32,
    },
    /// Chunks found through the next newer snapshot's recipe (RevDedup 3.2.2). Null chunks have no ordinal.
    Indirect {
        /// The segment there.
        segment: SegmentNo,
        /// The first of its chunks.
        ordinal: Ordinal,
        /// How many chunks.
        count: u32,
    },
}

impl SegmentNo {
    /// The page that it is in.
    pub fn page(self) -> PageNo {
        PageNo(self.0 / SEGMENTS_PER_PAGE)
    }

    /// Its index in the page.
    pub fn index(self) -> u16 {
        (self.0 % SEGMENTS_PER_PAGE) as u16
    }
}

impl PageNo {
    /// The segment of this index in the page.
    pub fn segment(self, index: u16) -> SegmentNo {
        SegmentNo(self.0 * SEGMENTS_PER_PAGE + u64::from(index))
    }

    /// The segments of the page.
    pub fn segments(self) -> Range<SegmentNo> {
        self.segment(0)..self.next().segment(0)
    }

    /// The page behind it.
    pub fn next(self) -> PageNo {
        PageNo(self.0 + 1)
    }
}

impl Reference {
    /// How many chunks it has.
    pub fn chunks(&self) -> u64 {
        match self {
            Reference::Null { .. } => 0,
            Reference::Direct { count, .. } | Reference::Indirect { count, .. } => u64::from(*count),
        }
    }
}

/// One segment that is not null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRecipe {
    /// Hash over the lengths and fingerprints of its chunks.
    pub fingerprint: [u8; 32],
    /// Smallest prefix of its chunks' fingerprints (VM-centric 3.1).
    pub signature: u64,
    /// Its references in address order.
    pub references: Vec<Reference>,
}

/// The segments of a page that are not null, by their index in the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecipePage {
    /// Sorted by index (0 to 1,023).
    pub segments: Vec<(u16, SegmentRecipe)>,
}

impl RecipeRoot {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.u64(self.size);
        o.u32(self.segment_bytes);
        o.string(&self.chunking);
        let there: Vec<_> = self.pages.iter().enumerate().filter(|(_, p)| **p != PageAt::Null).collect();
        o.varint(there.len() as u64);
        let mut next = 0;
        for (n, p) in there {
            o.varint(((n - next) as u64) << 1 | u64::from(*p == PageAt::Newer));
            next = n + 1;
            let PageAt::Page(p) = p else { continue };
            o.u64(p.recipe.snap.0);
            o.u32(p.recipe.generation.0);
            o.varint(p.offset);
            o.varint(u64::from(p.page_len));
            o.varint(u64::from(p.summary_len));
        }
        encode_frame(Kind::RecipeRoot, context, &o.0)
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::RecipeRoot, context, bytes)?;
        let mut i = In::within(&body, Kind::RecipeRoot.memory_max());
        let (size, segment_bytes, chunking) = (i.u64()?, i.u32()?, i.string()?);
        if !(4096..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
            return Err(Malformed::new(format!("segments of {segment_bytes} bytes")));
        }
        let wanted = size.div_ceil(u64::from(segment_bytes) * SEGMENTS_PER_PAGE);
        if wanted > RECIPE_PAGES_MAX {
            return Err(Malformed::new(format!("a disk of {size} bytes in segments of {segment_bytes}")));
        }
        let n = i.count(1)?;
        let mut pages = Vec::with_capacity(wanted as usize);
        for _ in 0..n {
            let tag = i.varint()?;
            let at = (pages.len() as u64).saturating_add(tag >> 1);
            if at >= wanted {
                return Err(Malformed::new(format!("page {at} of {wanted}")));
            }
            pages.resize(at as usize, PageAt::Null);
            if tag & 1 == 1 {
                pages.push(PageAt::Newer);
                continue;
            }
            pages.push(PageAt::Page(RecipePageRef {
                recipe: RecipeName { snap: SnapId(i.u64()?), generation: WriterNo(i.u32()?) },
                offset: i.varint()?,
                page_len: i.varint32()?,
                summary_len: i.varint32()?,
            }));
        }
        i.end()?;
        pages.resize(wanted as usize, PageAt::Null);
        Ok(RecipeRoot { size, segment_bytes, chunking, pages })
    }
}

impl RecipePage {
    /// Most references of all segments together, 24 bytes each in memory: where every chunk of the segments of
    /// `reverse` or `vm-centric` stands alone.
    pub const REFERENCES_MAX: usize = 1 << 21;

    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut containers: Vec<ContainerId> = self.containers().collect();
        containers.sort_unstable();
        containers.dedup();
        let mut o = Out::default();
        o.varint(containers.len() as u64);
        for c in &containers {
            o.u64(c.raw());
        }
        o.varint(self.segments.len() as u64);
        let mut previous = 0;
        let mut expected = (0usize, 0u32);
        for (n, s) in &self.segments {
            o.varint(u64::from(*n - previous));
            previous = *n;
            o.bytes(&s.fingerprint);
            o.u64(s.signature);
            o.varint(s.references.len() as u64);
            for r in &s.references {
                match *r {
                    Reference::Null { bytes } => o.varint(u64::from(bytes) << 2),
                    Reference::Direct { container, first, count } => {
                        let slot = containers.binary_search(&container).unwrap_or(0);
                        let from = if expected.0 == slot { expected.1 } else { 0 };
                        o.varint((slot as u64) << 2 | 1);
                        o.signed(i64::from(first.0) - i64::from(from));
                        o.varint(u64::from(count));
                        expected = (slot, first.0.wrapping_add(count));
                    }
                    Reference::Indirect { segment, ordinal, count } => {
                        o.varint(u64::from(count) << 2 | 2);
                        o.varint(segment.0);
                        o.varint(u64::from(ordinal.0));
                    }
                }
            }
        }
        encode_frame(Kind::RecipePage, context, &o.0)
    }

    /// Most memory that the page in a frame may take, in bytes, by the frame's header: no reference is shorter than a byte.
    pub fn memory_max(frame: &[u8]) -> Result<usize> {
        Ok(body_len(frame)?.saturating_mul(size_of::<Reference>()).min(Kind::RecipePage.memory_max()))
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::RecipePage, context, bytes)?;
        let mut i = In::within(&body, Kind::RecipePage.memory_max());
        let (n, mut containers) = i.list(8)?;
        for _ in 0..n {
            containers.push(ContainerId::from_raw(i.u64()?)?);
        }
        let (n, mut segments) = i.list::<(u16, SegmentRecipe)>(42)?;
        let mut left = Self::REFERENCES_MAX;
        let mut index = 0u64;
        let mut expected = (0usize, 0u32);
        for k in 0..n {
            let gap = i.varint()?;
            index = index.saturating_add(gap);
            if index >= SEGMENTS_PER_PAGE || (k > 0 && gap == 0) {
                return Err(Malformed::new("segments out of order or out of range"));
            }
            let (fingerprint, signature) = (i.array()?, i.u64()?);
            let (count, mut references) = i.list(1)?;
            left = left.checked_sub(count).ok_or_else(|| {
                Malformed::new(format!(
                    "more than the {} references that a page may have",
                    Self::REFERENCES_MAX
                ))
            })?;
            for _ in 0..count {
                references.push(decode_reference(&mut i, &containers, &mut expected)?);
            }
            segments.push((index as u16, SegmentRecipe { fingerprint, signature, references }));
        }
        i.end()?;
        Ok(RecipePage { segments })
    }

    /// Whether some of its references lead through a newer snapshot.
    pub fn has_indirect(&self) -> bool {
        let mut all = self.segments.iter().flat_map(|(_, s)| &s.references);
        all.any(|r| matches!(r, Reference::Indirect { .. }))
    }

    fn containers(&self) -> impl Iterator<Item = ContainerId> + '_ {
        self.segments.iter().flat_map(|(_, s)| &s.references).filter_map(|r| match r {
            Reference::Direct { container, .. } => Some(*container),
            _ => None,
        })
    }
}

fn decode_reference(
    i: &mut In<'_>,
    containers: &[ContainerId],
    expected: &mut (usize, u32),
) -> Result<Reference> {
    let tag = i.varint()?;
    let value = tag >> 2;
    let wrong = || Malformed::new("a reference out of range");
    let small = |v: u64| u32::try_from(v).ok().filter(|&v| v > 0).ok_or_else(wrong);
    match tag & 3 {
        0 => Ok(Reference::Null { bytes: small(value)? }),
        1 => {
            let slot = usize::try_from(value).map_err(|_| wrong())?;
            let container = *containers.get(slot).ok_or_else(wrong)?;
            let from = if expected.0 == slot { expected.1 } else { 0 };
            let first = i.signed()?.checked_add(i64::from(from)).ok_or_else(wrong)?;
            let first = u32::try_from(first).map_err(|_| wrong())?;
            let count = small(i.varint()?)?;
            let end = first.checked_add(count).ok_or_else(wrong)?;
            *expected = (slot, end);
            Ok(Reference::Direct { container, first: ChunkNo(first), count })
        }
        2 => {
            let count = small(value)?;
            let (segment, ordinal) = (i.varint()?, i.varint32()?);
            ordinal.checked_add(count).ok_or_else(wrong)?;
            Ok(Reference::Indirect { segment: SegmentNo(segment), ordinal: Ordinal(ordinal), count })
        }
        k => Err(Malformed::new(format!("reference of kind {k}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VaultId;

    const HERE: Context<'static> =
        Context { vault: VaultId([7; 16]), place: "disks/x/recipes/00000001.1.root" };

    /// A root of 20 bytes made the decoder take 10 GiB. Found by fuzzing.
    #[test]
    fn a_small_root_cannot_announce_a_huge_disk() {
        let page_bytes = 4096 * SEGMENTS_PER_PAGE;
        for (pages, fits) in [(RECIPE_PAGES_MAX, true), (RECIPE_PAGES_MAX + 1, false)] {
            let size = pages * page_bytes;
            let root = RecipeRoot { size, segment_bytes: 4096, chunking: "4k".into(), pages: Vec::new() };
            let decoded = RecipeRoot::decode(HERE, &root.encode(HERE));
            assert_eq!(decoded.map(|r| r.pages.len() as u64).ok(), fits.then_some(pages));
        }
    }

    /// A page of 1.1 KB had so many references that decoding it took 1.8 GiB.
    #[test]
    fn a_small_page_cannot_announce_more_references_than_a_page_may_have() {
        let page = |references: usize| {
            let references = vec![Reference::Null { bytes: 1 }; references];
            let s = SegmentRecipe { fingerprint: [0; 32], signature: 0, references };
            RecipePage { segments: vec![(3, s)] }
        };
        let most = page(RecipePage::REFERENCES_MAX);
        let frame = most.encode(HERE);
        assert!(frame.len() < 1000);
        assert_eq!(RecipePage::decode(HERE, &frame), Ok(most));
        assert!(RecipePage::decode(HERE, &page(RecipePage::REFERENCES_MAX + 1).encode(HERE)).is_err());
    }
}
