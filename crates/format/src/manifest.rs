//! The root of an owner's folder: the one object that is replaced, by compare-and-swap.

use crate::bytes::{In, Malformed, Out, Result, STRING_BYTES};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{ContainerId, DiskId, OwnerNo, SnapId, Token, WriterNo};
use crate::recipe::RecipeName;

/// Most writers: each is asked for while there is work on the folder.
const WRITERS_MAX: usize = 1 << 16;
/// Most snapshots: one an hour for three years and more.
const SNAPSHOTS_MAX: usize = 1 << 15;
/// Most pages of the container table: 2^24 containers, 1 PiB of chunks in those of 64 MiB.
const PAGES_MAX: usize = 1 << 16;
/// Most things that wait for old readers.
const RELEASED_MAX: usize = 1 << 17;
/// Most objects of the reference index: each has at least four times as many recipes as the next smaller one.
const REFERENCES_MAX: usize = 16;
/// What a container on a list takes in memory once it is looked at.
const LISTED_BYTES: usize = 32;

/// The shortest encoding of a snapshot: an id, two writers, and eleven fields of one byte.
const SNAPSHOT_BYTES_MIN: usize = 27;

/// A container's data object. Several containers may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataName {
    /// The container it was made for.
    pub container: ContainerId,
    /// The writer that wrote it.
    pub generation: WriterNo,
}

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
    pub since: u64,
}

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
    /// Its recipe was put into the reference index.
    pub indexed: bool,
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

/// An object of the reference index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// A page of the container table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// Its first container.
    pub first: ContainerId,
    /// The writer that wrote it.
    pub writer: WriterNo,
    /// Its number in that session.
    pub number: u32,
}

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
    pub sequence: u64,
    /// What it is.
    pub what: Release,
}

/// The root of an owner's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Counts the swaps.
    pub sequence: u64,
    /// The disk; [`DiskId::POPULAR`] for the popular set.
    pub disk: DiskId,
    /// `vm/disk`; empty for the popular set.
    pub name: String,
    /// Names that may lead to it too, while it is being renamed, or after that was stopped.
    pub other_names: Vec<String>,
    /// The next writer's number.
    pub next_writer: WriterNo,
    /// Who may commit.
    pub writers: Vec<Writer>,
    /// In the order of their commits; the last live one is the newest.
    pub snapshots: Vec<SnapshotEntry>,
    /// The container table, in order of container ids.
    pub pages: Vec<PageRef>,
    /// What waits for old readers.
    pub released: Vec<Released>,
    /// The other owners of containers that this disk references or has referenced, in the order in which they came: a
    /// container's [`OwnerNo`] counts them from 1.
    pub owners: Vec<DiskId>,
    /// Containers of this owner found damaged: read where possible, never matched again.
    pub damaged: Vec<ContainerId>,
    /// Containers that this disk references less than before and other disks may reference: own ones, and those of other
    /// owners. They have not been swept since.
    pub unswept: Vec<ContainerId>,
    /// The reference index: which recipes reference which chunks.
    pub references: Vec<IndexRef>,
    /// Snapshots that were deleted by filters since their leaks were repaired: the R of VM-centric 3.2.
    pub by_filter: u32,
}

impl Manifest {
    /// A folder with nothing in it.
    pub fn new(disk: DiskId, name: &str) -> Self {
        Manifest {
            sequence: 0,
            disk,
            name: name.into(),
            other_names: Vec::new(),
            next_writer: WriterNo(1),
            writers: Vec::new(),
            snapshots: Vec::new(),
            pages: Vec::new(),
            released: Vec::new(),
            owners: Vec::new(),
            damaged: Vec::new(),
            unswept: Vec::new(),
            references: Vec::new(),
            by_filter: 0,
        }
    }

    /// Which disk a number of an owner means.
    pub fn owner(&self, no: OwnerNo) -> Option<DiskId> {
        match no {
            OwnerNo::OWN => Some(self.disk),
            OwnerNo(n) => self.owners.get(n as usize - 1).copied(),
        }
    }

    /// The number by which it counts an owner.
    pub fn owner_no(&self, disk: DiskId) -> Option<OwnerNo> {
        if disk == self.disk {
            return Some(OwnerNo::OWN);
        }
        self.owners.iter().position(|o| *o == disk).map(|n| OwnerNo(n as u32 + 1))
    }

    /// The newest snapshot that users see.
    pub fn newest(&self) -> Option<&SnapshotEntry> {
        self.live().next_back()
    }

    /// Snapshots that users see, oldest first.
    pub fn live(&self) -> impl DoubleEndedIterator<Item = &SnapshotEntry> {
        self.snapshots.iter().filter(|s| s.state == SnapshotState::Live)
    }

