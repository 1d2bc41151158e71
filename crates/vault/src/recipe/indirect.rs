//! Resolves the indirect references of a page (RevDedup 3.2.2): those into the next newer recipe are sorted, so that each page there
//! is decoded once. It reads nothing: who calls it says where a recipe has a segment.

use crate::base::error::{Result, VaultError};
use format::{ChunkNo, Ordinal, PageNo, RecipePage, Reference, SegmentNo, SegmentRecipe};
use std::borrow::Cow;
use std::sync::Arc;

/// Chunks that are followed at once, but for one segment that has more (about 100 bytes each).
const BATCH_CHUNKS: u64 = 128 << 10;

/// No chunk but a segment's last one is shorter.
const CHUNK_BYTES_MIN: u64 = 64;

/// Chunks that are looked for in the next newer recipe.
#[derive(Clone, Copy)]
struct Want {
    segment: SegmentNo,
    ordinal: u64,
    count: u64,
    /// Whose they are: index of the segment in the page, and their ordinal there.
    of: usize,
    at: u64,
}

/// References by segment (index in the page) and ordinal.
type FoundReferences = Vec<(usize, u64, Reference)>;

/// Where a recipe has a segment.
pub(crate) enum Place {
    /// Where the next newer recipe has it.
    Newer,
    /// In a page, and the object to blame if it is not there.
    Here(Option<Arc<RecipePage>>, String),
}

/// Segments of a page whose references are being followed.
pub(crate) struct Batch {
    /// What is still looked for.
    wants: Vec<Want>,
    found: FoundReferences,
}

/// Follows the indirect references of a page, which stands in `object`, some segments at a time: `each` follows a batch
/// of them level by level. What is still looked for then stays indirect.
///
/// A few bytes of references may lead to any number of others: what a page leads to is held to the limits of a page. One
/// that is owned gives its references up on the way.
pub(crate) fn resolve(
    object: &str,
    segment_bytes: u32,
    mut page: Cow<'_, RecipePage>,
    each: &mut dyn FnMut(&mut Batch) -> Result<()>,
) -> Result<RecipePage> {
    let mut out = RecipePage::default();
    let (mut from, mut references) = (0, 0);
    while from < page.segments.len() {
        let (mut to, mut size) = (from, 0);
        while let Some((index, s)) = page.segments.get(to) {
            let chunks = s.references.iter().map(Reference::chunks).sum::<u64>();
            if chunks > chunks_max(segment_bytes) {
                let why = format!("segment {index} of a page has {chunks} chunks");
                return Err(VaultError::corrupt(object, why));
            }
            if to > from && size + chunks + s.references.len() as u64 > BATCH_CHUNKS {
                break;
            }
            size += chunks + s.references.len() as u64;
            to += 1;
        }
        let mut batch = Batch::of(&page.segments[from..to]);
        each(&mut batch)?;
        let Batch { wants, mut found } = batch;
        found.extend(wants.iter().map(|w| (w.of, w.at, indirect(w))));
        let segments = assemble(&page.segments[from..to], found);
        references += segments.iter().map(|(_, s)| s.references.len()).sum::<usize>();
        if references > RecipePage::REFERENCES_MAX {
            return Err(VaultError::corrupt(object, "leads to more references than a page may have"));
        }
        out.segments.extend(segments);
        if let Cow::Owned(page) = &mut page {
            page.segments[from..to].iter_mut().for_each(|(_, s)| s.references = Vec::new());
        }
        from = to;
    }
    Ok(out)
}

/// Most chunks of a segment.
pub(crate) fn chunks_max(segment_bytes: u32) -> u64 {
    // Its last one may be shorter.
    u64::from(segment_bytes) / CHUNK_BYTES_MIN + 1
}

impl Batch {
    fn of(segments: &[(u16, SegmentRecipe)]) -> Self {
        let (mut wants, mut found) = (Vec::new(), FoundReferences::new());
        for (of, (_, s)) in segments.iter().enumerate() {
            let mut at = 0;
            for r in &s.references {
                match *r {
                    Reference::Indirect { segment, ordinal, count } => {
                        let (ordinal, count) = (u64::from(ordinal.0), u64::from(count));
                        wants.push(Want { segment, ordinal, count, of, at });
                    }
                    _ => found.push((of, at, *r)),
                }
                at += r.chunks();
            }
        }
        Batch { wants, found }
    }

    /// Whether nothing is looked for any more.
    pub fn is_done(&self) -> bool {
        self.wants.is_empty()
    }

