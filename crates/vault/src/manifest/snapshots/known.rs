//! The snapshots of a disk as far as they were read: all of them, or those that a manifest tells without its pages.
//!
//! A reverse pass changes one of the newest snapshots and asks what the others reference. Of older ones the reference index
//! tells that: their pages need not be read, unless the index leaves a question open.

use crate::manifest::snapshots::whole::Whole;
use format::{Indexed, Manifest, Reverse, SnapId, SnapshotEntry, SnapshotState};
use std::collections::HashSet;
use std::ops::Deref;

/// A manifest, and all its snapshots or the newest ones.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    root: &'a Manifest,
    /// In the order of their commits; with none between them that is not here.
    pub snapshots: &'a [SnapshotEntry],
    /// Older ones that have changed since their page was put.
    pub changed: &'a [SnapshotEntry],
    /// Whether `snapshots` are all of them.
    pub is_whole: bool,
}

impl Deref for Known<'_> {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        self.root
    }
}

impl<'a> Known<'a> {
    /// All of them.
    pub fn all(m: &'a Whole) -> Known<'a> {
        Known { root: m.root(), snapshots: &m.snapshots, changed: &[], is_whole: true }
    }

    /// Those that the manifest tells, if no other one waits for a reverse pass, and the reference index has the recipes of
    /// all others.
    pub fn newest(m: &'a Manifest) -> Option<Known<'a>> {
        let is_settled = !may_have_older_pending(m) && m.older.iter().all(|at| !at.has_unindexed);
        let is_whole = m.older.is_empty();
        is_settled.then_some(Known { root: m, snapshots: &m.recent, changed: &m.changed, is_whole })
    }

    /// The manifest alone.
    pub fn root(&self) -> &'a Manifest {
        self.root
    }

    /// Those whose recipes are known.
    pub fn told(&self) -> impl DoubleEndedIterator<Item = &'a SnapshotEntry> {
        self.changed.iter().chain(self.snapshots)
    }

    /// The ids of all of which it is known whether they stay, and with which recipe.
    pub fn ids(&self) -> HashSet<SnapId> {
        let gone = if self.is_whole { &[] } else { &self.root.gone[..] };
        self.told().map(|s| s.id).chain(gone.iter().copied()).collect()
    }

    /// Whether a manifest, whose snapshots are `all`, has none that was not known. `ids` are those that were.
    pub fn has_all(&self, m: &Manifest, all: &[SnapshotEntry], ids: &HashSet<SnapId>) -> bool {
        let are_known = |some: &[SnapshotEntry]| some.iter().all(|s| ids.contains(&s.id));
        if self.is_whole {
            are_known(all)
        } else {
            m.older == self.root.older && are_known(&m.recent)
        }
    }
}

/// Whether an older snapshot may wait for a reverse pass. Only its page tells for certain.
pub(crate) fn may_have_older_pending(m: &Manifest) -> bool {
    m.older.iter().any(|at| at.has_pending) || m.changed.iter().any(is_pending)
}

/// Whether a snapshot waits for a reverse pass.
pub(crate) fn is_pending(s: &SnapshotEntry) -> bool {
    s.reverse == Reverse::Pending
}

/// Whether a snapshot can be put into the reference index, and is not.
pub(crate) fn is_to_be_indexed(s: &SnapshotEntry) -> bool {
    s.reverse == Reverse::Done && s.indexed == Indexed::No
}

/// The oldest pair of neighbours of which the older one waits for its reverse pass.
pub(crate) fn pending_pair(snapshots: &[SnapshotEntry]) -> Option<[&SnapshotEntry; 2]> {
    let is_live = |s: &SnapshotEntry| s.state == SnapshotState::Live;
    snapshots.windows(2).find(|w| is_pending(&w[0]) && w.iter().all(is_live)).map(|w| [&w[0], &w[1]])
}
