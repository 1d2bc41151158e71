//! Places segments, one after the other: decides for each chunk whether it is referenced or written
//! (`docs/flows/find-a-chunk.md`).

use crate::base::error::Result;
use crate::base::policy::{Policy, Rewrite};
use crate::base::sample::Sample;
use crate::container::tables::{ChunkPlace, Tables};
use crate::container::writer::GroupJob;
use crate::lookup::champions::adopted::Adopted;
use crate::lookup::champions::ChunkSearch;
use crate::lookup::new_chunks::NewChunks;
use crate::lookup::other_disks::OtherDisks;
use crate::lookup::own_index::OwnIndex;
use crate::lookup::parent::Parent;
use crate::lookup::referrers::Referrers;
use crate::lookup::rewrite::{Known, Rewriting};
use crate::lookup::since::Untouched;
use chunk::{Fingerprint, Piece};
use format::SegmentNo;
use format::{ContainerEntry, ContainerId, OwnerNo, Reference, SegmentRecipe, Summary, WriterNo};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bytes of a segment.
pub(crate) enum SegmentData {
    /// They were read, to be fingerprinted.
    Read(Vec<u8>),
    /// They are somewhere else, and fingerprinted: only chunks that are written are read.
    Elsewhere(Arc<dyn ReadRange>),
}

/// A disk of which ranges can be read.
pub(crate) trait ReadRange: Send + Sync {
    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
}

/// A segment that has been cut and fingerprinted.
pub(crate) struct Analysed {
    /// Number among the segments that are read, from 0.
    pub seq: u64,
    /// The segment's number on the disk.
    pub no: SegmentNo,
    pub data: SegmentData,
    pub pieces: Vec<Piece>,
    /// One for each piece that is not null.
    pub fingerprints: Vec<Fingerprint>,
    pub fingerprint: Fingerprint,
    pub signature: u64,
}

impl Analysed {
    /// Lengths of the chunks, null ones left out.
    fn lengths(&self) -> impl Iterator<Item = u32> + '_ {
        self.pieces.iter().filter(|p| matches!(p, Piece::Data { .. })).map(|p| p.bytes())
    }

    /// Bytes of the chunks that were found.
    fn bytes_of(&self, found: &[Option<ChunkPlace>]) -> u64 {
        self.lengths().zip(found).filter(|(_, f)| f.is_some()).map(|(b, _)| u64::from(b)).sum()
    }

    /// The segment's bytes, as far as they belong to chunks that were not found.
    fn bytes_of_missing(&self, found: &[Option<ChunkPlace>], segment_bytes: u64) -> Result<Cow<'_, [u8]>> {
        let disk = match &self.data {
            SegmentData::Read(data) => return Ok(Cow::Borrowed(data)),
            SegmentData::Elsewhere(disk) => disk,
        };
        let mut data = vec![0; self.pieces.iter().map(|p| p.bytes() as usize).sum()];
        let mut found = found.iter();
        let (mut from, mut at) = (0, 0);
        let mut read = |range: Range<usize>| {
            if range.is_empty() {
                return Ok(());
            }
            disk.read_at(self.no.0 * segment_bytes + range.start as u64, &mut data[range])
        };
        for piece in &self.pieces {
            let end = at + piece.bytes() as usize;
            let is_missing = matches!(piece, Piece::Data { .. }) && found.next() == Some(&None);
            if !is_missing {
                read(from..at)?;
                from = end;
            }
            at = end;
        }
        read(from..at)?;
        Ok(Cow::Owned(data))
    }

    /// The search for its chunks, of these lengths.
    fn search<'a>(
        &'a self,
        tables: &'a Tables,
        lengths: &'a [u32],
        found: &'a mut [Option<ChunkPlace>],
    ) -> ChunkSearch<'a> {
        ChunkSearch { tables, fingerprints: &self.fingerprints, lengths, leave: &|_| false, found }
    }

    fn recipe(&self, references: Vec<Reference>) -> SegmentRecipe {
        SegmentRecipe { fingerprint: self.fingerprint.0, signature: self.signature, references }
    }
}

/// What a backup places segments by, where it looks for chunks, and what it takes over.
pub(crate) struct Basis<'a> {
    pub policy: Policy,
    pub tables: &'a Tables,
    /// The session's, which writes new containers.
    pub writer: WriterNo,
    pub parent: Option<Parent>,
    /// Bytes that were new in the parent, on which depends how many of its chunks are written again or copied; `None` where
    /// all of them stay where they are.
    pub parents_new_bytes: Option<u64>,
    /// Segments of the parent that are taken over unread.
    pub untouched: Option<Untouched>,
    /// What killed backups of the disk have left.
    pub adopted: Adopted,
    pub others: OtherDisks,
    /// What tells whose disk is read, where that is asked for.
    pub source: Option<SourceSample>,
}

