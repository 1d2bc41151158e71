//! Which snapshots of a disk are affected, by what.

use super::room::NAMES_MAX;
use std::collections::BTreeSet;

/// A snapshot's place in the list of all snapshots of its disk, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SnapshotIndex(pub usize);

/// Which snapshots objects affect, as far as there is room.
#[derive(Clone)]
pub(crate) struct Affected<O> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
