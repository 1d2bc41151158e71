//! Free blocks: taken next to those that were taken before, and given back.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use format::pool::{BlockGroupNo, PageKind, PoolBlock, SummaryEntry};
use parking_lot::Mutex;

use super::groups::BlockSet;
use super::state::Engine;
use crate::error::{PoolError, Result};

/// How often an operation that found no free block is tried again: others may be faster at taking what was freed.
const ROOM_TRIES: u32 = 16;

/// Blocks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: PoolBlock,
    /// How many.
    pub count: u32,
}

/// Where a stream of writes took its last block: the next one is taken behind it (LiveDFS, 2.3).
#[derive(Default)]
pub struct Stream {
    next: Mutex<Option<(BlockGroupNo, u32)>>,
}

/// How much of the free space may be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// All but the reserve.
    Usual,
    /// All: the change frees more than it takes.
    Freeing,
}

impl Engine {
    /// Free blocks, those that are kept as well.
    pub fn unused_blocks(&self) -> u64 {
        self.groups.total().max(0) as u64
    }

    /// Keeps more blocks for those who are urgent.
    pub fn keep(&self, blocks: u64) {
        self.reserve.fetch_add(blocks as i64, Ordering::Relaxed);
    }

    /// Takes up to `most` blocks in a row, at least one. [`Engine::with_room`] waits for blocks that are not free yet.
    pub fn allocate(&self, stream: &Stream, most: u32, urgency: Urgency) -> Result<Run> {
        let keep = if urgency == Urgency::Usual { self.reserve.load(Ordering::Relaxed) } else { 0 };
        if self.groups.total() <= keep {
            return Err(PoolError::Full);
        }
        let mut place = *stream.next.lock();
        loop {
            let (group, from) = match place {
                Some(place) => place,
                None => (self.groups.emptiest().ok_or(PoolError::Full)?, 0),
            };
            self.load_group(group)?;
            let blocks = self.geometry.data_blocks();
            let taken = {
                let mut locked = self.groups.lock(group);
                locked.take(from, most, blocks).or_else(|| locked.take(0, most, blocks))
            };
            if let Some((first, count)) = taken {
                self.groups.count(group, -i64::from(count));
                *stream.next.lock() = Some((group, first + count));
                return Ok(Run { first: self.geometry.data_block(group, first), count });
            }
            // The group is full, or another stream took its last blocks.
            place = None;
        }
    }

    /// Gives back what was allocated and not used.
    pub fn give_back(&self, run: Run) {
        for block in run.first.0..run.first.0 + u64::from(run.count) {
            self.make_free(PoolBlock(block));
        }
    }

    /// Runs an operation that allocates; if no block is free, runs it again once freed blocks can be used. The caller of
    /// this has no read guard: what is freed waits for all of them.
    pub fn with_room<T>(&self, mut body: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..ROOM_TRIES {
            match body() {
                Err(PoolError::Full) if self.is_freeing() => self.reclaim()?,
                done => return done,
            }
        }
        body()
    }

    /// Whether blocks were freed that cannot be used yet.
    fn is_freeing(&self) -> bool {
        !self.freed.lock().is_empty()
    }

