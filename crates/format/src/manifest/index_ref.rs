//! Where a manifest finds the objects of its reference index.

use crate::bytes::{In, Out, Result};
use crate::ids::WriterNo;

/// An object of the reference index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexRef {
    /// The writer that wrote it.
    pub writer: WriterNo,
    /// Its number in that session.
    pub number: u32,
    /// Bytes of its blocks.
    pub blocks_len: u64,
    /// Bytes of the footer behind them.
    pub footer_len: u32,
}

impl IndexRef {
    /// The shortest encoding: four fields of one byte.
    pub(super) const BYTES_MIN: usize = 4;

    pub(super) fn encode(&self, o: &mut Out) {
        for n in
            [u64::from(self.writer.0), u64::from(self.number), self.blocks_len, u64::from(self.footer_len)]
        {
            o.varint(n);
        }
    }

    pub(super) fn decode(i: &mut In<'_>) -> Result<Self> {
        Ok(IndexRef {
            writer: WriterNo(i.varint32()?),
            number: i.varint32()?,
            blocks_len: i.varint()?,
            footer_len: i.varint32()?,
        })
    }
}
