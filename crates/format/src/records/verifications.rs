//! What the last verifications of disks found: for people and monitoring, no operation needs it.

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{DiskId, SnapId, WriterNo};

/// The last verifications of all disks that were verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verifications {
    /// By disk; of each the last one, and the last one that read all chunks, oldest first.
    pub all: Vec<Verification>,
}

/// One verification of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The disk.
    pub disk: DiskId,
    /// When it began, in seconds since 1970.
    pub began: i64,
    /// Whether it read all chunks.
    pub read_chunks: bool,
    /// Whether damaged containers were found that did not get on the list of their owner's manifest: those who read only what is
    /// listed do not see them.
    pub unlisted: bool,
    /// Snapshots of this writer and of later ones were not there yet.
    pub next_writer: WriterNo,
    /// Damaged objects that the disk has or needs.
    pub damaged_objects: u64,
    /// Snapshots of the disk that cannot be restored whole because of them, in order of their ids.
    pub damaged_snapshots: Vec<SnapId>,
}

impl Verification {
    /// The shortest encoding: a disk, four fields of one byte, and a writer.
    const BYTES_MIN: usize = 24;
    const READ_CHUNKS: u8 = 1;
    const UNLISTED: u8 = 2;

    fn encode(&self, o: &mut Out) {
        o.bytes(&self.disk.0);
        o.signed(self.began);
        let read_chunks = if self.read_chunks { Self::READ_CHUNKS } else { 0 };
        o.u8(read_chunks | if self.unlisted { Self::UNLISTED } else { 0 });
        o.u32(self.next_writer.0);
        o.varint(self.damaged_objects);
        o.varint(self.damaged_snapshots.len() as u64);
        self.damaged_snapshots.iter().for_each(|id| o.u64(id.0));
    }

    fn decode(i: &mut In<'_>) -> Result<Self> {
        let (disk, began) = (DiskId(i.array()?), i.signed()?);
        let flags = i.u8()?;
        if flags & !(Self::READ_CHUNKS | Self::UNLISTED) != 0 {
            return Err(Malformed::new(format!("a verification with flags {flags:#x}")));
        }
        let (read_chunks, unlisted) = (flags & Self::READ_CHUNKS != 0, flags & Self::UNLISTED != 0);
        let next_writer = WriterNo(i.u32()?);
        let damaged_objects = i.varint()?;
        let (n, mut damaged_snapshots) = i.list(8)?;
        for _ in 0..n {
            damaged_snapshots.push(SnapId(i.u64()?));
        }
        Ok(Verification {
            disk,
            began,
            read_chunks,
            unlisted,
            next_writer,
            damaged_objects,
            damaged_snapshots,
        })
    }
}

impl Verifications {
    /// As a frame; `None` where it would be too long.
    pub fn encode(&self, context: Context<'_>) -> Option<Vec<u8>> {
        let mut o = Out::default();
        o.varint(self.all.len() as u64);
        self.all.iter().for_each(|v| v.encode(&mut o));
        let fits = o.0.len() <= Kind::Verifications.body_max();
        fits.then(|| encode_frame(Kind::Verifications, context, &o.0))
    }

    /// From a frame.
    ///
    /// # Errors
    /// Unknown flags, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Verifications, context, bytes)?;
        let mut i = In::within(&body, Kind::Verifications.memory_max());
        let (n, mut all) = i.list(Verification::BYTES_MIN)?;
        for _ in 0..n {
            all.push(Verification::decode(&mut i)?);
        }
        i.end()?;
        Ok(Verifications { all })
    }
}
