//! Small objects: the vault's description, the name of a disk, a reader, and records whose only content is their name.

mod session;
mod vault_file;
mod verifications;

pub use session::SessionRecord;
pub use vault_file::{VaultFile, FORMAT_VERSION};
pub use verifications::{Verification, Verifications};

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{DiskId, Sequence, Token, WriterNo};

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
    pub since: Sequence,
}

impl ReaderRecord {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        encode_frame(Kind::Reader, context, &self.since.0.to_le_bytes())
    }

    /// From a frame.
    ///
    /// # Errors
    /// A body of another length than 8 bytes, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Reader, context, bytes)?;
        let mut i = In::new(&body);
        let since = Sequence(i.u64()?);
        i.end()?;
        Ok(ReaderRecord { since })
    }
}

/// A backup that may reference containers of another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    /// The disk that is backed up.
    pub disk: DiskId,
    /// The backup's writer there: once it is fenced, the claim no longer counts.
    pub writer: WriterNo,
}

impl ClaimRecord {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.bytes(&self.disk.0);
        o.u32(self.writer.0);
        encode_frame(Kind::Claim, context, &o.0)
    }

    /// From a frame.
    ///
    /// # Errors
    /// A body of another length than 20 bytes, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Claim, context, bytes)?;
        let mut i = In::new(&body);
        let record = ClaimRecord { disk: DiskId(i.array()?), writer: WriterNo(i.u32()?) };
        i.end()?;
        Ok(record)
    }
}

/// A session that looks at containers of its folder, to remove what no disk references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiringRecord {
    /// The session, whose writer is registered in the folder. The record counts as long as it lives, and until that writer
    /// is fenced.
    pub session: Token,
    /// The writers that made them, in order.
    pub writers: Vec<WriterNo>,
}

impl RetiringRecord {
    /// Most writers of one record.
    pub const WRITERS_MAX: usize = 1 << 14;

    /// As a frame: of at most [`Self::WRITERS_MAX`] writers.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.u64(self.session.0);
        self.writers.iter().for_each(|w| o.u32(w.0));
        encode_frame(Kind::Retiring, context, &o.0)
    }

    /// From a frame.
    ///
    /// # Errors
    /// A body that is no token and a whole number of writers in order, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Retiring, context, bytes)?;
        let mut i = In::new(&body);
        let session = Token(i.u64()?);
        let mut writers = Vec::with_capacity(i.remaining() / 4);
        while i.remaining() > 0 {
            writers.push(WriterNo(i.u32()?));
        }
        if !writers.is_sorted() {
            return Err(Malformed::new("writers out of order"));
        }
        Ok(RetiringRecord { session, writers })
    }
}

/// A record that says all it says by its name: a referrer record or a commit record.
pub fn encode_mark(kind: Kind, context: Context<'_>) -> Vec<u8> {
    encode_frame(kind, context, b"")
}