    /// Most memory that a manifest may take, in bytes.
    pub const MEMORY_MAX: usize = Kind::Manifest.memory_max();

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let text = |s: &String| STRING_BYTES + s.len();
        let tag = |(k, v): &(String, String)| size_of::<(String, String)>() + text(k) + text(v);
        let snapshot = |s: &SnapshotEntry| {
            let lists = s.depends.len() * size_of::<RecipeName>() + s.tags.iter().map(tag).sum::<usize>();
            size_of::<SnapshotEntry>() + text(&s.policy) + lists
        };
        let released = |r: &Released| {
            let name = match &r.what {
                Release::Object(name) => text(name),
                Release::Punch { .. } | Release::Foreign(_) => 0,
            };
            size_of::<Released>() + name
        };
        text(&self.name)
            + self.other_names.iter().map(|n| size_of::<String>() + text(n)).sum::<usize>()
            + self.writers.len() * size_of::<Writer>()
            + self.snapshots.iter().map(snapshot).sum::<usize>()
            + self.pages.len() * size_of::<PageRef>()
            + self.released.iter().map(released).sum::<usize>()
            + self.owners.len() * size_of::<DiskId>()
            + (self.damaged.len() + self.unswept.len()) * LISTED_BYTES
            + self.references.len() * size_of::<IndexRef>()
    }

    /// Whether it is within the limits: one that is not could be written and never be read again.
    pub fn check_limits(&self) -> Result<()> {
        for (what, n, most) in [
            ("writers", self.writers.len(), WRITERS_MAX),
            ("snapshots", self.snapshots.len(), SNAPSHOTS_MAX),
            ("pages of the container table", self.pages.len(), PAGES_MAX),
            ("released objects", self.released.len(), RELEASED_MAX),
            ("objects of the reference index", self.references.len(), REFERENCES_MAX),
            ("other owners", self.owners.len(), OwnerNo::MAX.0 as usize),
        ] {
            if n > most {
                return Err(Malformed::new(format!("has {n} {what}, {most} are the most")));
            }
        }
        let (bytes, most) = (self.memory_bytes(), Self::MEMORY_MAX);
        if bytes > most {
            return Err(Malformed::new(format!("takes {bytes} bytes of memory, {most} are the most")));
        }
        Ok(())
    }

    /// As a frame. It must be within the limits.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.u64(self.sequence);
        o.bytes(&self.disk.0);
        o.string(&self.name);
        o.varint(self.other_names.len() as u64);
        self.other_names.iter().for_each(|n| o.string(n));
        o.u32(self.next_writer.0);
        o.varint(self.writers.len() as u64);
        for w in &self.writers {
            o.u32(w.no.0);
            o.u64(w.token.0);
            o.u8(match w.kind {
                WriterKind::Backup => 0,
                WriterKind::Maintenance => 1,
            });
            option(&mut o, w.parent);
            o.u64(w.since);
        }
        o.varint(self.snapshots.len() as u64);
        for s in &self.snapshots {
            encode_snapshot(&mut o, s);
        }
        o.varint(self.pages.len() as u64);
        for p in &self.pages {
            o.u64(p.first.raw());
            o.varint(u64::from(p.writer.0));
            o.varint(u64::from(p.number));
        }
        o.varint(self.released.len() as u64);
        for r in &self.released {
            match &r.what {
                Release::Object(name) => {
                    o.varint(r.sequence << 2);
                    o.string(name);
                }
                Release::Punch { container, dead } => {
                    o.varint(r.sequence << 2 | 1);
                    o.u64(container.raw());
                    o.u32(dead.0);
                }
                Release::Foreign(container) => {
                    o.varint(r.sequence << 2 | 2);
                    o.u64(container.raw());
                }
            }
        }
        o.varint(self.owners.len() as u64);
        self.owners.iter().for_each(|d| o.bytes(&d.0));
        for list in [&self.damaged, &self.unswept] {
            o.varint(list.len() as u64);
            list.iter().for_each(|c| o.u64(c.raw()));
        }
        o.varint(self.references.len() as u64);
        for r in &self.references {
            for n in [u64::from(r.writer.0), u64::from(r.number), r.blocks_len, u64::from(r.footer_len)] {
                o.varint(n);
            }
        }
        if self.by_filter > 0 {
            o.varint(u64::from(self.by_filter));
        }
        encode_frame(Kind::Manifest, context, &o.0)
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Manifest, context, bytes)?;
        let mut i = In::within(&body, Self::MEMORY_MAX);
        let (sequence, disk, name) = (i.u64()?, DiskId(i.array()?), i.string()?);
        let (n, mut other_names) = i.list(1)?;
        for _ in 0..n {
            other_names.push(i.string()?);
        }
        let mut m =
            Manifest { other_names, sequence, next_writer: WriterNo(i.u32()?), ..Manifest::new(disk, &name) };
        let n;
        (n, m.writers) = i.list(22)?;
        for _ in 0..n {
            m.writers.push(Writer {
                no: WriterNo(i.u32()?),
                token: Token(i.u64()?),
                kind: match i.u8()? {
                    0 => WriterKind::Backup,
                    1 => WriterKind::Maintenance,
                    k => return Err(Malformed::new(format!("writer kind {k}"))),
                },
                parent: optional(&mut i)?,
                since: i.u64()?,
            });
        }
        let n;
        (n, m.snapshots) = i.list(SNAPSHOT_BYTES_MIN)?;
        for _ in 0..n {
            m.snapshots.push(decode_snapshot(&mut i)?);
        }
        let n;
        (n, m.pages) = i.list(10)?;
        for _ in 0..n {
            m.pages.push(PageRef {
                first: ContainerId::from_raw(i.u64()?)?,
                writer: WriterNo(i.varint32()?),
                number: i.varint32()?,
            });
        }
        if !m.pages.windows(2).all(|w| w[0].first < w[1].first) {
            return Err(Malformed::new("pages of the container table out of order"));
        }
        let n;
        (n, m.released) = i.list(2)?;
        for _ in 0..n {
            let tag = i.varint()?;
            let what = match tag & 3 {
                0 => Release::Object(i.string()?),
                1 => Release::Punch { container: ContainerId::from_raw(i.u64()?)?, dead: WriterNo(i.u32()?) },
                2 => Release::Foreign(ContainerId::from_raw(i.u64()?)?),
                k => return Err(Malformed::new(format!("a release of kind {k}"))),
            };
            m.released.push(Released { sequence: tag >> 2, what });
        }
        let n;
        (n, m.owners) = i.list(16)?;
        for _ in 0..n {
            m.owners.push(DiskId(i.array()?));
        }
        // References by a second number would be taken for those of another owner.
        let mut counted = m.owners.clone();
        counted.push(m.disk);
        counted.sort_unstable();
        if let Some(twice) = counted.windows(2).find(|w| w[0] == w[1]) {
            return Err(Malformed::new(format!("counts the owner {} twice", twice[0])));
        }
        for list in [&mut m.damaged, &mut m.unswept] {
            let n = i.count(8)?;
            i.charge(n, LISTED_BYTES)?;
            list.reserve_exact(n);
            for _ in 0..n {
                list.push(ContainerId::from_raw(i.u64()?)?);
            }
        }
        let n;
        (n, m.references) = i.list(4)?;
        for _ in 0..n {
            let (writer, number) = (WriterNo(i.varint32()?), i.varint32()?);
            let (blocks_len, footer_len) = (i.varint()?, i.varint32()?);
            m.references.push(IndexRef { writer, number, blocks_len, footer_len });
        }
        if i.remaining() > 0 {
            m.by_filter = i.varint32()?;
            if m.by_filter == 0 {
                return Err(Malformed::new("counts no deletion by filters"));
            }
        }
        i.end()?;
        m.check_limits()?;
        Ok(m)
    }
}

