//! Placing segments: decisions 1 to 5 of the write path, one segment after the other.

use crate::backup::Counts;
use crate::container_writer::GroupJob;
use crate::error::Result;
use crate::global_index::GlobalIndex;
use crate::own_index::OwnIndex;
use crate::parent::Parent;
use crate::policy::Policy;
use crate::tables::Tables;
use chunk::{Fingerprint, Piece};
use format::{ChunkNo, ContainerId, Owner, Reference, SegmentRecipe, WriterNo};

/// A segment that has been cut and fingerprinted.
pub(crate) struct Analysed {
    /// Counts the segments that are read.
    pub seq: u64,
    /// The segment's number on the disk.
    pub no: u64,
    pub data: Vec<u8>,
    pub pieces: Vec<Piece>,
    /// One for each piece that is not null.
    pub fingerprints: Vec<Fingerprint>,
    pub fingerprint: Fingerprint,
    pub signature: u64,
}

type Found = Option<(ContainerId, ChunkNo)>;

/// Decides for every chunk where it is found, and hands out groups of new ones.
pub(crate) struct Placer<'a> {
    pub policy: Policy,
    pub tables: &'a Tables,
    pub parent: Option<Parent>,
    pub own: OwnIndex,
    pub global: Option<GlobalIndex>,
    pub counts: Counts,
    /// Owner and writer of new containers.
    owner: Owner,
    writer: WriterNo,
    containers: u32,
    open: Option<OpenContainer>,
    group: GroupJob,
    groups: u64,
}

struct OpenContainer {
    id: ContainerId,
    next: u32,
    raw_bytes: u64,
}

impl<'a> Placer<'a> {
    pub fn new(
        policy: Policy,
        tables: &'a Tables,
        parent: Option<Parent>,
        global: Option<GlobalIndex>,
        owner: Owner,
        writer: WriterNo,
    ) -> Self {
        Placer {
            policy,
            tables,
            parent,
            own: OwnIndex::new(policy.own_index_bytes, writer),
            global,
            counts: Counts::default(),
            owner,
            writer,
            containers: 0,
            open: None,
            group: empty_group(),
            groups: 0,
        }
    }

    /// Places a segment; groups that became full go to `send`. Returns its recipe, `None` for a null segment.
    pub fn place(
        &mut self,
        segment: &Analysed,
        send: &mut impl FnMut(GroupJob) -> Result<()>,
    ) -> Result<Option<SegmentRecipe>> {
        if segment.fingerprints.is_empty() {
            return Ok(None);
        }
        let bytes: u64 = segment.pieces.iter().map(|p| data_bytes(*p)).sum();
        self.counts.data_bytes += bytes;
        if let Some(clean) = self.clean(segment)? {
            return Ok(Some(clean));
        }
        self.counts.changed_bytes += bytes;
        let mut found = self.search(segment)?;
        let rewrite = self.is_scattered(segment, &found);
        if rewrite {
            found.fill(None);
        }
        let references = self.write_new(segment, &found, rewrite, send)?;
        Ok(Some(SegmentRecipe {
            fingerprint: segment.fingerprint.0,
            signature: segment.signature,
            references,
        }))
    }

    /// Decision 1: the parent's segment at the same offset is equal.
    fn clean(&mut self, segment: &Analysed) -> Result<Option<SegmentRecipe>> {
        let Some(parent) = &mut self.parent else { return Ok(None) };
        let old = parent.segment(segment.no)?;
        Ok(old.filter(|o| o.fingerprint == segment.fingerprint.0 && parent.is_usable(o)))
    }

    /// Decisions 3 and 4: where each chunk is known.
    fn search(&mut self, segment: &Analysed) -> Result<Vec<Found>> {
        let mut found: Vec<Found> = vec![None; segment.fingerprints.len()];
        let mut missing = found.len();
        if let Some(parent) = &mut self.parent {
            if self.policy.same_offset {
                missing = parent.match_segment(self.tables, segment.no, &segment.fingerprints, &mut found)?;
            }
            if missing > 0 && self.policy.similar_segments > 0 {
                let similar = parent.similar(segment.signature, segment.no, self.policy.similar_segments)?;
                for no in similar {
                    if missing > 0 {
                        missing = parent.match_segment(self.tables, no, &segment.fingerprints, &mut found)?;
                    }
                }
            }
            if missing > 0 && self.policy.own_index_parent {
                if let Some(summary) = parent.take_summary()? {
                    self.own.add_parent(self.tables, &summary)?;
                }
            }
        }
        if missing == 0 {
            return Ok(found);
        }
        let lengths = segment.pieces.iter().filter(|p| matches!(p, Piece::Data { .. })).map(|p| p.bytes());
        for ((f, slot), bytes) in segment.fingerprints.iter().zip(&mut found).zip(lengths) {
            if slot.is_none() {
                *slot = self.own.find(self.tables, f, bytes)?;
            }
            if let (None, Some(global)) = (&slot, &mut self.global) {
                *slot = global.find(self.tables, f, bytes)?;
            }
        }
        Ok(found)
    }

