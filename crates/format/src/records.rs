//! Small objects: the name of a disk, a reader, and records whose only content is their name.

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::DiskId;

/// What leads from a name to a disk's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRecord {
    /// The disk's id.
    pub disk: DiskId,
    /// `vm/disk`.
    pub name: String,
}

impl NameRecord {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.bytes(&self.disk.0);
        o.bytes(self.name.as_bytes());
        encode_frame(Kind::Name, context, &o.0)
    }

    /// From a frame.
    ///
    /// # Errors
    /// A name that is no UTF-8, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Name, context, bytes)?;
        let mut i = In::new(&body);
        let disk = DiskId(i.array()?);
        let name = String::from_utf8(i.bytes(i.remaining())?.to_vec());
        Ok(NameRecord { disk, name: name.map_err(|_| Malformed::new("a name that is not UTF-8"))? })
    }
}

/// A process that reads a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderRecord {
    /// It may have read any manifest from this sequence on.
    pub since: u64,
}

impl ReaderRecord {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        encode_frame(Kind::Reader, context, &self.since.to_le_bytes())
    }

    /// From a frame.
    ///
    /// # Errors
    /// A body of another length than 8 bytes, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Reader, context, bytes)?;
        let mut i = In::new(&body);
        let since = i.u64()?;
        i.end()?;
        Ok(ReaderRecord { since })
    }
}

/// A record that says all it says by its name: a claim, a retiring record or a commit record.
pub fn encode_mark(kind: Kind, context: Context<'_>) -> Vec<u8> {
    encode_frame(kind, context, b"")
}
