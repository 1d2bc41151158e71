//! A container's chunk table: chunk number -> group, offset in it, length, fingerprint.

use super::data::{DataName, DATA_HEADER_BYTES};
use super::page::ContainerEntry;
use super::table_range::TableRange;
use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{ChunkNo, ContainerId, GroupNo, TableIndex, WriterNo};
use crate::runs::RunSet;

/// No chunk is longer.
const CHUNK_BYTES_MAX: u32 = 16 << 20;
/// Longest group in bytes, as it is and as it is stored. Those of RevDedup have 4 to 32 MiB, and are not compressed.
const RAW_GROUP_BYTES_MAX: u32 = 32 << 20;
/// The same of a group that is compressed: a few bytes may announce it.
const PACKED_GROUP_BYTES_MAX: u32 = 16 << 20;

/// How a group's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    Raw,
    /// One zstd frame.
    Zstd,
    /// One lz4 block.
    Lz4,
}

/// Consecutive chunks of the table, compressed as one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its first chunk.
    pub first: TableIndex,
    /// How many chunks.
    pub count: u32,
    /// Where it stands in the data object.
    pub offset: u64,
    /// How many bytes it takes there.
    pub stored_len: u32,
    /// How many bytes its chunks have.
    pub raw_len: u32,
    /// How they are compressed.
    pub codec: Codec,
    /// How they are encrypted: 0, not at all.
    pub cipher: u8,
    /// With which of the vault's keys; 0 without a cipher.
    pub key: u16,
    /// See [`crate::group_checksum`].
    pub checksum: u64,
}

impl Group {
    /// Its chunks.
    pub fn indices(&self) -> TableRange {
        self.first.range(self.count)
    }
}

/// The chunks of one container. Immutable once made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The container.
    pub container: ContainerId,
    /// The object that holds its groups.
    pub data: DataName,
    /// The numbers of its chunks; index n of the table is the n-th number in order.
    pub numbers: RunSet,
    /// Its groups, tiling the table in order.
    pub groups: Vec<Group>,
    /// Length of every chunk, in bytes.
    pub lengths: Vec<u32>,
    /// Fingerprint of every chunk. Empty in the directory that a data object carries.
    pub fingerprints: Vec<[u8; 32]>,
}

impl Table {
    /// The entry of its container in the container table, where no chunk is known to be dead.
    pub fn entry(&self, generation: WriterNo) -> ContainerEntry {
        let end = self.groups.last().map_or(0, |g| g.offset + u64::from(g.stored_len));
        ContainerEntry {
            id: self.container,
            table: generation,
            data: self.data,
            dead: None,
            chunks: self.lengths.len() as u32,
            dead_chunks: 0,
            stored_bytes: end.saturating_sub(DATA_HEADER_BYTES as u64),
            level: 0,
        }
    }

    /// Most chunks of a container: those of 128 bytes in one of 64 MiB.
    pub const CHUNKS_MAX: u64 = 1 << 19;

    /// Index of a chunk in the table.
    pub fn index_of(&self, chunk: ChunkNo) -> Option<TableIndex> {
        self.numbers.index_of(chunk)
    }

    /// The number of the chunk at an index.
    pub fn number_at(&self, index: TableIndex) -> Option<ChunkNo> {
        self.numbers.number_at(index)
    }

    /// The length of the chunk at an index, in bytes.
    pub fn length(&self, index: TableIndex) -> u32 {
        self.lengths[index.0 as usize]
    }

    /// The length of several chunks, in bytes.
    pub fn bytes_of(&self, indices: TableRange) -> u64 {
        indices.of(&self.lengths).iter().map(|l| u64::from(*l)).sum()
    }

    /// The fingerprint of the chunk at an index.
    pub fn fingerprint(&self, index: TableIndex) -> &[u8; 32] {
        &self.fingerprints[index.0 as usize]
    }

    /// The number of the group that holds the chunk at an index.
    pub fn group_of(&self, index: TableIndex) -> Option<GroupNo> {
        let behind = self.groups.partition_point(|g| g.first <= index);
        behind.checked_sub(1).map(|n| GroupNo(n as u32))
    }

    /// The group of a number that the table has.
    pub fn group(&self, no: GroupNo) -> &Group {
        &self.groups[no.0 as usize]
    }

