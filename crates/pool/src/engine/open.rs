//! A pool is made, opened and closed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use format::pool::{
    BatchNo, BlockGroupNo, Geometry, JournalTail, PageHeader, PageKind, PoolBlock, PoolId, Slot,
    SummaryEntry, Superblock, BLOCK_BYTES,
};
use parking_lot::{Condvar, Mutex};

use super::commit::Commit;
use super::epochs::Epochs;
use super::groups::BlockGroups;
use super::journal::recovery::replay;
use super::journal::ring::Ring;
use super::journal::unsynced::Unsynced;
use super::page::PageCache;
use super::state::{Engine, Settings, Wanted};
use crate::clocks::Clocks;
use crate::device::Device;
use crate::error::{PoolError, Result};
use crate::filter::Filter;

/// Writes an empty pool. What was on the device is lost.
pub fn format_device(device: &dyn Device, id: PoolId, geometry: Geometry) -> Result<()> {
    let failed = |what: &str| PoolError::io(format!("{}: {what}", device.location()));
    let mut page = [0; BLOCK_BYTES];
    // The superblocks last: before them there is no pool.
    device
        .write_at(&page, 0)
        .and_then(|()| device.write_at(&page, BLOCK_BYTES as u64))
        .map_err(failed("writing"))?;
    // An old pool's batches would be taken for this one's, if it had the same id.
    for n in 0..geometry.journal_blocks {
        let block = PoolBlock(geometry.journal_start().0 + u64::from(n));
        device.read_at(&mut page, block.offset()).map_err(failed("reading"))?;
        if page != [0; BLOCK_BYTES] {
            device.write_at(&[0; BLOCK_BYTES], block.offset()).map_err(failed("writing"))?;
        }
    }
    for n in 0..geometry.catalog_blocks {
        let block = PoolBlock(geometry.catalog_start().0 + u64::from(n));
        for copy in [Some(block), geometry.catalog_twin(block)].into_iter().flatten() {
            page.fill(0);
            put_page(device, id, copy, PageKind::Catalog, &mut page)?;
        }
    }
    let mut group = 0;
    for n in 0..geometry.summary_blocks {
        let block = PoolBlock(geometry.summary_start().0 + u64::from(n));
        page.fill(0);
        while group < geometry.groups {
            let Slot { page: of, offset } = geometry.summary_slot(BlockGroupNo(group));
            if of != block {
                break;
            }
            let entry = SummaryEntry { free: geometry.data_blocks(), ..SummaryEntry::default() };
            page[offset..offset + SummaryEntry::BYTES].copy_from_slice(&entry.encode());
            group += 1;
        }
        put_page(device, id, block, PageKind::Summary, &mut page)?;
    }
    device.sync().map_err(failed("syncing"))?;
    let tail = JournalTail { batch: BatchNo::FIRST, block: 0 };
    let mut superblock =
        Superblock { pool: id, written: 1, geometry, tail, is_clean: true, filter: None, epoch: 1, cuts: 0 };
    for _ in 0..2 {
        superblock.written += 1;
        let at = PoolBlock(superblock.written % 2).offset();
        device.write_at(&superblock.encode(), at).map_err(failed("writing the superblock"))?;
        device.sync().map_err(failed("syncing"))?;
    }
    Ok(())
}

fn put_page(
    device: &dyn Device,
    id: PoolId,
    block: PoolBlock,
    kind: PageKind,
    page: &mut [u8; BLOCK_BYTES],
) -> Result<()> {
    page[PageHeader::KIND_AT..PageHeader::KIND_AT + 2].copy_from_slice(&PageHeader::kind_bytes(kind, 0));
    PageHeader::seal(id, block, BatchNo::NONE, page);
    let what = format!("{}: writing block {block}", device.location());
    device.write_at(&page[..], block.offset()).map_err(PoolError::io(what))
}

/// The superblock that counts, and whether the other one can be read as well.
fn read_superblock(device: &dyn Device) -> Result<(Superblock, bool)> {
    let location = device.location();
    let mut found: Option<Superblock> = None;
    let mut wrong = None;
    if device.size() < 2 * BLOCK_BYTES as u64 {
        return Err(PoolError::Refused(format!("{location} is not a pool: it is too short")));
    }
    for n in 0..2 {
        let mut block = [0; BLOCK_BYTES];
        let what = format!("{location}: reading block {n}");
        device.read_at(&mut block, PoolBlock(n).offset()).map_err(PoolError::io(what))?;
        if let Some(version) = Superblock::earlier_version(&block) {
            return Err(PoolError::Refused(format!(
                "{location}: a pool of version {version} of the format, which no release has written: make a new pool, \
                 and copy its volumes with the program that made it"
            )));
        }
        match Superblock::decode(&block) {
            Ok(superblock) if found.is_none_or(|f| f.written < superblock.written) => {
                found = Some(superblock)
            }
            Ok(_) => {}
            Err(why) => wrong = Some(PoolError::damaged(format!("the superblock of {location}"), why)),
        }
    }
    let are_both_whole = wrong.is_none();
    let superblock = match (found, wrong) {
        (Some(superblock), _) => superblock,
        (None, Some(wrong)) => return Err(wrong),
        (None, None) => return Err(PoolError::Refused(format!("{location} is not a pool"))),
    };
    let size = device.size() / BLOCK_BYTES as u64;
    if superblock.geometry.blocks > size {
        return Err(PoolError::Damaged {
            what: location,
            why: format!("the pool has {} blocks, the device {size}", superblock.geometry.blocks),
        });
    }
    Ok((superblock, are_both_whole))
}

