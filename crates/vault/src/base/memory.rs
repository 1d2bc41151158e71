//! Memory that is given back to the system, and that caches make room with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What may stay with the allocator once it is freed, in bytes: it is used again. Most objects are far smaller.
pub(crate) const KEPT_BYTES: usize = 8 << 20;

static GIVE_BACK: OnceLock<fn()> = OnceLock::new();

/// Has memory that was freed given back to the system by `give_back`, which knows the allocator of the program. The first one
/// to ask for that stays; without any, the allocator does as it likes.
///
/// Allocators keep what is freed, some for each thread that had allocated it: where threads decode a large object one after
/// the other, each would keep as much.
pub fn give_memory_back_with(give_back: fn()) {
    let _ = GIVE_BACK.set(give_back);
}

/// Gives memory that was freed back to the system.
pub(crate) fn give_back() {
    if let Some(give_back) = GIVE_BACK.get() {
        give_back();
    }
}

/// Memory for what is being decoded, which other caches of the same process make room for.
#[derive(Clone, Default)]
pub(crate) struct Room {
    make: Option<Arc<dyn Fn() + Send + Sync>>,
    /// What is being decoded now, in bytes.
    taken: Arc<AtomicU64>,
}

/// Room that is taken, until this is dropped.
pub(crate) struct RoomTaken {
    of: Arc<AtomicU64>,
    bytes: u64,
}

impl Room {
    /// Room that `make` makes whenever some of it was taken.
    pub fn made_by(make: impl Fn() + Send + Sync + 'static) -> Room {
        Room { make: Some(Arc::new(make)), taken: Arc::default() }
    }

    /// Takes so many bytes. The caller holds no lock of a cache that may have to give some up.
    pub fn take(&self, bytes: u64) -> RoomTaken {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        if let Some(make) = &self.make {
            make();
        }
        RoomTaken { of: self.taken.clone(), bytes }
    }

    /// All that is taken now, in bytes.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for RoomTaken {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
