//! The root of an owner's folder: the one object that is replaced, by compare-and-swap.

mod index_ref;
mod page_ref;
mod release;
mod snapshot;
mod snapshot_page;
mod writer;

pub use index_ref::IndexRef;
pub use page_ref::PageRef;
pub use release::{Release, Released};
pub use snapshot::{Indexed, Reverse, SnapshotEntry, SnapshotState};
pub use snapshot_page::{SnapshotPage, SnapshotPageRef, SNAPSHOTS_PER_PAGE};
pub use writer::{Writer, WriterKind};

use crate::bytes::{In, Malformed, Out, Result, STRING_BYTES};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{ContainerId, DiskId, OwnerNo, Sequence, SnapId, WriterNo};
use std::collections::BTreeSet;

/// Most writers: each is asked for while there is work on the folder.
const WRITERS_MAX: usize = 1 << 16;
/// Most snapshots: one an hour for three years and more.
const SNAPSHOTS_MAX: usize = 1 << 15;
/// Most pages of snapshots, each of which has at least one.
const SNAPSHOT_PAGES_MAX: usize = 1 << 12;
/// Most pages of the container table: 2^24 containers, 1 PiB of chunks in those of 64 MiB.
const PAGES_MAX: usize = 1 << 16;
/// Most things that wait for old readers.
const RELEASED_MAX: usize = 1 << 17;
/// Most objects of the reference index: each has at least 16 times as many recipes as the next smaller one.
const REFERENCES_MAX: usize = 16;
/// What a container on a list takes in memory once it is looked at.
const LISTED_BYTES: usize = 32;

/// The root of an owner's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Counts the swaps.
    pub sequence: Sequence,
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
    /// The newest snapshots, in the order of their commits. Older ones are in [`Manifest::older`]: this is not the whole
    /// list. It is empty only where there is no snapshot at all.
    pub recent: Vec<SnapshotEntry>,
    /// Pages of older snapshots, the oldest first.
    pub older: Vec<SnapshotPageRef>,
    /// What snapshots in pages are now, in their order: an entry takes the place of the one with its id.
    pub changed: Vec<SnapshotEntry>,
    /// Snapshots in pages that are there no more, in their order.
    pub gone: Vec<SnapId>,
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
    /// About how many chunks of such containers this disk references less since they were last swept.
    pub unswept_chunks: u64,
    /// The reference index: which recipes reference which chunks.
    pub references: Vec<IndexRef>,
    /// Snapshots that were deleted by filters since their leaks were repaired: the R of VM-centric 3.2.
    pub by_filter: u32,
}