/// What cannot be read follows from the rest of the pool.
fn with_advice(error: PoolError) -> PoolError {
    match error {
        PoolError::Damaged { what, why } => {
            let why = format!("{why}; `sapwood pool check --repair` makes it anew");
            PoolError::Damaged { what, why }
        }
        error => error,
    }
}

impl Engine {
    /// Opens a pool, after replaying what its journal holds.
    pub fn open(device: Box<dyn Device>, settings: Settings) -> Result<Self> {
        let (superblock, are_both_whole) = read_superblock(&*device)?;
        let geometry = superblock.geometry;
        // A damaged superblock may be the later one, of a pool that was not closed.
        let was_closed = superblock.is_clean && are_both_whole;
        let replayed = replay(&*device, &superblock, was_closed)?;
        if let Some(dropped) = replayed.dropped {
            // Else it could come back: the data that it names may be written again, for something else.
            let what = || format!("{}: writing block {dropped}", device.location());
            let done = device.write_at(&[0; BLOCK_BYTES], dropped.offset()).and_then(|()| device.sync());
            done.map_err(|e| PoolError::io(what())(e))?;
        }
        let mut ring = Ring::new(geometry.journal_blocks, replayed.next.block);
        ring.adopt(&replayed.batches, replayed.next.block);
        let engine = Engine {
            id: superblock.pool,
            geometry,
            filter: Filter::new(geometry.blocks),
            clocks: Clocks::default(),
            settings,
            pages: PageCache::new(settings.cache_pages),
            commit: Mutex::new(Commit::new(replayed.next.batch)),
            journal_used: AtomicU32::new(ring.used()),
            ring: Mutex::new(ring),
            durable: AtomicU64::new(replayed.next.batch.before().0),
            from_twins: Mutex::default(),
            unsynced: Mutex::new(Unsynced::Unknown),
            freed: Mutex::new(HashSet::new()),
            waiting: Mutex::new(Vec::new()),
            initialising: Mutex::new(()),
            fingerprint_writes: (0..geometry.groups).map(|_| AtomicU32::new(0)).collect(),
            groups: BlockGroups::new(std::iter::empty()),
            epochs: Epochs::default(),
            superblock: Mutex::new(superblock),
            checkpointing: Mutex::new(()),
            filter_epoch: AtomicU32::new(superblock.epoch + 1),
            reserve: AtomicI64::new(
                i64::from(geometry.data_blocks()).min(i64::from(geometry.groups) * 8 + 16),
            ),
            failure: OnceLock::new(),
            wanted: (Mutex::new(Wanted::Nothing), Condvar::new()),
            device,
        };
        {
            let mut commit = engine.commit.lock();
            for page in replayed.pages {
                page.set_dirty_since(Some(superblock.tail.batch));
                commit.dirty.insert(page.block, std::sync::Arc::clone(&page));
                engine.pages.put(page);
            }
        }
        if settings.for_repair {
            engine.renew_damaged_summaries()?;
        }
        let summaries: Vec<SummaryEntry> = (0..geometry.groups)
            .map(|g| engine.summary(BlockGroupNo(g)).map_err(with_advice))
            .collect::<Result<_>>()?;
        if summaries.iter().all(|summary| !summary.in_use) {
            engine.filter.complete();
        }
        let free: Vec<u32> = summaries.iter().map(|summary| summary.free).collect();
        let engine = Engine { groups: BlockGroups::new(free.into_iter()), ..engine };
        let epoch = engine.filter_epoch();
        engine.write_superblock(|s| {
            s.is_clean = false;
            s.cuts += u64::from(!was_closed);
            s.epoch = epoch;
        })?;
        Ok(engine)
    }

    /// Writes everything to its place.
    pub fn close(&self) -> Result<()> {
        self.end_maintenance();
        self.flush()?;
        while !self.commit.lock().dirty.is_empty() {
            self.checkpoint()?;
        }
        // The checkpoints appended to the journal: the tail moves behind them.
        self.checkpoint()?;
        self.write_filter()?;
        self.write_superblock(|s| s.is_clean = true)?;
        self.failure.set("it was closed".into()).unwrap_or(());
        Ok(())
    }

    /// Free blocks that a write may take.
    pub fn free_blocks(&self) -> u64 {
        (self.groups.total() - self.reserve.load(Ordering::Relaxed)).max(0) as u64
    }

    /// Data blocks in all.
    pub fn data_blocks(&self) -> u64 {
        u64::from(self.geometry.groups) * u64::from(self.geometry.data_blocks())
    }
}
