//! The findings so far: damaged objects, and the chunks that cannot be read because of them. All findings of a verification
//! share one [`Room`]: beyond it, damaged objects are counted, and the snapshots that they affect are named once. It also
//! says when what is known of containers takes so much memory that it is to be told and forgotten
//! ([`crate::verify::settle`]).

use crate::base::error::{fault, Result};
use crate::container::container_set::ContainerSet;
use crate::container::versions::{generations, ContainerVersions, Generations};
use crate::verify::bad_chunks::{BadChunks, ObjectNo};
use crate::verify::descent::SnapshotIndex;
use format::{ContainerEntry, ContainerId, DiskId, RunSet};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Different things said of one object at most.
const WHYS_MAX: usize = 3;

/// Objects of a report at most; the others are counted. Each takes about 400 bytes.
const OBJECTS_MAX: usize = 20_000;
/// Snapshots that objects name at most, all together. Beyond that each is named once.
pub(super) const NAMES_MAX: usize = 200_000;
/// Objects for which there is no room that are told apart, to count each once. Each takes about 16 bytes.
const COUNTED_MAX: usize = 500_000;
/// Objects that are found without a map.
const OBJECTS_FEW: usize = 8;

/// How many objects and snapshots the findings of one verification may still name, and how much memory they take.
#[derive(Clone)]
pub(super) struct Room(Arc<RoomLeft>);

struct RoomLeft {
    objects: AtomicUsize,
    names: AtomicUsize,
    /// Objects that may be counted beyond those that are named.
    counted: AtomicUsize,
    /// Memory of what is known of containers, in bytes, and what it may be.
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Default for Room {
    fn default() -> Self {
        Room::with_bytes(usize::MAX)
    }
}

impl Room {
    /// One in which what is known of containers may take about so many bytes.
    pub fn with_bytes(bytes_max: usize) -> Room {
        let (objects, names, counted) = (OBJECTS_MAX.into(), NAMES_MAX.into(), COUNTED_MAX.into());
        Room(Arc::new(RoomLeft { objects, names, counted, bytes: 0.into(), bytes_max }))
    }

    fn take(left: &AtomicUsize) -> bool {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Whether nothing was found yet, by any of those that share it.
    pub fn is_untouched(&self) -> bool {
        self.0.objects.load(Ordering::Relaxed) == OBJECTS_MAX
    }

    /// Whether what is known of containers takes all the memory that it may.
    pub fn is_full(&self) -> bool {
        self.0.bytes.load(Ordering::Relaxed) >= self.0.bytes_max
    }

    /// What is known of containers takes so much memory.
    pub fn set_bytes(&self, bytes: usize) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Some of it takes `now` bytes, and no longer `before`.
    fn weigh(&self, before: usize, now: usize) {
        // Those that were dropped with what they knew are counted until all are counted anew.
        let change = |bytes: usize| Some((bytes + now).saturating_sub(before));
        let _ = self.0.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}

/// Damaged objects in the order in which they were found.
#[derive(Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    /// Where they are many: where each is.
    by_object: HashMap<Arc<str>, usize>,
    room: Room,
    /// Hashes of the objects for which there was no room: each is counted once, as far as there is room for that.
    unlisted: BTreeSet<u64>,
    /// Whether there are more.
    has_more: bool,
    /// Snapshots that these affect, or others in more ways than are told with them.
    more: BTreeSet<String>,
}

struct Finding {
    object: Arc<str>,
    whys: Vec<String>,
    more: u64,
    snapshots: Vec<String>,
}

/// What a report does not name one by one: it would not fit into memory.
#[derive(Default)]
pub(super) struct More {
    objects: u64,
    /// Whether these are not all.
    has_more: bool,
    /// Those that these objects affect, or others in more ways than are told with them.
    snapshots: BTreeSet<String>,
}

impl More {
    /// Adds an object to a report, or takes it in where that has no room.
    pub fn report(&mut self, damage: Damage, damaged: &mut Vec<Damage>) {
        if damaged.len() < OBJECTS_MAX {
            damaged.push(damage);
        } else {
            self.objects += 1;
            self.snapshots.extend(damage.snapshots);
        }
    }

