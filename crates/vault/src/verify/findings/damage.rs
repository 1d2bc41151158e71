//! What a report says: damaged objects, and how many it has no room for.

use super::room::OBJECTS_MAX;
use std::collections::BTreeSet;

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

/// What a report does not name one by one: it would not fit into memory.
#[derive(Default)]
pub(crate) struct More {
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

    /// Takes in so many objects that are not named; `has_more`: and others.
    pub(super) fn count(&mut self, objects: u64, has_more: bool) {
        self.objects += objects;
        self.has_more |= has_more;
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
