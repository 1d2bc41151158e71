//! The damaged objects that were found in one folder.

use super::bad_chunks::ObjectNo;
use super::damage::{Damage, More};
use super::room::Room;
use crate::base::error::{fault, Result};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Different things said of one object at most.
const WHYS_MAX: usize = 3;
/// Objects that are found without a map.
const OBJECTS_FEW: usize = 8;

/// Damaged objects in the order in which they were found.
#[derive(Default)]
pub(crate) struct Findings {
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
        } else if self.room.take_count() {
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
        if !self.room.take_object() {
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
        if !self.room.take_name() {
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

    /// What is known of the containers of the folder takes `now` bytes, and no longer `before`.
    pub(super) fn weigh(&self, before: usize, now: usize) {
        self.room.weigh(before, now);
    }

    /// Adds the damaged objects to a report, each once, and to `more` what there is no room for.
    pub fn report(self, damaged: &mut Vec<Damage>, more: &mut More) {
        more.count(self.unlisted.len() as u64, self.has_more);
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

#[cfg(test)]
mod tests {
    use super::super::room::{COUNTED_MAX, NAMES_MAX, OBJECTS_MAX};
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
}