    /// Takes snapshots in that are affected in more ways than are told.
    pub fn affected(&mut self, snapshots: BTreeSet<String>) {
        self.snapshots.extend(snapshots);
    }

    /// What a report says of it.
    pub fn into_damage(self) -> Option<Damage> {
        let why = match self.objects {
            0 if self.snapshots.is_empty() => return None,
            0 => "the objects named here affect these snapshots, too".into(),
            n => {
                let at_least = if self.has_more { "at least " } else { "" };
                format!(
                    "{at_least}{n} more objects are damaged; `sapwood verify VM/DISK` names those of one disk"
                )
            }
        };
        Some(Damage { object: "disks/".into(), why, snapshots: self.snapshots.into_iter().collect() })
    }
}

impl Findings {
    /// None so far. They share this room with others.
    pub fn within(room: &Room) -> Findings {
        Findings { room: room.clone(), ..Findings::default() }
    }

    /// Whether nothing is damaged.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.unlisted.is_empty() && !self.has_more
    }

    /// Says something of an object. Returns the object's number here; all for which there is no room have the same one.
    pub fn add(&mut self, object: &str, why: &str) -> ObjectNo {
        let Some(at) = self.find(object).or_else(|| self.insert(object)) else {
            self.count(object);
            return ObjectNo::UNLISTED;
        };
        let f = &mut self.all[at];
        if f.whys.iter().any(|w| w == why) {
        } else if f.whys.len() < WHYS_MAX {
            f.whys.reserve_exact(1);
            f.whys.push(why.to_string());
        } else {
            f.more += 1;
        }
        ObjectNo(at as u32)
    }

    /// What was read. Where the object is damaged, that and what it means are added to the findings, and there is `None`.
    pub fn tell<T>(&mut self, read: Result<T>, meaning: &str) -> Result<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(e) => {
                let (object, why) = fault(e)?;
                self.add(&object, &format!("{why}{meaning}"));
                Ok(None)
            }
        }
    }

    /// Counts an object for which there is no room.
    fn count(&mut self, object: &str) {
        let mut hash = DefaultHasher::new();
        object.hash(&mut hash);
        let hash = hash.finish();
        if self.unlisted.contains(&hash) {
        } else if Room::take(&self.room.0.counted) {
            self.unlisted.insert(hash);
        } else {
            self.has_more = true;
        }
    }

    fn find(&self, object: &str) -> Option<usize> {
        match self.all.len() {
            ..=OBJECTS_FEW => self.all.iter().position(|f| &*f.object == object),
            _ => self.by_object.get(object).copied(),
        }
    }

    fn insert(&mut self, object: &str) -> Option<usize> {
        if !Room::take(&self.room.0.objects) {
            return None;
        }
        let at = self.all.len();
        let object: Arc<str> = object.into();
        if at == 0 {
            // Most folders have one: there may be tens of thousands of them.
            self.all.reserve_exact(1);
        }
        self.all.push(Finding { object: object.clone(), whys: Vec::new(), more: 0, snapshots: Vec::new() });
        if at == OBJECTS_FEW {
            self.by_object = self.all.iter().map(|f| f.object.clone()).zip(0..).collect();
        } else if at > OBJECTS_FEW {
            self.by_object.insert(object, at);
        }
        Some(at)
    }

    /// A snapshot cannot be restored because of an object. Called snapshot by snapshot.
    pub fn affects(&mut self, object: ObjectNo, snapshot: &str) {
        let Some(finding) = self.all.get_mut(object.0 as usize) else { return self.affects_more(snapshot) };
        let list = &mut finding.snapshots;
        if list.last().is_some_and(|l| l == snapshot) {
            return;
        }
        if !Room::take(&self.room.0.names) {
            return self.affects_more(snapshot);
        }
        if list.is_empty() {
            list.reserve_exact(1);
        }
        list.push(snapshot.to_string());
    }

    /// A snapshot cannot be restored because of objects that are not told with it.
    pub fn affects_more(&mut self, snapshot: &str) {
        if !self.more.contains(snapshot) {
            self.more.insert(snapshot.to_string());
        }
    }

    /// Adds the damaged objects to a report, each once, and to `more` what there is no room for.
    pub fn report(self, damaged: &mut Vec<Damage>, more: &mut More) {
        more.objects += self.unlisted.len() as u64;
        more.has_more |= self.has_more;
        more.affected(self.more);
        for mut f in self.all {
            // What was found again is told once.
            let mut told = HashSet::new();
            let is_new: Vec<bool> = f.snapshots.iter().map(|s| told.insert(s.as_str())).collect();
            let mut is_new = is_new.into_iter();
            f.snapshots.retain(|_| is_new.next().unwrap_or(true));
            let mut why = f.whys.join("; ");
            if f.more > 0 {
                why.push_str(&format!("; and {} more", f.more));
            }
            more.report(Damage { object: f.object.to_string(), why, snapshots: f.snapshots }, damaged);
        }
    }
}

