//! Backups with a list of changes: unchanged segments are not read but taken from the parent (VM-centric 3.1).
//!
//! A list of changes is used only if it begins at the newest snapshot, which is the parent. A segment is read if the
//! list touches it, if the disk grew or shrank there, or if the parent's segment is damaged. A few of the others are compared
//! first ([`crate::backup::spot_check`]).

use crate::base::error::{Result, VaultError};
use crate::base::policy::Policy;
use crate::container::tables::Tables;
use crate::lookup::parent::Parent;
use crate::manifest::session::Session;
use format::{SegmentNo, SnapshotEntry};
use image::{Changes, Source};
use std::ops::Range;
use std::sync::Arc;

/// What is known of the changes since a snapshot.
#[derive(Clone, Debug)]
pub struct Since {
    /// The snapshot: its id, or how that begins. `latest` or a time would not tell whether the changes are those since
    /// then, and are refused.
    pub snapshot: String,
    /// What may have changed since.
    pub changes: Changes,
}

/// How much of a disk a backup has looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Everything, since nothing was known of the changes.
    Whole,
    /// Everything, although a list of changes was given: why it did not count.
    WholeAlthough(String),
    /// The segments that may have changed.
    Changed {
        /// Their bytes.
        bytes: u64,
    },
}

/// The segments of a disk that need not be read.
pub(crate) struct Untouched {
    /// Whole segments that are read.
    touched: Changes,
    segment_bytes: u64,
    size: u64,
    /// The next segment that has not been passed.
    next: SegmentNo,
}

impl Untouched {
    /// What need not be read of a disk of `size` bytes; otherwise why all of it is read.
    pub fn new(
        since: &Since,
        session: &Session,
        parent: Option<&mut Parent>,
        tables: &Tables,
        policy: &Policy,
        disk: &str,
        size: Option<u64>,
    ) -> Result<std::result::Result<Self, String>> {
        let Some(size) = size else { return Ok(Err("a stream is read from end to end".into())) };
        let named = &since.snapshot;
        if named.is_empty()
            || named.len() > 16
            || !named.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        {
            let why = format!(
                "{named:?} is not the id of a snapshot: name the one that the changes begin at, as `sapwood snapshots {disk}` \
                 shows it, so that a list of other changes cannot count"
            );
            return Err(VaultError::Usage(why));
        }
        let Some(newest) = &session.parent else { return Ok(Err("there is no snapshot yet".into())) };
        let is_named = |s: &&SnapshotEntry| s.id.to_string().starts_with(named.as_str());
        let all = session.folder.whole(Arc::new(session.manifest.clone()))?;
        let named_so = all.live().filter(is_named).count();
        match named_so {
            0 => return Ok(Err(format!("there is no snapshot {named}"))),
            1 if is_named(&newest) => {}
            1 => return Ok(Err(format!("{named} is not the newest snapshot, which is {}", newest.id))),
            n => return Err(VaultError::Usage(format!("{n} snapshots of {disk} begin like {named}"))),
        }
        let Some(parent) = parent else {
            return Ok(Err(format!("snapshot {} is damaged or cut in another way", newest.id)));
        };
        let end = since.changes.ranges().last().map_or(0, |r| r.end);
        if end
            > size
                .max(newest.size)
                .div_ceil(since.changes.block_bytes())
                .saturating_mul(since.changes.block_bytes())
        {
            let why = format!("the list names changes up to byte {end} of {disk}, which has {size} bytes: is it of this disk?");
            return Err(VaultError::Refused(why));
        }
        let segment_bytes = u64::from(policy.segment_bytes);
        let segments = |r: &Range<u64>| r.start / segment_bytes..r.end.div_ceil(segment_bytes);
        let mut read: Vec<Range<u64>> = since.changes.ranges().iter().map(segments).collect();
        if size != newest.size {
            let (shorter, longer) = (size.min(newest.size), size.max(newest.size));
            read.push(segments(&(shorter.saturating_sub(1)..longer)));
        }
        read.extend(parent.unusable(tables)?.into_iter().map(|r| r.start.0..r.end.0));
        let bytes =
            read.into_iter().map(|r| r.start * segment_bytes..r.end.saturating_mul(segment_bytes).min(size));
        Ok(Ok(Untouched { touched: Changes::new(bytes.collect()), segment_bytes, size, next: SegmentNo(0) }))
    }

    /// Bytes that are read.
    pub fn touched_bytes(&self) -> u64 {
        self.touched.bytes()
    }

    /// Ranges of whole segments that are read.
    pub fn touched(&self) -> &Changes {
        &self.touched
    }

    /// The source without what need not be read.
    pub fn narrow(&self, source: Box<dyn Source>) -> Box<dyn Source> {
        Box::new(Narrowed { source, touched: self.touched.clone() })
    }

    /// The next segment before number `end` that is not read.
    pub fn next_before(&mut self, end: SegmentNo) -> Option<SegmentNo> {
        let end = end.min(SegmentNo(self.size.div_ceil(self.segment_bytes)));
        while self.next < end {
            let no = self.next;
            self.next = SegmentNo(no.0 + 1);
            if self.is_taken_over(no) {
                return Some(no);
            }
        }
        None
    }

    /// Whether a segment is not read.
    pub fn is_taken_over(&self, no: SegmentNo) -> bool {
        let start = no.0 * self.segment_bytes;
        start < self.size && !self.touched.touch(start..start + self.segment_bytes)
    }

    /// Bytes of a segment.
    pub fn segment_len(&self, no: SegmentNo) -> u64 {
        self.segment_bytes.min(self.size - no.0 * self.segment_bytes)
    }
}

/// A source of which only some ranges hold data, as far as anybody asks.
struct Narrowed {
    source: Box<dyn Source>,
    touched: Changes,
}

impl Source for Narrowed {
    fn format(&self) -> &'static str {
        self.source.format()
    }

    fn size(&self) -> Option<u64> {
        self.source.size()
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        let mut from = from;
        loop {
            let ranges = self.touched.ranges();
            let Some(range) = ranges.get(ranges.partition_point(|r| r.end <= from)).cloned() else {
                return Ok(None);
            };
            let Some(data) = self.source.next_data(from.max(range.start))? else { return Ok(None) };
            let (start, end) = (data.start.max(range.start), data.end.min(range.end));
            if start < end {
                return Ok(Some(start..end));
            }
            from = range.end.max(from + 1);
        }
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        self.source.read_at(offset, buf)
    }

    fn finish(&mut self) -> image::Result<()> {
        self.source.finish()
    }
}