impl Basis<'_> {
    /// Decides which chunks of the parent are moved, and which are rewritten. Also returns what else the parent
    /// references, where that was read.
    ///
    /// # Errors
    /// Where a page of the container table cannot be read that the new snapshot may need.
    fn choose_rewritten(&mut self, referrers: &mut Referrers) -> Result<(Rewriting, Option<Summary>)> {
        let (Some(parent), Some(new_bytes), Rewrite::Fragmented { read_ratio }) =
            (&mut self.parent, self.parents_new_bytes, self.policy.rewrite_at)
        else {
            self.tables.own().check()?;
            return Ok((Rewriting::default(), None));
        };
        let mut summary = parent.summary(self.tables)?;
        let copies = self.others.finds_chunks_of_all();
        let rewriting =
            Rewriting::choose(&summary, self.tables, &self.policy, read_ratio, new_bytes, copies, referrers)?;
        rewriting.take_out_of(&mut summary);
        Ok((rewriting, Some(summary)))
    }
}

/// Finds every chunk or writes it, and hands out groups of new chunks.
pub(crate) struct Placer<'a> {
    basis: Basis<'a>,
    own: OwnIndex,
    referrers: Referrers,
    rewriting: Rewriting,
    counts: PlacedBytes,
    /// How much of its time went into placing what was not found; the rest is looking up.
    pub placing: Duration,
    new_chunks: NewChunks,
}

impl<'a> Placer<'a> {
    /// Places nothing yet.
    pub fn new(mut basis: Basis<'a>) -> Result<Self> {
        let mut referrers = Referrers::new(basis.tables.own().folder());
        let (rewriting, parent) = basis.choose_rewritten(&mut referrers)?;
        Ok(Placer {
            own: OwnIndex::new(basis.policy.own_index_bytes, parent),
            referrers,
            rewriting,
            counts: PlacedBytes::default(),
            placing: Duration::ZERO,
            new_chunks: NewChunks::new(&basis.policy, basis.writer),
            basis,
        })
    }