/// Which snapshots objects affect, as far as there is room.
#[derive(Clone)]
pub(super) struct Affected<O> {
    pairs: BTreeSet<(O, SnapshotIndex)>,
    /// Snapshots that are affected by more.
    more: BTreeSet<SnapshotIndex>,
}

impl<O> Default for Affected<O> {
    fn default() -> Self {
        Affected { pairs: BTreeSet::new(), more: BTreeSet::new() }
    }
}

impl<O: Ord> Affected<O> {
    /// An object affects a snapshot.
    pub fn add(&mut self, object: O, snapshot: SnapshotIndex) {
        let pair = (object, snapshot);
        if self.pairs.len() < NAMES_MAX {
            self.pairs.insert(pair);
        } else if !self.pairs.contains(&pair) {
            self.more.insert(snapshot);
        }
    }

    /// The objects with their snapshots, object by object, and the snapshots that are affected by more.
    pub fn into_parts(self) -> (BTreeSet<(O, SnapshotIndex)>, BTreeSet<SnapshotIndex>) {
        (self.pairs, self.more)
    }
}

/// The containers whose chunks are read.
#[derive(Clone, Debug)]
pub(crate) enum Reads {
    /// All.
    All,
    /// Those that their owner's manifest lists as damaged.
    Recorded,
    /// Those of these owners, as they name them.
    Only(BTreeMap<DiskId, ContainerSet>),
}

/// What was found in the containers of one owner, which names them, and in the rest of its folder.
#[derive(Default)]
pub(super) struct ContainerFindings {
    pub found: Findings,
    pub bad: BadChunks,
    /// Those that were looked at: in another version, one is looked at anew.
    seen: ContainerVersions,
    /// Those of them whose chunks were read.
    read: ContainerSet,
    /// Those whose data or table is damaged.
    pub damaged: ContainerVersions,
    /// Those whose list of dead chunks is damaged.
    unlisted: ContainerSet,
    /// The memory of all this, as it was counted.
    weighed: usize,
}

impl ContainerFindings {
    /// None so far. They share this room with others.
    pub fn within(room: &Room) -> ContainerFindings {
        ContainerFindings { found: Findings::within(room), ..ContainerFindings::default() }
    }

    /// Whether a container was looked at as it is now.
    pub fn has_seen(&self, e: &ContainerEntry) -> bool {
        self.seen.get(e.id.local()) == Some(generations(e))
    }