    /// The pages in which something is looked for, in order.
    pub fn pages_wanted(&self) -> Vec<PageNo> {
        let mut pages: Vec<PageNo> = self.wants.iter().map(|w| w.segment.page()).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Looks for what is wanted in the next newer recipe, whose segments `place` finds. What leads further is wanted then.
    pub fn follow(&mut self, place: &mut dyn FnMut(SegmentNo) -> Result<Place>) -> Result<()> {
        self.wants.sort_unstable_by_key(|w| (w.segment, w.ordinal));
        let mut further = Vec::new();
        for of_segment in self.wants.chunk_by(|a, b| a.segment == b.segment) {
            let no = of_segment[0].segment;
            let (page, object) = match place(no)? {
                Place::Newer => {
                    further.extend_from_slice(of_segment);
                    continue;
                }
                Place::Here(page, object) => (page, object),
            };
            let segment = page.as_ref().and_then(|p| segment_of(p, no));
            let followed =
                segment.and_then(|s| look_up(of_segment, &s.references, &mut self.found, &mut further));
            if followed.is_none() {
                let why = format!("has not the chunks of segment {no} that an older snapshot refers to");
                return Err(VaultError::corrupt(&object, why));
            }
        }
        self.wants = further;
        Ok(())
    }
}

/// A segment of a page, by its number on the disk.
pub(crate) fn segment_of(page: &RecipePage, no: SegmentNo) -> Option<&SegmentRecipe> {
    page.segments.binary_search_by_key(&no.index(), |s| s.0).ok().map(|n| &page.segments[n].1)
}

/// Looks chunks of one segment up, in order of their ordinals. `None` where it has fewer chunks.
fn look_up(
    wants: &[Want],
    references: &[Reference],
    found: &mut FoundReferences,
    further: &mut Vec<Want>,
) -> Option<()> {
    // Zeros have no ordinal. Left in, any number of them could stand in the way of every want.
    let references: Vec<Reference> = references.iter().filter(|r| r.chunks() > 0).copied().collect();
    let (mut first, mut before) = (0, 0u64);
    for w in wants {
        // Those before it are before all that follow.
        while before + references.get(first)?.chunks() <= w.ordinal {
            before += references[first].chunks();
            first += 1;
        }
        let (mut n, mut start, mut from) = (first, before, w.ordinal);
        let (mut at, end) = (w.at, w.ordinal + w.count);
        while from < end {
            let reference = references.get(n)?;
            let (skip, take) = (from - start, (start + reference.chunks()).min(end) - from);
            match *reference {
                Reference::Null { .. } => {}
                Reference::Direct { container, first, .. } => {
                    let first = ChunkNo(first.0 + skip as u32);
                    found.push((w.of, at, Reference::Direct { container, first, count: take as u32 }));
                }
                Reference::Indirect { segment, ordinal, .. } => {
                    let ordinal = u64::from(ordinal.0) + skip;
                    further.push(Want { segment, ordinal, count: take, of: w.of, at });
                }
            }
            start += reference.chunks();
            from += take;
            at += take;
            n += 1;
        }
    }
    Some(())
}

fn indirect(w: &Want) -> Reference {
    // Ordinals and counts of a decoded page fit, and so do parts of them.
    Reference::Indirect { segment: w.segment, ordinal: Ordinal(w.ordinal as u32), count: w.count as u32 }
}

/// Segments with other references for the same chunks.
fn assemble(segments: &[(u16, SegmentRecipe)], mut found: FoundReferences) -> Vec<(u16, SegmentRecipe)> {
    // Zeros stand before the chunk whose ordinal they have.
    found.sort_unstable_by_key(|(of, at, r)| (*of, *at, r.chunks() > 0));
    let mut out = Vec::with_capacity(segments.len());
    let mut next = found.into_iter().peekable();
    for (of, (index, s)) in segments.iter().enumerate() {
        let mut references = Vec::new();
        while let Some((_, _, r)) = next.next_if(|f| f.0 == of) {
            push(&mut references, r);
        }
        references.shrink_to_fit();
        let SegmentRecipe { fingerprint, signature, .. } = *s;
        out.push((*index, SegmentRecipe { fingerprint, signature, references }));
    }
    out
}

/// Appends a reference, joined with the last one where it goes on from there.
pub(crate) fn push(references: &mut Vec<Reference>, r: Reference) {
    match (references.last_mut(), r) {
        (
            Some(Reference::Direct { container, first, count }),
            Reference::Direct { container: c, first: f, count: n },
        ) if *container == c
            && first.0.checked_add(*count) == Some(f.0)
            && count.checked_add(n).is_some() =>
        {
            *count += n;
        }
        (
            Some(Reference::Indirect { segment, ordinal, count }),
            Reference::Indirect { segment: s, ordinal: o, count: n },
        ) if *segment == s
            && ordinal.0.checked_add(*count) == Some(o.0)
            && count.checked_add(n).is_some() =>
        {
            *count += n;
        }
        _ => references.push(r),
    }
}
