//! What a manifest no longer needs, while older readers or writers may.

use crate::bytes::{In, Malformed, Out, Result, STRING_BYTES};
use crate::ids::{ContainerId, Sequence, WriterNo};

/// What nothing needs any more but readers that came before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// An object, by its name: it is deleted.
    Object(String),
    /// What a list of dead chunks says of a container's data: it is punched, if that list still counts.
    Punch {
        /// The container.
        container: ContainerId,
        /// The writer of the list.
        dead: WriterNo,
    },
    /// A container of another owner, some of whose chunks are no longer referenced: it is listed as unswept. Until then
    /// its owner keeps all of it.
    Foreign(ContainerId),
}

/// What waits for old readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// The manifest's sequence that no longer needed it.
    pub sequence: Sequence,
    /// What it is.
    pub what: Release,
}

impl Released {
    /// The shortest encoding: an object without a name.
    pub(super) const BYTES_MIN: usize = 2;

    /// Memory that it takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let name = match &self.what {
            Release::Object(name) => STRING_BYTES + name.len(),
            Release::Punch { .. } | Release::Foreign(_) => 0,
        };
        size_of::<Released>() + name
    }

    pub(super) fn encode(&self, o: &mut Out) {
        match &self.what {
            Release::Object(name) => {
                o.varint(self.sequence.0 << 2);
                o.string(name);
            }
            Release::Punch { container, dead } => {
                o.varint(self.sequence.0 << 2 | 1);
                o.u64(container.raw());
                o.u32(dead.0);
            }
            Release::Foreign(container) => {
                o.varint(self.sequence.0 << 2 | 2);
                o.u64(container.raw());
            }
        }
    }

    pub(super) fn decode(i: &mut In<'_>) -> Result<Self> {
        let tag = i.varint()?;
        let what = match tag & 3 {
            0 => Release::Object(i.string()?),
            1 => Release::Punch { container: ContainerId::from_raw(i.u64()?)?, dead: WriterNo(i.u32()?) },
            2 => Release::Foreign(ContainerId::from_raw(i.u64()?)?),
            k => return Err(Malformed::new(format!("a release of kind {k}"))),
        };
        Ok(Released { sequence: Sequence(tag >> 2), what })
    }
}
