//! Pages of the container table: immutable; a commit writes only those it changes.

use super::data::DataName;
use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{ContainerId, WriterNo};

/// Most entries in one page.
pub const CONTAINERS_PER_PAGE: usize = 256;

/// One container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerEntry {
    /// The container.
    pub id: ContainerId,
    /// Generation of its table. That of a foreign container stands in its owner's page.
    pub table: WriterNo,
    /// The object that holds its chunks.
    pub data: DataName,
    /// Generation of its list of dead chunks, where it has one.
    pub dead: Option<WriterNo>,
    /// Chunks in its table.
    pub chunks: u32,
    /// How many of them are dead.
    pub dead_chunks: u32,
    /// Length of its chunk groups as stored, in bytes.
    pub stored_bytes: u64,
    /// The level of zstd at which all of its groups were packed; 0 where it is not known, or they were packed at none;
    /// [`REBUILT`](Self::REBUILT).
    pub level: u8,
}

/// Bytes of an encoded entry.
const ENTRY_BYTES: usize = 45;

/// Stands where a generation would, of what is not there. No session has this number.
const NO_WRITER: u32 = 0;

impl ContainerEntry {
    /// The level of a container whose entry a repair has made anew: chunks that its list does not have may be dead, and their
    /// space be freed, until a sweep has looked. No snapshot may come to reference them.
    pub const REBUILT: u8 = u8::MAX;

    /// Whether more chunks may be dead than are listed.
    pub fn is_rebuilt(&self) -> bool {
        self.level == Self::REBUILT
    }

    /// What a disk's own table says of a container of another owner: that the disk may reference it.
    pub fn foreign(id: ContainerId) -> ContainerEntry {
        let generation = WriterNo(NO_WRITER);
        let data = DataName { container: id, generation };
        ContainerEntry {
            id,
            table: generation,
            data,
            dead: None,
            chunks: 0,
            dead_chunks: 0,
            stored_bytes: 0,
            level: 0,
        }
    }

    /// Whether it belongs to another owner.
    pub fn is_foreign(&self) -> bool {
        self.table.0 == NO_WRITER
    }
}

/// Entries in order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerPage {
    /// The entries.
    pub entries: Vec<ContainerEntry>,
}

impl ContainerPage {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.varint(self.entries.len() as u64);
        for e in &self.entries {
            o.u64(e.id.raw());
            o.u32(e.table.0);
            o.u64(e.data.container.raw());
            o.u32(e.data.generation.0);
            o.u32(e.dead.map_or(NO_WRITER, |w| w.0));
            o.u32(e.chunks);
            o.u32(e.dead_chunks);
            o.u64(e.stored_bytes);
            o.u8(e.level);
        }
        encode_frame(Kind::ContainerPage, context, &o.0)
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::ContainerPage, context, bytes)?;
        let mut i = In::within(&body, Kind::ContainerPage.memory_max());
        let (n, mut entries) = i.list::<ContainerEntry>(ENTRY_BYTES)?;
        if n > CONTAINERS_PER_PAGE {
            return Err(Malformed::new(format!(
                "{n} containers, at most {CONTAINERS_PER_PAGE} stand in a page"
            )));
        }
        for _ in 0..n {
            let e = ContainerEntry {
                id: ContainerId::from_raw(i.u64()?)?,
                table: WriterNo(i.u32()?),
                data: DataName {
                    container: ContainerId::from_raw(i.u64()?)?,
                    generation: WriterNo(i.u32()?),
                },
                dead: Some(i.u32()?).filter(|n| *n != NO_WRITER).map(WriterNo),
                chunks: i.u32()?,
                dead_chunks: i.u32()?,
                stored_bytes: i.u64()?,
                level: i.u8()?,
            };
            if entries.last().is_some_and(|l| l.id >= e.id) {
                return Err(Malformed::new("containers out of order"));
            }
            entries.push(e);
        }
        i.end()?;
        Ok(ContainerPage { entries })
    }
}
