//! Where a manifest finds the pages of its container table.

use crate::bytes::{In, Out, Result};
use crate::ids::{ContainerId, WriterNo};

/// A page of the container table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageRef {
    /// Its first container.
    pub first: ContainerId,
    /// The writer that wrote it.
    pub writer: WriterNo,
    /// Its number in that session.
    pub number: u32,
}

impl PageRef {
    /// The shortest encoding: a container, and two fields of one byte.
    pub(super) const BYTES_MIN: usize = 10;

    pub(super) fn encode(&self, o: &mut Out) {
        o.u64(self.first.raw());
        o.varint(u64::from(self.writer.0));
        o.varint(u64::from(self.number));
    }

    pub(super) fn decode(i: &mut In<'_>) -> Result<Self> {
        Ok(PageRef {
            first: ContainerId::from_raw(i.u64()?)?,
            writer: WriterNo(i.varint32()?),
            number: i.varint32()?,
        })
    }
}
