//! Looks whether a list of changes can be right: a few segments that it does not name are read, and must be as in the parent.
//!
//! A list may be that of another disk, or begin too late; a snapshot made by it would mix two states. It is a sample: a list that
//! leaves out a single segment is hardly ever noticed, and data in what were holes never.

use crate::backup::pipeline::{fill, Input};
use crate::base::error::{Result, VaultError};
use crate::base::policy::Policy;
use crate::base::progress::Progress;
use crate::base::random::random_bytes;
use crate::lookup::parent::Parent;
use crate::lookup::since::Untouched;
use format::{Reference, SegmentNo, SegmentRecipe, WriterNo};
use image::Source;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Range, RangeInclusive};

/// Bytes that are read of segments that the disk wrote last: they are where it differs from other disks, and where it is
/// written most. And as many of segments at random.
const BYTES: u32 = 16 << 20;
/// How many segments that may be: of the default's 4 MiB, four and four.
const SEGMENTS: RangeInclusive<u32> = 2..=16;

/// A segment of the parent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The newest writer of the disk that wrote any of it, and how many chunks.
    written: (WriterNo, u64),
    no: SegmentNo,
    fingerprint: [u8; 32],
}

/// What was compared.
#[derive(Default)]
pub(super) struct SpotCheck {
    /// Bytes of the source that were read and fingerprinted.
    pub bytes: u64,
    /// Where a segment lies that the list does not name, and that is not as in the parent: the first that was found.
    pub difference: Option<Range<u64>>,
}

/// Compares segments of the input that the list does not name with the parent's, until one differs.
pub(super) fn compare(
    input: &mut Input,
    untouched: &Untouched,
    parent: &mut Parent,
    policy: &Policy,
    progress: &Progress,
) -> Result<SpotCheck> {
    let mut done = SpotCheck::default();
    // A source that has fingerprints knows its changes, too.
    let Input::Disk(source) = input else { return Ok(done) };
    let Some(size) = source.size() else { return Ok(done) };
    let most = (BYTES / policy.segment_bytes).clamp(*SEGMENTS.start(), *SEGMENTS.end()) as usize;
    for candidate in choose(untouched, parent, most)? {
        progress.check()?;
        let start = candidate.no.0 * u64::from(policy.segment_bytes);
        let range = start..start + untouched.segment_len(candidate.no);
        let found = match fingerprint(&mut **source, &range, size, policy) {
            // What cannot be read need not be: the list does not name it.
            Err(VaultError::Image(_)) => continue,
            found => found?,
        };
        done.bytes += range.end - range.start;
        if found != candidate.fingerprint {
            done.difference = Some(range);
            break;
        }
    }
    Ok(done)
}

/// Segments with data that the list does not name, in the order of the disk: `most` of the newest, and as many at random.
fn choose(untouched: &Untouched, parent: &mut Parent, most: usize) -> Result<Vec<Candidate>> {
    let mut newest: BinaryHeap<Reverse<Candidate>> = BinaryHeap::new();
    let mut at_random: Vec<Candidate> = Vec::new();
    let mut passed = 0;
    let mut random = u64::from_le_bytes(random_bytes()?);
    parent.each_segment(&mut |no, segment| {
        if !untouched.is_taken_over(no) {
            return;
        }
        let candidate = Candidate { written: last_written(segment), no, fingerprint: segment.fingerprint };
        newest.push(Reverse(candidate));
        let least = if newest.len() > most { newest.pop() } else { None };
        // Of those that are not among the newest, each has the same chance.
        let Some(Reverse(candidate)) = least else { return };
        passed += 1;
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let n = ((random >> 32) % passed) as usize;
        if at_random.len() < most {
            at_random.push(candidate);
        } else if n < most {
            at_random[n] = candidate;
        }
    })?;
    let mut chosen: Vec<Candidate> = newest.into_iter().map(|c| c.0).chain(at_random).collect();
    chosen.sort_unstable_by_key(|c| c.no);
    Ok(chosen)
}

fn last_written(segment: &SegmentRecipe) -> (WriterNo, u64) {
    let mut last = (WriterNo::BEFORE_ALL, 0);
    for r in &segment.references {
        let Reference::Direct { container, count, .. } = *r else { continue };
        if !container.is_own() || container.writer() < last.0 {
            continue;
        }
        if container.writer() > last.0 {
            last = (container.writer(), 0);
        }
        last.1 += u64::from(count);
    }
    last
}

/// The fingerprint of a segment of the source, cut as the policy says.
fn fingerprint(source: &mut dyn Source, range: &Range<u64>, size: u64, policy: &Policy) -> Result<[u8; 32]> {
    let mut data = vec![0; (range.end - range.start) as usize];
    if let Some(first) = source.next_data(range.start)?.filter(|first| first.start < range.end) {
        let filled = fill(source, range.start, &mut data, first, Some(size))?;
        data.truncate(filled);
    }
    let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
    chunk::cut(&data, policy.chunking, &mut pieces);
    chunk::fingerprint_pieces(&data, &pieces, &mut fingerprints);
    Ok(chunk::segment_fingerprint(&pieces, &fingerprints).0)
}