fn option(o: &mut Out, id: Option<SnapId>) {
    match id {
        None => o.u8(0),
        Some(s) => {
            o.u8(1);
            o.u64(s.0);
        }
    }
}

fn optional(i: &mut In<'_>) -> Result<Option<SnapId>> {
    match i.u8()? {
        0 => Ok(None),
        1 => Ok(Some(SnapId(i.u64()?))),
        b => Err(Malformed::new(format!("{b} is neither present nor absent"))),
    }
}

fn encode_snapshot(o: &mut Out, s: &SnapshotEntry) {
    o.u64(s.id.0);
    o.signed(s.time);
    o.varint(s.size);
    let deleted = u8::from(s.state == SnapshotState::Deleted);
    let reverse = match s.reverse {
        Reverse::No => 0,
        Reverse::Pending => 1,
        Reverse::Done => 2,
    };
    let later = u8::from(s.isolated) << 4 | u8::from(s.indexed) << 5;
    o.u8(deleted | u8::from(s.held) << 1 | reverse << 2 | later);
    o.u32(s.made_by.0);
    o.u32(s.generation.0);
    o.varint(s.depends.len() as u64);
    for d in &s.depends {
        o.u64(d.snap.0);
        o.u32(d.generation.0);
    }
    option(o, s.parent);
    for n in [s.data_bytes, s.changed_bytes, s.new_bytes, s.stored_bytes] {
        o.varint(n);
    }
    o.string(&s.policy);
    o.varint(s.tags.len() as u64);
    for (k, v) in &s.tags {
        o.string(k);
        o.string(v);
    }
}