    /// Decision 5: whether reading the segment back would cost too much. Rewritten bytes never exceed new ones.
    fn is_scattered(&mut self, segment: &Analysed, found: &[Found]) -> bool {
        let Some(limit) = self.policy.rewrite_at else { return false };
        let mut groups: Vec<(ContainerId, u32)> = Vec::new();
        let (mut extents, mut known_bytes) = (0u32, 0u64);
        let mut previous: Found = None;
        let lengths = segment.pieces.iter().filter(|p| matches!(p, Piece::Data { .. })).map(|p| p.bytes());
        for (at, bytes) in found.iter().zip(lengths) {
            let Some((id, chunk)) = *at else { continue };
            known_bytes += u64::from(bytes);
            if !previous.is_some_and(|p| p.0 == id && p.1 .0 + 1 == chunk.0) {
                extents += 1;
            }
            previous = *at;
            groups.push((id, chunk.0 / (self.policy.group_bytes / bytes.max(1)).max(1)));
        }
        groups.sort_unstable();
        groups.dedup();
        let fetch = groups.len() as f64 * f64::from(self.policy.group_bytes);
        let scattered = extents > limit.extents || fetch > limit.fetch_ratio * known_bytes as f64;
        let within_budget = self.counts.rewritten_bytes + known_bytes <= self.counts.new_bytes;
        if known_bytes > 0 && scattered && within_budget {
            self.counts.rewritten_bytes += known_bytes;
            return true;
        }
        false
    }

    /// Puts what is new into groups and writes down where everything is.
    fn write_new(
        &mut self,
        segment: &Analysed,
        found: &[Found],
        rewrite: bool,
        send: &mut impl FnMut(GroupJob) -> Result<()>,
    ) -> Result<Vec<Reference>> {
        let mut references: Vec<Reference> = Vec::new();
        let (mut offset, mut ordinal) = (0usize, 0usize);
        for piece in &segment.pieces {
            let bytes = piece.bytes();
            let data = &segment.data[offset..offset + bytes as usize];
            offset += bytes as usize;
            if let Piece::Null { .. } = piece {
                match references.last_mut() {
                    Some(Reference::Null { bytes: b }) => *b += bytes,
                    _ => references.push(Reference::Null { bytes }),
                }
                continue;
            }
            let f = &segment.fingerprints[ordinal];
            let mut at = found[ordinal];
            if at.is_none() && !rewrite {
                // The same chunk may have come earlier in this very segment.
                at = self.own.find(self.tables, f, bytes)?;
            }
            ordinal += 1;
            let (container, chunk) = match at {
                Some(at) => at,
                None => self.append(f, data, send)?,
            };
            match references.last_mut() {
                Some(Reference::Direct { container: c, first, count })
                    if *c == container && first.0 + *count == chunk.0 =>
                {
                    *count += 1;
                }
                _ => references.push(Reference::Direct { container, first: chunk, count: 1 }),
            }
        }
        Ok(references)
    }

    fn append(
        &mut self,
        f: &Fingerprint,
        data: &[u8],
        send: &mut impl FnMut(GroupJob) -> Result<()>,
    ) -> Result<(ContainerId, ChunkNo)> {
        let full =
            |o: &OpenContainer| o.raw_bytes + data.len() as u64 > u64::from(self.policy.container_bytes);
        if self.open.as_ref().is_some_and(full) {
            self.close(send)?;
        }
        if self.group.raw.len() + data.len() > self.policy.group_bytes as usize && !self.group.raw.is_empty()
        {
            self.send_group(false, send)?;
        }
        if self.open.is_none() {
            let id = ContainerId::new(self.owner, self.writer, self.containers);
            self.containers += 1;
            self.open = Some(OpenContainer { id, next: 0, raw_bytes: 0 });
        }
        let Some(open) = &mut self.open else { unreachable!("opened above") };
        let chunk = ChunkNo(open.next);
        if self.group.raw.is_empty() {
            self.group.container = open.id;
            self.group.first = open.next;
        }
        open.next += 1;
        open.raw_bytes += data.len() as u64;
        self.group.lengths.push(data.len() as u32);
        self.group.fingerprints.push(*f);
        self.group.raw.extend_from_slice(data);
        self.counts.new_bytes += data.len() as u64;
        self.own.add_new(open.id, chunk, f, data.len() as u32);
        Ok((open.id, chunk))
    }

    fn send_group(&mut self, last: bool, send: &mut impl FnMut(GroupJob) -> Result<()>) -> Result<()> {
        let mut job = std::mem::replace(&mut self.group, empty_group());
        self.group.raw.reserve(self.policy.group_bytes as usize);
        if let Some(open) = &self.open {
            job.container = open.id;
        }
        job.seq = self.groups;
        job.last = last;
        self.groups += 1;
        send(job)
    }

    /// Ends the open container.
    pub fn close(&mut self, send: &mut impl FnMut(GroupJob) -> Result<()>) -> Result<()> {
        if self.open.is_some() {
            self.send_group(true, send)?;
            self.open = None;
        }
        Ok(())
    }
}

fn data_bytes(p: Piece) -> u64 {
    match p {
        Piece::Null { .. } => 0,
        Piece::Data { bytes } => u64::from(bytes),
    }
}

fn empty_group() -> GroupJob {
    GroupJob {
        seq: 0,
        container: ContainerId::new(Owner::Disk, WriterNo(0), 0),
        first: 0,
        lengths: Vec::new(),
        fingerprints: Vec::new(),
        raw: Vec::new(),
        last: false,
    }
}