    /// Whether a container has not been looked at as it is now.
    pub fn begin(&mut self, e: &ContainerEntry) -> bool {
        let id = e.id.local();
        let fresh = self.seen.insert(id, generations(e));
        if fresh {
            self.read.remove(id);
            self.unlisted.remove(id);
            self.bad.remove(id);
            self.damaged.remove(id);
        }
        self.weigh();
        fresh
    }

    /// Whether all that is known to be damaged are chunks of containers that were read.
    pub fn has_read_all_bad(&self) -> bool {
        self.bad.is_within(&self.read)
    }

    /// The chunks of a container are read.
    pub fn reads(&mut self, id: ContainerId) {
        self.read.insert(id.local());
        self.weigh();
    }

    /// Whether the chunks of a container were read as it is in this version, and none is damaged.
    pub fn is_whole(&self, id: ContainerId, of: Generations) -> bool {
        self.read.contains(id) && self.seen.get(id) == Some(of) && self.damaged.get(id).is_none()
    }

    /// Whether any container was looked at.
    pub fn has_looked(&self) -> bool {
        !self.seen.is_empty() || !self.damaged.is_empty()
    }

    /// Whether there is anything that the owner's manifest may not say yet.
    pub fn has_to_record(&self) -> bool {
        !self.read.is_empty() || !self.damaged.is_empty()
    }

    /// The list of dead chunks of a container is damaged.
    pub fn unlist(&mut self, id: ContainerId, object: &str, why: &str) {
        self.found.add(object, why);
        self.unlisted.insert(id.local());
        self.weigh();
    }

    /// Nothing of a container can be found because of an object that is not its own.
    pub fn lost(&mut self, id: ContainerId, object: &str, why: &str) {
        let at = self.found.add(object, why);
        self.bad.all(id.local(), at);
        self.weigh();
    }

    /// The table or data of a container is damaged: all its chunks, some, or (`None`) none that matters to restores.
    pub fn damage(
        &mut self,
        id: ContainerId,
        of: Generations,
        object: &str,
        whys: impl IntoIterator<Item = impl AsRef<str>>,
        chunks: Option<&RunSet>,
    ) {
        self.damaged.insert(id.local(), of);
        let at = whys.into_iter().map(|why| self.found.add(object, why.as_ref())).last();
        if let (Some(at), Some(chunks)) = (at, chunks) {
            self.bad.some(id.local(), at, chunks);
        }
        self.weigh();
    }

    /// The table or data of a container is damaged, and nothing of it can be read.
    pub fn ruin(&mut self, e: &ContainerEntry, object: &str, why: &str) {
        self.damaged.insert(e.id.local(), generations(e));
        self.lost(e.id, object, why);
    }

    /// The containers that a repair looks at.
    pub fn to_repair(&self) -> impl Iterator<Item = ContainerId> + '_ {
        self.damaged.iter().map(|(id, _)| id).chain(self.unlisted.iter())
    }

    /// Memory of what is known of containers, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let sets = self.read.memory_bytes() + self.unlisted.memory_bytes();
        self.bad.memory_bytes() + self.seen.memory_bytes() + self.damaged.memory_bytes() + sets
    }

    fn weigh(&mut self) {
        let now = self.memory_bytes();
        self.found.room.weigh(self.weighed, now);
        self.weighed = now;
    }

    /// Forgets what is known of damaged containers. The damaged objects stay.
    pub fn forget(&mut self) {
        self.bad = BadChunks::default();
        self.damaged = ContainerVersions::default();
        (self.read, self.unlisted) = (ContainerSet::default(), ContainerSet::default());
        self.weigh();
    }

    /// Forgets which containers were looked at.
    pub fn forget_seen(&mut self) {
        self.seen = ContainerVersions::default();
        self.weigh();
    }
}

/// A damaged object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The object.
    pub object: String,
    /// What is wrong with it.
    pub why: String,
    /// The snapshots that cannot be restored because of it, as `vm/disk@id`.
    pub snapshots: Vec<String>,
}