impl Manifest {
    /// A folder with nothing in it.
    pub fn new(disk: DiskId, name: &str) -> Self {
        Manifest {
            sequence: Sequence::FIRST,
            disk,
            name: name.into(),
            other_names: Vec::new(),
            next_writer: WriterNo(1),
            writers: Vec::new(),
            recent: Vec::new(),
            older: Vec::new(),
            changed: Vec::new(),
            gone: Vec::new(),
            pages: Vec::new(),
            released: Vec::new(),
            owners: Vec::new(),
            damaged: Vec::new(),
            unswept: Vec::new(),
            unswept_chunks: 0,
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

    /// How many snapshots there are, those in pages included.
    pub fn snapshot_count(&self) -> usize {
        let in_pages = self.older.iter().map(|p| p.entries as usize).sum::<usize>();
        (in_pages + self.recent.len()).saturating_sub(self.gone.len())
    }

    /// Most memory that a manifest may take, in bytes.
    pub const MEMORY_MAX: usize = Kind::Manifest.memory_max();

    /// Memory that it takes with all its snapshots, those in pages included, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let text = |s: &String| STRING_BYTES + s.len();
        text(&self.name)
            + self.other_names.iter().map(|n| size_of::<String>() + text(n)).sum::<usize>()
            + self.writers.len() * size_of::<Writer>()
            + self.recent.iter().chain(&self.changed).map(SnapshotEntry::memory_bytes).sum::<usize>()
            + self.older.iter().map(SnapshotPageRef::memory_bytes).sum::<usize>()
            + self.gone.len() * LISTED_BYTES
            + self.pages.len() * size_of::<PageRef>()
            + self.released.iter().map(Released::memory_bytes).sum::<usize>()
            + self.owners.len() * size_of::<DiskId>()
            + (self.damaged.len() + self.unswept.len()) * LISTED_BYTES
            + self.references.len() * size_of::<IndexRef>()
    }

    /// Whether it is within the limits: one that is not could be written and never be read again.
    pub fn check_limits(&self) -> Result<()> {
        for (what, n, most) in [
            ("writers", self.writers.len(), WRITERS_MAX),
            ("snapshots", self.snapshot_count(), SNAPSHOTS_MAX),
            ("pages of snapshots", self.older.len(), SNAPSHOT_PAGES_MAX),
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
        encode_frame(Kind::Manifest, context, &self.body())
    }

    /// As a commit record: a copy, under its own name.
    pub fn encode_record(&self, context: Context<'_>) -> Vec<u8> {
        encode_frame(Kind::Commit, context, &self.body())
    }

    fn body(&self) -> Vec<u8> {
        let mut o = Out::default();
        o.u64(self.sequence.0);
        o.bytes(&self.disk.0);
        o.string(&self.name);
        o.varint(self.other_names.len() as u64);
        self.other_names.iter().for_each(|n| o.string(n));
        o.u32(self.next_writer.0);
        o.varint(self.writers.len() as u64);
        self.writers.iter().for_each(|w| w.encode(&mut o));
        o.varint(self.recent.len() as u64);
        self.recent.iter().for_each(|s| s.encode(&mut o));
        o.varint(self.older.len() as u64);
        self.older.iter().for_each(|p| p.encode(&mut o));
        o.varint(self.changed.len() as u64);
        self.changed.iter().for_each(|s| s.encode(&mut o));
        o.varint(self.gone.len() as u64);
        self.gone.iter().for_each(|id| o.u64(id.0));
        o.varint(self.pages.len() as u64);
        self.pages.iter().for_each(|p| p.encode(&mut o));
        o.varint(self.released.len() as u64);
        self.released.iter().for_each(|r| r.encode(&mut o));
        o.varint(self.owners.len() as u64);
        self.owners.iter().for_each(|d| o.bytes(&d.0));
        for list in [&self.damaged, &self.unswept] {
            o.varint(list.len() as u64);
            list.iter().for_each(|c| o.u64(c.raw()));
        }
        o.varint(self.unswept_chunks);
        o.varint(self.references.len() as u64);
        self.references.iter().for_each(|r| r.encode(&mut o));
        if self.by_filter > 0 {
            o.varint(u64::from(self.by_filter));
        }
        o.0
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        Self::of_body(&decode_frame(Kind::Manifest, context, bytes)?)
    }

    /// From a commit record.
    pub fn decode_record(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        Self::of_body(&decode_frame(Kind::Commit, context, bytes)?)
    }

    /// What it says of snapshots in pages.
    fn decode_older(&mut self, i: &mut In<'_>) -> Result<()> {
        let n;
        (n, self.older) = i.list(SnapshotPageRef::BYTES_MIN)?;
        for _ in 0..n {
            self.older.push(SnapshotPageRef::decode(i)?);
        }
        // The snapshots of such a page would count twice.
        let names: BTreeSet<_> = self.older.iter().map(|p| (p.writer, p.number)).collect();
        if names.len() < self.older.len() {
            return Err(Malformed::new("names a page of snapshots twice"));
        }
        let n;
        (n, self.changed) = i.list(SnapshotEntry::BYTES_MIN)?;
        for _ in 0..n {
            self.changed.push(SnapshotEntry::decode(i)?);
        }
        let n = i.count(8)?;
        i.charge(n, LISTED_BYTES)?;
        self.gone.reserve_exact(n);
        for _ in 0..n {
            self.gone.push(SnapId(i.u64()?));
        }
        let in_pages = self.older.iter().map(|p| p.entries as usize).sum::<usize>();
        if self.changed.len() + self.gone.len() > in_pages {
            return Err(Malformed::new("changes more snapshots than there are in its pages"));
        }
        if self.recent.is_empty() && in_pages > 0 {
            return Err(Malformed::new("has older snapshots and no recent one"));
        }
        Ok(())
    }

    fn of_body(body: &[u8]) -> Result<Self> {
        let mut i = In::within(body, Self::MEMORY_MAX);
        let (sequence, disk, name) = (Sequence(i.u64()?), DiskId(i.array()?), i.string()?);
        let (n, mut other_names) = i.list(1)?;
        for _ in 0..n {
            other_names.push(i.string()?);
        }
        let mut m =
            Manifest { other_names, sequence, next_writer: WriterNo(i.u32()?), ..Manifest::new(disk, &name) };
        let n;
        (n, m.writers) = i.list(Writer::BYTES_MIN)?;
        for _ in 0..n {
            m.writers.push(Writer::decode(&mut i)?);
        }
        let n;
        (n, m.recent) = i.list(SnapshotEntry::BYTES_MIN)?;
        for _ in 0..n {
            m.recent.push(SnapshotEntry::decode(&mut i)?);
        }
        m.decode_older(&mut i)?;
        let n;
        (n, m.pages) = i.list(PageRef::BYTES_MIN)?;
        for _ in 0..n {
            m.pages.push(PageRef::decode(&mut i)?);
        }
        if !m.pages.windows(2).all(|w| w[0].first < w[1].first) {
            return Err(Malformed::new("pages of the container table out of order"));
        }
        let n;
        (n, m.released) = i.list(Released::BYTES_MIN)?;
        for _ in 0..n {
            m.released.push(Released::decode(&mut i)?);
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
        m.unswept_chunks = i.varint()?;
        let n;
        (n, m.references) = i.list(IndexRef::BYTES_MIN)?;
        for _ in 0..n {
            m.references.push(IndexRef::decode(&mut i)?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SnapId, VaultId};

    fn entry() -> SnapshotEntry {
        SnapshotEntry {
            id: SnapId(1),
            time: 0,
            size: 0,
            state: SnapshotState::Live,
            held: false,
            isolated: false,
            reverse: Reverse::No,
            indexed: Indexed::No,
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
        shortest.encode(&mut out);
        assert_eq!(out.0.len(), SnapshotEntry::BYTES_MIN);
        let mut m = Manifest::new(DiskId([1; 16]), "a/b");
        m.recent = vec![shortest; 3];
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
                released: vec![Released { sequence: Sequence::FIRST, what }; n],
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
            m.recent.push(SnapshotEntry { tags, ..entry() });
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