    /// Waits for what was freed to be usable.
    fn reclaim(&self) -> Result<()> {
        self.flush()?;
        // Readers that are under way end soon; one that does not waits for a device that hangs.
        for _ in 0..100 {
            self.release(Vec::new());
            if self.waiting.lock().is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    }

    /// Notes blocks that were freed, before their counts say so: they must not be used yet.
    pub(super) fn note_freed(&self, blocks: &[PoolBlock]) {
        if !blocks.is_empty() {
            self.freed.lock().extend(blocks);
        }
    }

    /// Lets a block be allocated again.
    pub(super) fn make_free(&self, block: PoolBlock) {
        let Some((group, index)) = self.geometry.locate(block) else { return };
        self.pages.remove(block);
        let mut locked = self.groups.lock(group);
        self.freed.lock().remove(&block);
        locked.give_back(index);
        self.groups.count(group, 1);
    }

    /// Reads which blocks of a group are free, and initialises its fingerprint store if it was never used.
    fn load_group(&self, group: BlockGroupNo) -> Result<()> {
        if self.groups.lock(group).taken.is_some() {
            return Ok(());
        }
        let _one = self.initialising.lock();
        let slot = self.geometry.summary_slot(group);
        let summary = self.page(slot.page, PageKind::Summary)?;
        if !SummaryEntry::decode(summary.array(slot.offset)).in_use {
            self.initialise(group)?;
        }
        // A thread that frees a block of the group waits for the lock; one that allocates has to.
        let mut locked = self.groups.lock(group);
        if locked.taken.is_some() {
            return Ok(());
        }
        let mut taken = BlockSet::new(self.geometry.data_blocks());
        for page in 0..self.geometry.fingerprint_pages() {
            self.entries_of(group, page, |index, entry, _| {
                if entry.count != 0 {
                    taken.insert(index);
                }
            })?;
        }
        // After the counts: a freed block is noted before its count changes.
        for block in self.freed.lock().iter() {
            if let Some((of, index)) = self.geometry.locate(*block) {
                if of == group {
                    taken.insert(index);
                }
            }
        }
        locked.taken = Some(taken);
        Ok(())
    }

    /// What the summary says of a group.
    pub fn summary(&self, group: BlockGroupNo) -> Result<SummaryEntry> {
        let slot = self.geometry.summary_slot(group);
        Ok(SummaryEntry::decode(self.page(slot.page, PageKind::Summary)?.array(slot.offset)))
    }

    /// Puts what the summary says of a group, changed now. What is free is read again before a block is taken.
    pub fn renew_summary(&self, group: BlockGroupNo, entry: SummaryEntry) -> Result<()> {
        let slot = self.geometry.summary_slot(group);
        self.transact(|t| {
            let page = t.page(slot.page, PageKind::Summary)?;
            let entry = SummaryEntry { changed: self.filter_epoch(), ..entry };
            t.set(&page, slot.offset, &entry.encode());
            Ok(())
        })?;
        self.groups.reset(group, entry.free);
        Ok(())
    }

    /// Pages of the summary that cannot be read are made anew: the groups are in use, and nothing is free in them. A repair
    /// looks what is.
    pub(super) fn renew_damaged_summaries(&self) -> Result<()> {
        let mut slots: BTreeMap<PoolBlock, Vec<_>> = BTreeMap::new();
        let unknown =
            SummaryEntry { in_use: true, has_unshared: true, changed: self.filter_epoch(), free: 0 };
        for group in (0..self.geometry.groups).map(BlockGroupNo) {
            let slot = self.geometry.summary_slot(group);
            slots.entry(slot.page).or_default().push((slot.offset, unknown.encode().to_vec()));
        }
        for (page, slots) in slots {
            if matches!(self.page(page, PageKind::Summary), Err(PoolError::Damaged { .. })) {
                self.transact(|t| {
                    t.renew(page, PageKind::Summary, &slots);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Initialises the fingerprint store of a group that was never used.
    pub fn initialise(&self, group: BlockGroupNo) -> Result<()> {
        let slot = self.geometry.summary_slot(group);
        self.transact(|t| {
            let summary = t.page(slot.page, PageKind::Summary)?;
            let mut entry = SummaryEntry::decode(summary.array(slot.offset));
            entry.in_use = true;
            entry.changed = self.filter_epoch();
            t.set(&summary, slot.offset, &entry.encode());
            t.fresh_fingerprints(self.geometry.fingerprints_start(group), self.geometry.fingerprint_pages());
            Ok(())
        })
    }

    /// The epoch in which fingerprints change now.
    pub(super) fn filter_epoch(&self) -> u32 {
        self.filter_epoch.load(Ordering::SeqCst)
    }
}