/// Room for counting while several threads look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckCounts {
    pub objects: u64,
    pub containers: u64,
    pub data_bytes: u64,
    pub stored_bytes_read: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_again_however_many_there_are() {
        let mut found = Findings::default();
        for round in 0..2 {
            for n in 0..100 {
                assert_eq!(found.add(&format!("object-{n}"), &format!("why-{round}")), ObjectNo(n));
            }
        }
        let (mut damaged, mut more) = (Vec::new(), More::default());
        found.report(&mut damaged, &mut more);
        assert_eq!((damaged.len(), more.into_damage()), (100, None));
        assert!(damaged.iter().all(|d| d.why == "why-0; why-1"));
    }

    #[test]
    fn what_is_not_named_is_counted_and_its_snapshots_are_told() {
        let mut found = Findings::default();
        for object in 0..OBJECTS_MAX + 5 {
            let at = found.add(&format!("object-{object}"), "why");
            found.affects(at, &format!("vm/d@{object}"));
        }
        // More names than there may be: each is told once, at the end.
        for snapshot in 0..NAMES_MAX {
            found.affects(ObjectNo(0), &format!("vm/d@{snapshot}"));
        }
        let (mut damaged, mut more) = (Vec::new(), More::default());
        found.report(&mut damaged, &mut more);
        assert_eq!(damaged.len(), OBJECTS_MAX);
        assert_eq!(damaged.iter().map(|d| d.snapshots.len()).sum::<usize>(), NAMES_MAX);
        let more = more.into_damage().map(|d| (d.object, d.why, d.snapshots.len()));
        let why = "5 more objects are damaged; `sapwood verify VM/DISK` names those of one disk";
        assert_eq!(more, Some(("disks/".into(), why.into(), OBJECTS_MAX + 4)));
    }

    #[test]
    fn of_very_many_that_are_not_named_it_says_how_many_there_are_at_least() {
        let mut found = Findings::default();
        for _ in 0..2 {
            for object in 0..OBJECTS_MAX + COUNTED_MAX + 7 {
                found.add(&object.to_string(), "why");
            }
        }
        let (mut damaged, mut more) = (Vec::new(), More::default());
        found.report(&mut damaged, &mut more);
        assert_eq!(damaged.len(), OBJECTS_MAX);
        let why = more.into_damage().unwrap_or_default().why;
        assert!(why.starts_with("at least 500000 more objects are damaged"), "{why}");
    }

    #[test]
    fn folders_share_the_room_and_what_is_beyond_it_is_counted_once() {
        let room = Room::default();
        let (mut damaged, mut more) = (Vec::new(), More::default());
        for folder in ["a", "b", "c"] {
            let mut found = Findings::within(&room);
            for _ in 0..2 {
                for object in 0..OBJECTS_MAX / 2 {
                    let at = found.add(&format!("{folder}/{object}"), "why");
                    found.affects(at, &format!("vm/{folder}@1"));
                }
            }
            assert!(!found.is_empty(), "there is damage though nothing is listed");
            found.report(&mut damaged, &mut more);
        }
        assert_eq!(damaged.len(), OBJECTS_MAX);
        let more = more.into_damage().unwrap_or_default();
        assert!(more.why.starts_with(&format!("{} more objects", OBJECTS_MAX / 2)), "{}", more.why);
        assert_eq!(more.snapshots, ["vm/c@1"]);
    }

    #[test]
    fn pairs_are_bounded_and_no_snapshot_is_forgotten() {
        let mut affected = Affected::default();
        for snapshot in (0..NAMES_MAX).map(SnapshotIndex) {
            affected.add(0, snapshot);
            affected.add(1, snapshot);
        }
        let (pairs, more) = affected.into_parts();
        assert_eq!(pairs.len(), NAMES_MAX);
        let mut all: BTreeSet<SnapshotIndex> = pairs.into_iter().map(|(_, snapshot)| snapshot).collect();
        all.extend(more);
        assert_eq!(all.len(), NAMES_MAX);
    }
}
