//! Writes a damaged container again, with the chunks that were found elsewhere.

use super::damaged_container::DamagedContainer;
use super::group_salvage::GroupSalvage;
use super::wanted::ChunkSearch;
use crate::base::error::Result;
use crate::base::policy::{CodecChoice, BALANCED, POPULAR_GROUP_BYTES};
use crate::container::codec::Packer;
use crate::container::writer::ContainerWriter;
use crate::manifest::session::Session;
use format::{Codec, ContainerEntry, DataName, TableIndex};
use store::Reserve;

/// Codec of groups that are packed anew. What was stored raw by choice stays raw.
const CODEC: CodecChoice = CodecChoice::Zstd(3);

/// What a repair did with chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Chunks of groups that were damaged, but which are whole themselves.
    pub salvaged: u64,
    /// Lost chunks that were found elsewhere.
    pub found: u64,
}

impl ChunkCounts {
    pub(super) fn add(&mut self, other: ChunkCounts) {
        self.salvaged += other.salvaged;
        self.found += other.found;
    }
}

/// What is left of a damaged container, in chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remains {
    /// Those that are whole.
    pub whole: u64,
    /// Those of them whose group is damaged, so that nobody else can read them.
    pub salvaged: u64,
}

/// Finds out what is left of a container. What is lost is `wanted`.
pub(super) fn look(
    session: &Session,
    container: &DamagedContainer,
    wanted: &mut ChunkSearch,
) -> Result<Remains> {
    let (mut groups, mut remains) = (GroupSalvage::new(), Remains::default());
    let table = &container.table;
    for group in &table.groups {
        groups.read(&session.folder, table, group)?;
        let mut is_any_lost = false;
        let mut whole = 0;
        for n in group.indices() {
            let is_whole = groups.is_whole(group, n);
            if !container.is_kept(&session.folder, n, is_whole)? {
                continue;
            }
            if is_whole {
                whole += 1;
                continue;
            }
            is_any_lost = true;
            if !wanted.is_full() {
                wanted.want(table.fingerprint(n), table.length(n));
            }
        }
        let is_packed = group.codec != Codec::Raw;
        remains.whole += whole;
        remains.salvaged += if is_packed && (is_any_lost || !groups.matches_checksum()) { whole } else { 0 };
    }
    Ok(remains)
}

/// Writes a container again. Returns its new entry, which nothing names yet, and what became of its chunks; `None` where
/// it has no chunk that is to be kept.
pub(super) fn rewrite(
    session: &Session,
    container: &DamagedContainer,
    wanted: &ChunkSearch,
) -> Result<Option<(ContainerEntry, ChunkCounts)>> {
    let folder = &session.folder;
    let table = &container.table;
    let data = DataName { container: container.entry.id, generation: session.writer };
    let writer = ContainerWriter::create_as(&folder.with_reserve(Reserve::None), session, data)?;
    let is_raw = !table.groups.is_empty() && table.groups.iter().all(|g| g.codec == Codec::Raw);
    let mut out = Rewrite {
        writer,
        packer: Packer::new(),
        codec: if is_raw { CodecChoice::Raw } else { CODEC },
        group_bytes: if folder.is_popular() { POPULAR_GROUP_BYTES } else { BALANCED.group_bytes as usize },
        pending: OpenChunks::default(),
        counts: ChunkCounts::default(),
        chunks: 0,
    };
    let mut groups = GroupSalvage::new();
    for group in &table.groups {
        groups.read(folder, table, group)?;
        let mut kept: Vec<TableIndex> = Vec::new();
        for n in group.indices() {
            if container.is_kept(folder, n, groups.is_whole(group, n))? {
                kept.push(n);
            }
        }
        let is_whole = kept.iter().all(|n| groups.is_whole(group, *n));
        let is_intact = groups.matches_checksum() && is_whole && kept.len() == group.count as usize;
        if is_intact {
            out.copy(container, group, groups.stored())?;
            continue;
        }
        for n in kept {
            let fingerprint = table.fingerprint(n);
            let number = table.number_at(n).map_or(0, |n| n.0);
            let chunk = Chunk { number, fingerprint, bytes: groups.chunk(table, group, n) };
            match (groups.is_whole(group, n), wanted.get(fingerprint)) {
                (true, _) => out.add(chunk, State::Salvaged)?,
                (false, Some(bytes)) => out.add(Chunk { bytes, ..chunk }, State::Found)?,
                (false, None) => out.add(chunk, State::Lost)?,
            }
        }
    }
    out.flush()?;
    if out.chunks == 0 {
        return Ok(None);
    }
    let counts = out.counts;
    let new = out.writer.finish(session)?.0;
    let level = if container.entry.is_rebuilt() { ContainerEntry::REBUILT } else { new.level };
    Ok(Some((ContainerEntry { level, ..new }, counts)))
}

/// What is known of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Salvaged,
    Found,
    Lost,
}

struct Chunk<'a> {
    number: u32,
    fingerprint: &'a [u8; 32],
    bytes: &'a [u8],
}

/// A container that is being written.
struct Rewrite {
    writer: ContainerWriter,
    packer: Packer,
    codec: CodecChoice,
    group_bytes: usize,
    pending: OpenChunks,
    counts: ChunkCounts,
    chunks: u64,
}

/// Chunks that become one group.
#[derive(Default)]
struct OpenChunks {
    numbers: Vec<(u32, u32)>,
    lengths: Vec<u32>,
    fingerprints: Vec<[u8; 32]>,
    raw: Vec<u8>,
    is_lost: bool,
}

impl Rewrite {
    /// Takes a group over as it is.
    fn copy(&mut self, container: &DamagedContainer, group: &format::Group, stored: &[u8]) -> Result<()> {
        self.flush()?;
        let (table, indices) = (&container.table, group.indices());
        let numbers: Vec<(u32, u32)> =
            indices.into_iter().filter_map(|n| table.number_at(n)).map(|n| (n.0, 1)).collect();
        self.chunks += u64::from(group.count);
        let (lengths, fingerprints) = (indices.of(&table.lengths), indices.of(&table.fingerprints));
        self.writer.append(&numbers, lengths, fingerprints, group.codec, stored)
    }

    /// Packs a chunk. Lost ones are kept apart from the others.
    fn add(&mut self, chunk: Chunk<'_>, state: State) -> Result<()> {
        match state {
            State::Salvaged => self.counts.salvaged += 1,
            State::Found => self.counts.found += 1,
            State::Lost => {}
        }
        self.chunks += 1;
        let is_lost = state == State::Lost;
        let is_full = self.pending.raw.len() + chunk.bytes.len() > self.group_bytes;
        if is_full || self.pending.is_lost != is_lost {
            self.flush()?;
        }
        let pending = &mut self.pending;
        pending.is_lost = is_lost;
        pending.numbers.push((chunk.number, 1));
        pending.lengths.push(chunk.bytes.len() as u32);
        pending.fingerprints.push(*chunk.fingerprint);
        pending.raw.extend_from_slice(chunk.bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let p = std::mem::take(&mut self.pending);
        if p.lengths.is_empty() {
            return Ok(());
        }
        // Readers compare no checksum of a raw group: each of its chunks is told to be damaged by its fingerprint.
        let codec = if p.is_lost { CodecChoice::Raw } else { self.codec };
        let mut stored = Vec::new();
        let codec = self.packer.pack(codec, false, &p.raw, &mut stored);
        self.writer.append(&p.numbers, &p.lengths, &p.fingerprints, codec, &stored)
    }
}