    /// The tables that it looks chunks up in.
    pub fn tables(&self) -> &'a Tables {
        self.basis.tables
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
        let bytes: u64 = segment.lengths().map(u64::from).sum();
        self.counts.data_bytes += bytes;
        if let Some(source) = &mut self.basis.source {
            segment.fingerprints.iter().for_each(|f| source.chunks.add(&f.0));
            source.segments.add(&segment.fingerprint.0);
        }
        let clean = self.clean(segment)?;
        self.counts.has_older |= clean.is_some();
        self.counts.changed_bytes += if clean.is_none() { bytes } else { 0 };
        if let Some(clean) = clean.filter(|s| !s.references.iter().any(|r| self.rewriting.concerns(r))) {
            return Ok(Some(clean));
        }
        if let Some(references) = self.whole_segment(segment)? {
            return Ok(Some(segment.recipe(references)));
        }
        let (mut found, in_one_place) = match self.basis.policy.rewrite_at {
            Rewrite::Whole { keep_shared } => (self.kept(segment, keep_shared)?, true),
            Rewrite::Never | Rewrite::Fragmented { .. } => (self.search(segment)?, false),
        };
        self.search_adopted(segment, &mut found)?;
        self.move_away(segment, &mut found)?;
        let known = self.rewriting.forget(&mut found);
        let start = Instant::now();
        if in_one_place {
            self.new_chunks.make_room(bytes - segment.bytes_of(&found), send)?;
        }
        let references = self.write_new(segment, &found, &known, in_one_place, send)?;
        self.placing += start.elapsed();
        let recipe = segment.recipe(references);
        self.basis.others.add_segment(&recipe)?;
        Ok(Some(recipe))
    }

    /// Hands out the parent's segments before number `end` that are taken over unread.
    pub fn take_over(
        &mut self,
        end: SegmentNo,
        out: &mut dyn FnMut(SegmentNo, SegmentRecipe) -> Result<()>,
    ) -> Result<()> {
        let (Some(untouched), Some(parent)) = (&mut self.basis.untouched, &mut self.basis.parent) else {
            return Ok(());
        };
        while let Some(no) = untouched.next_before(end) {
            let Some(segment) = parent.segment_to_take_over(no)? else { continue };
            let null = |r: &Reference| if let Reference::Null { bytes } = r { u64::from(*bytes) } else { 0 };
            let null_bytes: u64 = segment.references.iter().map(null).sum();
            self.counts.data_bytes += untouched.segment_len(no).saturating_sub(null_bytes);
            self.counts.has_older = true;
            out(no, segment)?;
        }
        Ok(())
    }

    /// Searches for the whole segment, whichever disk stored it.
    fn whole_segment(&mut self, segment: &Analysed) -> Result<Option<Vec<Reference>>> {
        self.basis.others.find_segment(
            self.basis.tables,
            &segment.fingerprint,
            &segment.pieces,
            &segment.fingerprints,
        )
    }

    /// The chunks that stay where they are: none, or at least the part `keep_shared`, in containers that other disks
    /// own or reference.
    fn kept(&mut self, segment: &Analysed, keep_shared: Option<f64>) -> Result<Vec<Option<ChunkPlace>>> {
        let mut found = vec![None; segment.fingerprints.len()];
        let (Some(parent), Some(part)) = (&mut self.basis.parent, keep_shared) else { return Ok(found) };
        let referrers = &mut self.referrers;
        let mut stays = |id: ContainerId| Ok(!id.is_own() || referrers.has_any(id.writer())?);
        parent.match_segment(self.basis.tables, segment.no, &segment.fingerprints, &mut stays, &mut found)?;
        let all_bytes: u64 = segment.lengths().map(u64::from).sum();
        if (segment.bytes_of(&found) as f64) < part * all_bytes as f64 {
            found.fill(None);
        }
        Ok(found)
    }

    /// Ends the open container.
    pub fn close(&mut self, send: &mut impl FnMut(GroupJob) -> Result<()>) -> Result<()> {
        self.new_chunks.close(send)
    }

    /// What is left when all segments are placed.
    pub fn finish(self) -> Placed {
        let rewritten_bytes = self.rewriting.written_bytes();
        Placed {
            others: self.basis.others,
            adopted: self.basis.adopted.into_used(),
            counts: PlacedBytes { rewritten_bytes, ..self.counts },
            source: self.basis.source,
        }
    }

    /// Returns the parent's segment at the same offset, if it is equal.
    fn clean(&mut self, segment: &Analysed) -> Result<Option<SegmentRecipe>> {
        let Some(parent) = &mut self.basis.parent else { return Ok(None) };
        let old = parent.segment(segment.no)?.filter(|o| o.fingerprint == segment.fingerprint.0);
        match old {
            Some(old) if parent.is_usable(self.basis.tables, &old)? => Ok(Some(old)),
            _ => Ok(None),
        }
    }

    /// Searches for each chunk in the parent, in the disk's own index, and among the chunks of other disks.
    fn search(&mut self, segment: &Analysed) -> Result<Vec<Option<ChunkPlace>>> {
        let mut found: Vec<Option<ChunkPlace>> = vec![None; segment.fingerprints.len()];
        let mut missing = found.len();
        if let Some(parent) = &mut self.basis.parent {
            let (tables, fingerprints) = (self.basis.tables, &segment.fingerprints);
            let mut any = |_| Ok(true);
            if self.basis.policy.same_offset {
                missing = parent.match_segment(tables, segment.no, fingerprints, &mut any, &mut found)?;
            }
            if missing > 0 && self.basis.policy.similar_segments > 0 {
                let similar =
                    parent.similar(segment.signature, segment.no, self.basis.policy.similar_segments)?;
                for no in similar {
                    if missing > 0 {
                        missing = parent.match_segment(tables, no, fingerprints, &mut any, &mut found)?;
                    }
                }
            }
            if missing > 0 && self.basis.policy.own_index_parent {
                self.own.add_parent(tables, || parent.summary(tables))?;
            }
        }
        self.counts.has_older |= found.iter().any(Option::is_some);
        if missing == 0 {
            return Ok(found);
        }
        for ((f, slot), bytes) in segment.fingerprints.iter().zip(&mut found).zip(segment.lengths()) {
            if slot.is_none() {
                *slot = self.own.find(self.basis.tables, f, bytes)?;
                self.counts.has_older |=
                    slot.is_some_and(|(id, _)| id.is_own() && id.writer() != self.basis.writer);
            }
        }
        let lengths: Vec<u32> = segment.lengths().collect();
        let known: Vec<bool> = found.iter().map(Option::is_some).collect();
        self.basis.others.find_chunks(&mut segment.search(self.basis.tables, &lengths, &mut found))?;
        if let Some(source) = &mut self.basis.source {
            let of_others = known.iter().zip(&found).zip(&lengths).filter(|((known, _), _)| !**known);
            for ((_, place), bytes) in of_others {
                let owner = place.map(|(id, _)| id.owner()).filter(|owner| *owner != OwnerNo::OWN);
                owner.into_iter().for_each(|o| *source.of_others.entry(o).or_default() += u64::from(*bytes));
            }
        }
        Ok(found)
    }

    /// Searches for a better place of chunks that are to be moved.
    fn move_away(&mut self, segment: &Analysed, found: &mut [Option<ChunkPlace>]) -> Result<()> {
        let rewriting = &self.rewriting;
        let mut elsewhere = found.to_vec();
        let is_left = |slot: &mut Option<ChunkPlace>| slot.take_if(|at| rewriting.is_left(*at)).is_some();
        if elsewhere.iter_mut().map(is_left).filter(|left| *left).count() == 0 {
            return Ok(());
        }
        let lengths: Vec<u32> = segment.lengths().collect();
        let leave = |at| rewriting.is_left(at);
        let search = segment.search(self.basis.tables, &lengths, &mut elsewhere);
        self.basis.others.find_elsewhere(&mut ChunkSearch { leave: &leave, ..search })?;
        for (slot, other) in found.iter_mut().zip(elsewhere) {
            *slot = other.or(*slot);
        }
        Ok(())
    }

    /// Searches among what killed backups have left. What is found counts as if this backup had written it.
    fn search_adopted(&mut self, segment: &Analysed, found: &mut [Option<ChunkPlace>]) -> Result<()> {
        let lengths: Vec<u32> = segment.lengths().collect();
        let filled = self.basis.adopted.fill(&mut segment.search(self.basis.tables, &lengths, found))?;
        for n in filled {
            if let Some((id, chunk)) = found[n] {
                let f = &segment.fingerprints[n];
                self.counts.new_bytes += u64::from(lengths[n]);
                self.own.add_adopted(id, chunk, f);
                self.basis.others.add_chunk(f, id)?;
            }
        }
        Ok(())
    }

    /// Puts what is new, and what is written although it is `known`, into groups, and writes down where everything is.
    fn write_new(
        &mut self,
        segment: &Analysed,
        found: &[Option<ChunkPlace>],
        known: &[Option<Known>],
        in_one_place: bool,
        send: &mut impl FnMut(GroupJob) -> Result<()>,
    ) -> Result<Vec<Reference>> {
        let mut references: Vec<Reference> = Vec::new();
        let (mut offset, mut ordinal) = (0usize, 0usize);
        let all = segment.bytes_of_missing(found, u64::from(self.basis.policy.segment_bytes))?;
        for piece in &segment.pieces {
            let bytes = piece.bytes();
            let data = &all[offset..offset + bytes as usize];
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
            if at.is_none() && !in_one_place {
                // The same chunk may have come earlier in this very segment.
                at = self.own.find(self.basis.tables, f, bytes)?;
            }
            let (container, chunk) = match at {
                Some(at) => at,
                None => {
                    debug_assert!(Fingerprint::of(data) == *f, "what is written was not read");
                    if let Some(known) = known[ordinal] {
                        self.rewriting.count(known, bytes);
                    }
                    let at = self.new_chunks.append(f, data, send)?;
                    self.counts.new_bytes += u64::from(bytes);
                    self.own.add_new(at.0, at.1, f, bytes);
                    self.basis.others.add_chunk(f, at.0)?;
                    at
                }
            };
            ordinal += 1;
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
}

/// What is known when all segments are placed.
pub(crate) struct Placed {
    /// The index, which keeps its claims.
    pub others: OtherDisks,
    /// Containers of killed backups that are referenced.
    pub adopted: Vec<ContainerEntry>,
    pub counts: PlacedBytes,
    pub source: Option<SourceSample>,
}

/// What tells whose disk was read.
#[derive(Default)]
pub(crate) struct SourceSample {
    pub chunks: Sample,
    /// Of the segments, by their fingerprints.
    pub segments: Sample,
    /// Bytes that the parent does not have and other disks have, by their owner.
    pub of_others: HashMap<OwnerNo, u64>,
}

/// Bytes by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacedBytes {
    /// Written again although they were known.
    pub rewritten_bytes: u64,
    pub data_bytes: u64,
    pub changed_bytes: u64,
    pub new_bytes: u64,
    /// Whether anything of the parent was found.
    pub has_older: bool,
}