    /// Bytes it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.fingerprints.len() * 32
            + self.lengths.len() * 4
            + self.groups.len() * size_of::<Group>()
            + self.numbers.runs().len() * 12
            + 128
    }

    /// As a frame of kind `Table`, with fingerprints.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        encode_frame(Kind::Table, context, &self.body(true))
    }

    /// As a frame of kind `Directory`, without fingerprints.
    pub fn encode_directory(&self, context: Context<'_>) -> Vec<u8> {
        encode_frame(Kind::Directory, context, &self.body(false))
    }

    fn body(&self, with_fingerprints: bool) -> Vec<u8> {
        let mut o = Out(Vec::with_capacity(self.fingerprints.len() * 33 + self.groups.len() * 32 + 64));
        o.u64(self.container.raw());
        o.u64(self.data.container.raw());
        o.u32(self.data.generation.0);
        self.numbers.encode(&mut o);
        let uniform = self.lengths.first().copied().filter(|f| self.lengths.iter().all(|l| l == f));
        o.varint(u64::from(uniform.unwrap_or(0)));
        if uniform.is_none() {
            self.lengths.iter().for_each(|l| o.varint(u64::from(*l)));
        }
        o.varint(self.groups.len() as u64);
        let mut end = 0;
        for g in &self.groups {
            o.varint(u64::from(g.count));
            o.signed(g.offset.wrapping_sub(end) as i64);
            o.varint(u64::from(g.stored_len));
            o.u8(match g.codec {
                Codec::Raw => 0,
                Codec::Zstd => 1,
                Codec::Lz4 => 2,
            });
            o.u8(g.cipher);
            o.u16(g.key);
            o.u64(g.checksum);
            end = g.offset + u64::from(g.stored_len);
        }
        if with_fingerprints {
            self.fingerprints.iter().for_each(|f| o.bytes(f));
        }
        o.0
    }

    /// From a frame of kind `Table`.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        Self::from_body(Kind::Table, &decode_frame(Kind::Table, context, bytes)?)
    }

    /// From a frame of kind `Directory`.
    pub fn decode_directory(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        Self::from_body(Kind::Directory, &decode_frame(Kind::Directory, context, bytes)?)
    }

    fn from_body(kind: Kind, body: &[u8]) -> Result<Self> {
        let with_fingerprints = kind == Kind::Table;
        let mut i = In::within(body, kind.memory_max());
        let container = ContainerId::from_raw(i.u64()?)?;
        let data = DataName { container: ContainerId::from_raw(i.u64()?)?, generation: WriterNo(i.u32()?) };
        let numbers = RunSet::decode(&mut i)?;
        // Without fingerprints nothing in the bytes grows with the chunks of a uniform table.
        let room = if with_fingerprints { i.remaining() as u64 / 32 } else { Self::CHUNKS_MAX };
        let most = room.min(Self::CHUNKS_MAX);
        let chunks = numbers.len();
        if chunks > most {
            return Err(Malformed::new(format!("{chunks} chunks announced, room for {most}")));
        }
        i.charge(chunks as usize, size_of::<u32>() + if with_fingerprints { 32 } else { 0 })?;
        let uniform = i.varint32()?;
        let mut lengths = Vec::with_capacity(chunks as usize);
        for _ in 0..chunks {
            let l = if uniform > 0 { uniform } else { i.varint32()? };
            if l == 0 || l > CHUNK_BYTES_MAX {
                return Err(Malformed::new(format!("a chunk of {l} bytes")));
            }
            lengths.push(l);
        }
        let (n, mut groups) = i.list(15)?;
        let (mut first, mut end) = (0u32, 0u64);
        for _ in 0..n {
            let count = i.varint32()?;
            let offset = end.wrapping_add(i.signed()? as u64);
            let stored_len = i.varint32()?;
            let codec = match i.u8()? {
                0 => Codec::Raw,
                1 => Codec::Zstd,
                2 => Codec::Lz4,
                c => return Err(Malformed::new(format!("unknown codec {c}"))),
            };
            let (cipher, key, checksum) = (i.u8()?, i.u16()?, i.u64()?);
            let last = first.checked_add(count).filter(|l| count > 0 && *l as usize <= lengths.len());
            let raw: Option<u64> =
                last.map(|l| lengths[first as usize..l as usize].iter().map(|&x| u64::from(x)).sum());
            let (Some(last), Some(raw_len)) = (last, raw.and_then(|r| u32::try_from(r).ok())) else {
                return Err(Malformed::new("groups that do not fit the chunks"));
            };
            let most = if codec == Codec::Raw { RAW_GROUP_BYTES_MAX } else { PACKED_GROUP_BYTES_MAX };
            if raw_len.max(stored_len) > most {
                let why =
                    format!("a group of {raw_len} bytes, {stored_len} stored, at most {most} are plausible");
                return Err(Malformed::new(why));
            }
            end = match offset.checked_add(u64::from(stored_len)) {
                Some(e) if e < 1 << 48 => e,
                _ => return Err(Malformed::new(format!("a group at offset {offset}"))),
            };
            let group = Group {
                first: TableIndex(first),
                count,
                offset,
                stored_len,
                raw_len,
                codec,
                cipher,
                key,
                checksum,
            };
            groups.push(group);
            first = last;
        }
        if first as usize != lengths.len() {
            return Err(Malformed::new("chunks without a group"));
        }
        let mut fingerprints = Vec::new();
        if with_fingerprints {
            fingerprints.reserve_exact(lengths.len());
            for _ in 0..lengths.len() {
                fingerprints.push(i.array()?);
            }
        }
        i.end()?;
        Ok(Table { container, data, numbers, groups, lengths, fingerprints })
    }
}
