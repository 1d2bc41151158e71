//! The snapshots that a manifest lists.

use crate::bytes::{In, Malformed, Out, Result, STRING_BYTES};
use crate::ids::{SnapId, WriterNo};
use crate::recipe::RecipeName;

/// Whether users see a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// Listed and restorable.
    Live,
    /// Deleted; its references still count until the deletion has been carried through.
    Deleted,
}

/// How a snapshot's recipe stands to the next newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reverse {
    /// All its references are direct, and will be.
    No,
    /// All its references are direct; those to chunks that the next newer snapshot has are to become indirect.
    Pending,
    /// Some of its references may lead through the next newer snapshot, which must stay while it does.
    Done,
}

/// Whether a snapshot's recipe is in the reference index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexed {
    /// Not yet.
    No,
    /// It was put into an object of the index.
    Yes,
    /// It was found too large for that, or could not be read.
    LeftOut,
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Its id.
    pub id: SnapId,
    /// Point in time, seconds since 1970.
    pub time: i64,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Live or deleted.
    pub state: SnapshotState,
    /// Never deleted by retention or by hand until released.
    pub held: bool,
    /// Nothing was taken from other disks but the popular set, and nothing of it is offered to them.
    pub isolated: bool,
    /// Reverse deduplication.
    pub reverse: Reverse,
    /// The reference index.
    pub indexed: Indexed,
    /// The session that made it.
    pub made_by: WriterNo,
    /// Generation of its recipe: another one where that was written anew.
    pub generation: WriterNo,
    /// Recipes whose pages its own recipe uses, itself included where it has pages.
    pub depends: Vec<RecipeName>,
    /// The snapshot it was compared with.
    pub parent: Option<SnapId>,
    /// Bytes of the disk that are not zero.
    pub data_bytes: u64,
    /// Bytes in segments that differ from the parent's.
    pub changed_bytes: u64,
    /// Bytes of chunks that were new.
    pub new_bytes: u64,
    /// Bytes it added to the store.
    pub stored_bytes: u64,
    /// The policy's name when it was made.
    pub policy: String,
    /// What the user wanted to remember.
    pub tags: Vec<(String, String)>,
}

impl SnapshotEntry {
    /// The shortest encoding: an id, two writers, and eleven fields of one byte.
    pub(super) const BYTES_MIN: usize = 27;

    /// A copy without the recipes that it depends on, which may be many: for who only needs to know the snapshot.
    pub fn without_depends(&self) -> SnapshotEntry {
        SnapshotEntry { depends: Vec::new(), policy: self.policy.clone(), tags: self.tags.clone(), ..*self }
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let text = |s: &String| STRING_BYTES + s.len();
        let tag = |(k, v): &(String, String)| size_of::<(String, String)>() + text(k) + text(v);
        let lists = self.depends.len() * size_of::<RecipeName>() + self.tags.iter().map(tag).sum::<usize>();
        size_of::<SnapshotEntry>() + text(&self.policy) + lists
    }

    pub(super) fn encode(&self, o: &mut Out) {
        o.u64(self.id.0);
        o.signed(self.time);
        o.varint(self.size);
        let deleted = u8::from(self.state == SnapshotState::Deleted);
        let reverse = match self.reverse {
            Reverse::No => 0,
            Reverse::Pending => 1,
            Reverse::Done => 2,
        };
        let indexed = match self.indexed {
            Indexed::No => 0,
            Indexed::Yes => 1,
            Indexed::LeftOut => 2,
        };
        let later = u8::from(self.isolated) << 4 | indexed << 5;
        o.u8(deleted | u8::from(self.held) << 1 | reverse << 2 | later);
        o.u32(self.made_by.0);
        o.u32(self.generation.0);
        o.varint(self.depends.len() as u64);
        for d in &self.depends {
            o.u64(d.snap.0);
            o.u32(d.generation.0);
        }
        encode_parent(o, self.parent);
        for n in [self.data_bytes, self.changed_bytes, self.new_bytes, self.stored_bytes] {
            o.varint(n);
        }
        o.string(&self.policy);
        o.varint(self.tags.len() as u64);
        for (k, v) in &self.tags {
            o.string(k);
            o.string(v);
        }
    }

    pub(super) fn decode(i: &mut In<'_>) -> Result<Self> {
        let id = SnapId(i.u64()?);
        let (time, size) = (i.signed()?, i.varint()?);
        let flags = i.u8()?;
        let unknown = || Malformed::new(format!("snapshot {id}: unknown flags {flags:#x}"));
        let reverse = match flags >> 2 & 3 {
            0 => Reverse::No,
            1 => Reverse::Pending,
            2 => Reverse::Done,
            _ => return Err(unknown()),
        };
        let indexed = match flags >> 5 {
            0 => Indexed::No,
            1 => Indexed::Yes,
            2 => Indexed::LeftOut,
            _ => return Err(unknown()),
        };
        let (made_by, generation) = (WriterNo(i.u32()?), WriterNo(i.u32()?));
        let (n, mut depends) = i.list(12)?;
        for _ in 0..n {
            depends.push(RecipeName { snap: SnapId(i.u64()?), generation: WriterNo(i.u32()?) });
        }
        let parent = decode_parent(i)?;
        let mut s = SnapshotEntry {
            id,
            time,
            size,
            state: if flags & 1 == 0 { SnapshotState::Live } else { SnapshotState::Deleted },
            held: flags & 2 != 0,
            isolated: flags & 16 != 0,
            reverse,
            indexed,
            made_by,
            generation,
            depends,
            parent,
            data_bytes: i.varint()?,
            changed_bytes: i.varint()?,
            new_bytes: i.varint()?,
            stored_bytes: i.varint()?,
            policy: i.string()?,
            tags: Vec::new(),
        };
        let n;
        (n, s.tags) = i.list(2)?;
        for _ in 0..n {
            s.tags.push((i.string()?, i.string()?));
        }
        Ok(s)
    }
}

/// The snapshot that one was compared with, or whose references a writer needs.
pub(super) fn encode_parent(o: &mut Out, parent: Option<SnapId>) {
    match parent {
        None => o.u8(0),
        Some(s) => {
            o.u8(1);
            o.u64(s.0);
        }
    }
}

/// What [`encode_parent`] wrote.
pub(super) fn decode_parent(i: &mut In<'_>) -> Result<Option<SnapId>> {
    match i.u8()? {
        0 => Ok(None),
        1 => Ok(Some(SnapId(i.u64()?))),
        b => Err(Malformed::new(format!("{b} is neither present nor absent"))),
    }
}