fn decode_snapshot(i: &mut In<'_>) -> Result<SnapshotEntry> {
    let id = SnapId(i.u64()?);
    let (time, size) = (i.signed()?, i.varint()?);
    let flags = i.u8()?;
    let reverse = match flags >> 2 & 3 {
        _ if flags >> 6 != 0 => {
            return Err(Malformed::new(format!("snapshot {id}: unknown flags {flags:#x}")))
        }
        0 => Reverse::No,
        1 => Reverse::Pending,
        2 => Reverse::Done,
        _ => return Err(Malformed::new(format!("snapshot {id}: unknown flags {flags:#x}"))),
    };
    let (made_by, generation) = (WriterNo(i.u32()?), WriterNo(i.u32()?));
    let (n, mut depends) = i.list(12)?;
    for _ in 0..n {
        depends.push(RecipeName { snap: SnapId(i.u64()?), generation: WriterNo(i.u32()?) });
    }
    let parent = optional(i)?;
    let mut s = SnapshotEntry {
        id,
        time,
        size,
        state: if flags & 1 == 0 { SnapshotState::Live } else { SnapshotState::Deleted },
        held: flags & 2 != 0,
        isolated: flags & 16 != 0,
        reverse,
        indexed: flags & 32 != 0,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VaultId;

    fn entry() -> SnapshotEntry {
        SnapshotEntry {
            id: SnapId(1),
            time: 0,
            size: 0,
            state: SnapshotState::Live,
            held: false,
            isolated: false,
            reverse: Reverse::No,
            indexed: false,
            made_by: WriterNo(1),
            generation: WriterNo(1),
            depends: Vec::new(),
            parent: None,
            data_bytes: 0,
            changed_bytes: 0,
            new_bytes: 0,
            stored_bytes: 0,
            policy: String::new(),
            tags: Vec::new(),
        }
    }

    /// Snapshots with small numbers and short texts take less room than the decoder held possible: it refused what
    /// the encoder had written. Found by fuzzing.
    #[test]
    fn the_shortest_snapshots_come_back() {
        let here = Context { vault: VaultId([7; 16]), place: "disks/x/manifest" };
        let shortest = entry();
        let mut out = Out::default();
        encode_snapshot(&mut out, &shortest);
        assert_eq!(out.0.len(), SNAPSHOT_BYTES_MIN);
        let mut m = Manifest::new(DiskId([1; 16]), "a/b");
        m.snapshots = vec![shortest; 3];
        assert_eq!(Manifest::decode(here, &m.encode(here)), Ok(m));
    }

    #[test]
    fn no_owner_is_counted_twice() {
        let here = Context { vault: VaultId([7; 16]), place: "disks/x/manifest" };
        let decoded = |owners: Vec<DiskId>| {
            let m = Manifest { owners, ..Manifest::new(DiskId([1; 16]), "a/b") };
            Manifest::decode(here, &m.encode(here))
        };
        assert!(decoded(vec![DiskId([2; 16]), DiskId::POPULAR]).is_ok());
        assert!(decoded(vec![DiskId([2; 16]), DiskId([3; 16]), DiskId([2; 16])]).is_err());
        assert!(decoded(vec![DiskId([2; 16]), DiskId([1; 16])]).is_err());
    }

    /// A manifest of 6 KB took 5.2 GiB. What is decoded takes what [`Manifest::memory_bytes`] says, and no more than is
    /// allowed; what is just within the limits comes back.
    #[test]
    fn a_small_manifest_cannot_take_much_memory() {
        let here = Context { vault: VaultId([7; 16]), place: "disks/x/manifest" };
        let released = |n: usize| {
            let what = Release::Object(String::new());
            Manifest {
                released: vec![Released { sequence: 0, what }; n],
                ..Manifest::new(DiskId([1; 16]), "a/b")
            }
        };
        let m = released(RELEASED_MAX);
        let frame = m.encode(here);
        assert!(frame.len() < 1000);
        assert_eq!(Manifest::decode(here, &frame), Ok(m));
        assert!(Manifest::decode(here, &released(RELEASED_MAX + 1).encode(here)).is_err());
        let tags = |n: usize| {
            let mut m = Manifest::new(DiskId([1; 16]), "a/b");
            let tags = vec![(String::new(), String::new()); n];
            m.snapshots.push(SnapshotEntry { tags, ..entry() });
            m
        };
        let each = tags(1001).memory_bytes() - tags(1000).memory_bytes();
        let most = (Manifest::MEMORY_MAX - tags(0).memory_bytes()) / each;
        let frame = tags(most).encode(here);
        assert!(frame.len() < 1000);
        assert_eq!(Manifest::decode(here, &frame), Ok(tags(most)));
        assert!(Manifest::decode(here, &tags(most + 1).encode(here)).is_err());
    }
}
