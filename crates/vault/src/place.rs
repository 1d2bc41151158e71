//! Placing segments: decisions 1 to 5 of the write path, one segment after the other.

use crate::backup::Counts;
use crate::container_writer::GroupJob;
use crate::error::Result;
use crate::global_index::GlobalIndex;
use crate::own_index::OwnIndex;
use crate::parent::Parent;
use crate::policy::{Policy, Rewrite};
use crate::scatter::worst;
use crate::segment_index::SegmentIndex;
use crate::tables::Tables;
use chunk::{Fingerprint, Piece};
use format::{ChunkNo, ContainerId, Owner, Reference, SegmentRecipe, WriterNo};
use std::collections::HashSet;

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

impl Analysed {
    fn recipe(&self, references: Vec<Reference>) -> SegmentRecipe {
        SegmentRecipe { fingerprint: self.fingerprint.0, signature: self.signature, references }
    }
}

type Found = Option<(ContainerId, ChunkNo)>;

/// Decides for every chunk where it is found, and hands out groups of new ones.
pub(crate) struct Placer<'a> {
    pub policy: Policy,
    pub tables: &'a Tables,
    pub parent: Option<Parent>,
    pub own: OwnIndex,
    pub global: Option<GlobalIndex>,
    pub segments: Option<SegmentIndex>,
    /// Segments that are written whole, whatever is known of them.
    scattered: HashSet<u64>,
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
        owner: Owner,
        writer: WriterNo,
    ) -> Self {
        Placer {
            policy,
            tables,
            parent,
            own: OwnIndex::new(policy.own_index_bytes, writer),
            global: None,
            segments: None,
            scattered: HashSet::new(),
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
        let clean = self.clean(segment)?;
        let scattered = self.scattered.contains(&segment.no);
        self.counts.changed_bytes += if clean.is_none() { bytes } else { 0 };
        if let Some(clean) = clean.filter(|_| !scattered) {
            return Ok(Some(clean));
        }
        if let Some(references) = self.whole_segment(segment)? {
            return Ok(Some(segment.recipe(references)));
        }
        let whole = scattered || self.policy.rewrite_at == Rewrite::Always;
        let mut found: Vec<Found> = vec![None; segment.fingerprints.len()];
        if self.policy.rewrite_at != Rewrite::Always {
            found = self.search(segment)?;
        }
        if scattered {
            let lengths = segment.pieces.iter().map(|p| data_bytes(*p)).filter(|b| *b > 0);
            self.counts.rewritten_bytes +=
                lengths.zip(&found).filter(|(_, f)| f.is_some()).map(|(b, _)| b).sum::<u64>();
            found.fill(None);
        }
        if whole {
            self.make_room(bytes, send)?;
        }
        let references = self.write_new(segment, &found, whole, send)?;
        let recipe = segment.recipe(references);
        if let Some(index) = &mut self.segments {
            index.add(&recipe);
        }
        Ok(Some(recipe))
    }

    /// Decides which of the parent's segments are written whole, within `budget` bytes.
    pub fn choose_scattered(&mut self, budget: u64) -> Result<()> {
        if let Some(parent) = &mut self.parent {
            self.scattered = worst(parent, &self.policy, budget)?;
        }
        Ok(())
    }

    /// Decision 2: any disk has put the whole segment into the shared set.
    fn whole_segment(&mut self, segment: &Analysed) -> Result<Option<Vec<Reference>>> {
        let Some(index) = &mut self.segments else { return Ok(None) };
        index.find(self.tables, &segment.fingerprint, &segment.pieces, &segment.fingerprints)
    }

    /// Ends the open container where a segment of so many bytes would be torn by its end.
    fn make_room(&mut self, bytes: u64, send: &mut impl FnMut(GroupJob) -> Result<()>) -> Result<()> {
        let limit = u64::from(self.policy.container_bytes);
        if self.open.as_ref().is_some_and(|o| o.raw_bytes + bytes > limit) {
            self.close(send)?;
        }
        Ok(())
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

    /// Puts what is new into groups and writes down where everything is.
    fn write_new(
        &mut self,
        segment: &Analysed,
        found: &[Found],
        whole: bool,
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
            if at.is_none() && !whole {
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
