//! Bounds what all findings of a verification name, and says how much memory they take. Beyond it, damaged objects are counted, and
//! the snapshots that they affect are named once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Objects of a report at most; the others are counted. Each takes about 400 bytes.
pub(super) const OBJECTS_MAX: usize = 20_000;
/// Snapshots that objects name at most, all together. Beyond that each is named once.
pub(super) const NAMES_MAX: usize = 200_000;
/// Objects for which there is no room that are told apart, to count each once. Each takes about 16 bytes.
pub(super) const COUNTED_MAX: usize = 500_000;

/// How many objects and snapshots the findings of one verification may still name, and how much memory they take.
#[derive(Clone)]
pub(crate) struct Room(Arc<RoomLeft>);

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

    /// Whether there is room for one more object, which takes it.
    pub(super) fn take_object(&self) -> bool {
        Room::take(&self.0.objects)
    }

    /// The same of the name of a snapshot that an object affects.
    pub(super) fn take_name(&self) -> bool {
        Room::take(&self.0.names)
    }

    /// The same of an object that is counted, and not named.
    pub(super) fn take_count(&self) -> bool {
        Room::take(&self.0.counted)
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
    pub(super) fn weigh(&self, before: usize, now: usize) {
        // Those that were dropped with what they knew are counted until all are counted anew.
        let change = |bytes: usize| Some((bytes + now).saturating_sub(before));
        let _ = self.0.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}
