//! Pages of older snapshots: immutable, so that a commit does not write all entries again.

use super::snapshot::{Indexed, Reverse, SnapshotEntry};
use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::WriterNo;

/// Most snapshots in one page.
pub const SNAPSHOTS_PER_PAGE: usize = 16_384;

/// Where a manifest finds a page of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotPageRef {
    /// The writer that wrote it.
    pub writer: WriterNo,
    /// Its number in that session.
    pub number: u32,
    /// How many snapshots it has.
    pub entries: u32,
    /// Memory that they take, in bytes: a manifest counts it as its own.
    pub bytes: u32,
    /// The latest time of any of them when the page was put.
    pub latest: i64,
    /// The latest writer of a recipe that any of them depended on when the page was put.
    pub depends_to: WriterNo,
    /// Whether any of them waited for a reverse pass then.
    pub has_pending: bool,
    /// Whether the recipe of any of them was not in the reference index then.
    pub has_unindexed: bool,
}

impl SnapshotPageRef {
    /// The shortest encoding: seven fields of one byte.
    pub(super) const BYTES_MIN: usize = 7;

    /// What a manifest says of a page.
    pub fn of(page: &SnapshotPage, writer: WriterNo, number: u32) -> Self {
        let depends = page.entries.iter().flat_map(|s| &s.depends);
        SnapshotPageRef {
            writer,
            number,
            entries: page.entries.len() as u32,
            bytes: page.memory_bytes() as u32,
            latest: page.entries.iter().map(|s| s.time).max().unwrap_or(i64::MIN),
            depends_to: depends.map(|r| r.generation).max().unwrap_or(WriterNo::BEFORE_ALL),
            has_pending: page.entries.iter().any(|s| s.reverse == Reverse::Pending),
            has_unindexed: page.entries.iter().any(|s| s.indexed != Indexed::Yes),
        }
    }

    /// Memory that it takes with its page, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<SnapshotPageRef>() + self.bytes as usize
    }

    pub(super) fn encode(&self, o: &mut Out) {
        for n in [self.writer.0, self.number, self.entries, self.bytes] {
            o.varint(u64::from(n));
        }
        o.signed(self.latest);
        o.varint(u64::from(self.depends_to.0));
        o.u8(u8::from(self.has_pending) | u8::from(self.has_unindexed) << 1);
    }

    pub(super) fn decode(i: &mut In<'_>) -> Result<Self> {
        let mut at = SnapshotPageRef {
            writer: WriterNo(i.varint32()?),
            number: i.varint32()?,
            entries: i.varint32()?,
            bytes: i.varint32()?,
            latest: i.signed()?,
            depends_to: WriterNo(i.varint32()?),
            has_pending: false,
            has_unindexed: false,
        };
        let flags = i.u8()?;
        if flags > 3 {
            return Err(Malformed::new(format!("a page of snapshots with unknown flags {flags:#x}")));
        }
        (at.has_pending, at.has_unindexed) = (flags & 1 != 0, flags & 2 != 0);
        check_count(at.entries as usize)?;
        Ok(at)
    }
}

/// Whether a page may have so many snapshots.
fn check_count(n: usize) -> Result<()> {
    if n == 0 || n > SNAPSHOTS_PER_PAGE {
        return Err(Malformed::new(format!(
            "a page of {n} snapshots, which has at least one and at most {SNAPSHOTS_PER_PAGE}"
        )));
    }
    Ok(())
}

/// Older snapshots, in the order of their commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPage {
    /// The snapshots as they were when the page was put.
    pub entries: Vec<SnapshotEntry>,
}

impl SnapshotPage {
    /// Memory that its snapshots take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.iter().map(SnapshotEntry::memory_bytes).sum()
    }

    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.varint(self.entries.len() as u64);
        self.entries.iter().for_each(|s| s.encode(&mut o));
        encode_frame(Kind::SnapshotPage, context, &o.0)
    }

    /// From the frame of the page that a manifest names: one that is longer takes no memory.
    pub fn decode_as(at: &SnapshotPageRef, context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body_len = bytes.get(12..16).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        if body_len > at.bytes {
            return Err(Malformed::new(format!("{body_len} bytes, more than the manifest's {}", at.bytes)));
        }
        let page = Self::decode(context, bytes)?;
        let found = SnapshotPageRef::of(&page, at.writer, at.number);
        if found != *at {
            let said = |r: &SnapshotPageRef| {
                format!(
                    "{} snapshots of {} bytes up to time {} and writer {}, pending: {}, not indexed: {}",
                    r.entries, r.bytes, r.latest, r.depends_to.0, r.has_pending, r.has_unindexed
                )
            };
            return Err(Malformed::new(format!("has {}, and the manifest says {}", said(&found), said(at))));
        }
        Ok(page)
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::SnapshotPage, context, bytes)?;
        let mut i = In::within(&body, Kind::SnapshotPage.memory_max());
        let (n, mut entries) = i.list(SnapshotEntry::BYTES_MIN)?;
        check_count(n)?;
        for _ in 0..n {
            entries.push(SnapshotEntry::decode(&mut i)?);
        }
        i.end()?;
        Ok(SnapshotPage { entries })
    }
}
