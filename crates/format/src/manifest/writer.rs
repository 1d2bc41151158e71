//! Writers: the sessions that may commit to a manifest.

use super::snapshot::{decode_parent, encode_parent};
use crate::bytes::{In, Malformed, Out, Result};
use crate::ids::{Sequence, SnapId, Token, WriterNo};

/// What a writer is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterKind {
    /// A backup: at most one on a disk.
    Backup,
    /// Deletion, compaction, collection: at most one on an owner's folder.
    Maintenance,
}

/// A session that may commit to this manifest. One that is not listed is fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its number.
    pub no: WriterNo,
    /// Names the object it holds while it lives.
    pub token: Token,
    /// What it does.
    pub kind: WriterKind,
    /// The snapshot whose references must stay while it lives.
    pub parent: Option<SnapId>,
    /// The manifest's sequence when it came: what is released later may still be read by it.
    pub since: Sequence,
}

impl Writer {
    /// The shortest encoding: one without a parent.
    pub(super) const BYTES_MIN: usize = 22;

    pub(super) fn encode(&self, o: &mut Out) {
        o.u32(self.no.0);
        o.u64(self.token.0);
        o.u8(match self.kind {
            WriterKind::Backup => 0,
            WriterKind::Maintenance => 1,
        });
        encode_parent(o, self.parent);
        o.u64(self.since.0);
    }

    pub(super) fn decode(i: &mut In<'_>) -> Result<Self> {
        Ok(Writer {
            no: WriterNo(i.u32()?),
            token: Token(i.u64()?),
            kind: match i.u8()? {
                0 => WriterKind::Backup,
                1 => WriterKind::Maintenance,
                k => return Err(Malformed::new(format!("writer kind {k}"))),
            },
            parent: decode_parent(i)?,
            since: Sequence(i.u64()?),
        })
    }
}
