//! Which data a sync will make durable.

use std::collections::HashMap;

use format::pool::{DataSum, PoolBlock, PoolId, BLOCK_BYTES};
use parking_lot::Mutex;

/// So many blocks are synced together with their batch at most: a crash has them compared. More are worth a sync of their own.
pub(in crate::engine) const TOGETHER_MAX: usize = 256;

/// Data that was written since the last flush began, which syncs it.
pub(in crate::engine) enum Unsynced {
    /// A few blocks.
    Few(HashMap<PoolBlock, DataSum>),
    /// Many, or nobody knows which.
    Unknown,
}

impl Unsynced {
    /// Notes that blocks were written.
    pub fn add(unsynced: &Mutex<Self>, pool: PoolId, first: PoolBlock, data: &[u8]) {
        let count = data.len() / BLOCK_BYTES;
        let is_few = |unsynced: &Self| match unsynced {
            Self::Few(sums) => sums.len() + count <= TOGETHER_MAX,
            Self::Unknown => false,
        };
        let mut fresh = Vec::new();
        if is_few(&unsynced.lock()) {
            let blocks = (first.0..).map(PoolBlock).zip(data.chunks_exact(BLOCK_BYTES));
            fresh.extend(blocks.map(|(block, content)| (block, DataSum::of(pool, content))));
        }
        let mut unsynced = unsynced.lock();
        match &mut *unsynced {
            Self::Few(sums) if fresh.len() == count && sums.len() + count <= TOGETHER_MAX => {
                sums.extend(fresh);
            }
            unsynced => *unsynced = Self::Unknown,
        }
    }

    /// Takes what is noted: all of it will be synced.
    pub fn take(unsynced: &Mutex<Self>) -> Self {
        std::mem::replace(&mut *unsynced.lock(), Self::Few(HashMap::new()))
    }

    /// Whether there is any.
    pub fn is_any(&self) -> bool {
        match self {
            Self::Few(sums) => !sums.is_empty(),
            Self::Unknown => true,
        }
    }
}
