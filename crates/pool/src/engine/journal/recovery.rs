//! What the journal holds is made anew after a crash.
//!
//! Batches from the tail on are applied in order, to pages in memory. Every record sets bytes, so it does not matter whether
//! a page has them already. The time depends on the journal's length, not on the pool's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use format::pool::{
    BatchHeader, BatchNo, DataSum, FingerprintEntry, Geometry, JournalReader, JournalRecord, JournalTail,
    PageHeader, PoolBlock, PoolId, Superblock, BLOCK_BYTES,
};

use super::unsynced::TOGETHER_MAX;
use crate::device::Device;
use crate::engine::page::Page;
use crate::error::{PoolError, Result};

/// What a replay gives.
pub(in crate::engine) struct Replayed {
    /// Pages that the journal changed.
    pub pages: Vec<Arc<Page>>,
    /// The next batch, and where it goes.
    pub next: JournalTail,
    /// Batches in the journal, with their places.
    pub batches: Vec<JournalTail>,
    /// Where a batch begins that does not count, because not all data that it names is there: it was not yet durable.
    pub dropped: Option<PoolBlock>,
}

struct Replay<'a> {
    device: &'a dyn Device,
    pool: PoolId,
    geometry: Geometry,
    pages: HashMap<PoolBlock, Replaying>,
    /// Pages that may be half written.
    written_back: HashSet<PoolBlock>,
}

#[derive(Clone)]
struct Replaying {
    bytes: Box<[u8; BLOCK_BYTES]>,
    /// Why the page is not what it should be, if nothing explains it.
    damage: Option<String>,
}

/// Replays the journal. If the pool was closed, the blocks where a batch could begin are all that is read.
pub(in crate::engine) fn replay(
    device: &dyn Device,
    superblock: &Superblock,
    was_closed: bool,
) -> Result<Replayed> {
    let mut replay = Replay {
        device,
        pool: superblock.pool,
        geometry: superblock.geometry,
        pages: HashMap::new(),
        written_back: HashSet::new(),
    };
    let mut next = superblock.tail;
    let (mut batches, mut dropped) = (Vec::new(), None);
    let mut found = replay.read_batch(next)?;
    while let Some((place, bytes)) = found {
        let behind = place + (bytes.len() / BLOCK_BYTES) as u32;
        let block = if behind >= superblock.geometry.journal_blocks { 0 } else { behind };
        let later = JournalTail { batch: next.batch.next(), block };
        found = replay.read_batch(later)?;
        // A later one was written when this one was durable, with its data.
        let is_last = found.is_none();
        let counts = replay.apply_whole(&bytes, is_last).map_err(|e| match e {
            PoolError::Damaged { what, why } => {
                PoolError::Damaged { what: format!("{what}, in batch {} of the journal", next.batch), why }
            }
            other => other,
        })?;
        if !counts {
            dropped = Some(replay.journal_block(place));
            break;
        }
        batches.push(JournalTail { batch: next.batch, block: place });
        next = later;
    }
    if !was_closed || !batches.is_empty() {
        replay.check_end(next.batch)?;
    }
    Ok(Replayed { pages: replay.finish()?, next, batches, dropped })
}

/// Blocks of the journal that are read at once to look for later batches.
const PIECE_BLOCKS: u32 = 256;

impl Replay<'_> {
    /// A batch and its place: where the one before ended, or at the ring's beginning.
    fn read_batch(&self, at: JournalTail) -> Result<Option<(u32, Vec<u8>)>> {
        for place in [at.block, 0] {
            if let Some(bytes) = self.batch_at(place, |batch| batch == at.batch)? {
                return Ok(Some((place, bytes)));
            }
        }
        Ok(None)
    }

    /// The batch that starts at a block of the journal, if it is whole and its number is wanted.
    fn batch_at(&self, place: u32, wanted: impl Fn(BatchNo) -> bool) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.read_journal(place, &mut bytes)?;
        let Some(header) = BatchHeader::peek(&bytes).filter(|header| wanted(header.batch)) else {
            return Ok(None);
        };
        if header.blocks() > self.geometry.journal_blocks - place {
            return Ok(None);
        }
        bytes.resize(header.blocks() as usize * BLOCK_BYTES, 0);
        self.read_journal(place, &mut bytes)?;
        Ok(JournalReader::open(self.pool, &bytes).is_ok().then_some(bytes))
    }

    fn read_journal(&self, place: u32, bytes: &mut [u8]) -> Result<()> {
        self.read(self.journal_block(place), bytes)
    }

    fn journal_block(&self, place: u32) -> PoolBlock {
        PoolBlock(self.geometry.journal_start().0 + u64::from(place))
    }

    fn read(&self, block: PoolBlock, bytes: &mut [u8]) -> Result<()> {
        let what = || format!("{}: reading block {block}", self.device.location());
        self.device.read_at(bytes, block.offset()).map_err(|e| PoolError::io(what())(e))
    }

    /// A crash leaves one batch half written at most. A later one that is whole says that this one was whole, too.
    fn check_end(&self, end: BatchNo) -> Result<()> {
        let mut piece = vec![0; PIECE_BLOCKS as usize * BLOCK_BYTES];
        for first in (0..self.geometry.journal_blocks).step_by(PIECE_BLOCKS as usize) {
            let count = PIECE_BLOCKS.min(self.geometry.journal_blocks - first);
            piece.truncate(count as usize * BLOCK_BYTES);
            self.read_journal(first, &mut piece)?;
            for (place, block) in (first..).zip(piece.chunks_exact(BLOCK_BYTES)) {
                let is_later = BatchHeader::peek(block).is_some_and(|header| header.batch > end);
                if is_later && self.batch_at(place, |batch| batch > end)?.is_some() {
                    return Err(PoolError::Damaged {
                        what: format!("batch {end} of the journal of {}", self.device.location()),
                        why: format!(
                            "it cannot be read, but a later one can, at block {place} of the journal"
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    /// Applies a batch. The last one was perhaps not durable, and the data that was synced together with it may not be there:
    /// nothing of it is applied then. Returns whether the batch counts.
    fn apply_whole(&mut self, batch: &[u8], is_last: bool) -> Result<bool> {
        let data = if is_last { self.data_of(batch)? } else { Vec::new() };
        if data.is_empty() {
            return self.apply(batch).map(|()| true);
        }
        if data.len() > TOGETHER_MAX {
            return Err(self.damaged(format!("it has {} data records", data.len())));
        }
        let before = self.before(batch)?;
        let written_back = self.written_back.clone();
        self.apply(batch)?;
        for (block, sum) in data {
            if !self.is_in_use(block)? {
                // Nothing names it: a write that had not ended, or that was overwritten at once. It may hold something else by now.
                continue;
            }
            let mut content = vec![0; BLOCK_BYTES];
            // One that cannot be read is damaged, not missing: who reads it is told.
            if self.read(block, &mut content).is_ok() && DataSum::of(self.pool, &content) != sum {
                for (page, was) in before {
                    match was {
                        Some(was) => drop(self.pages.insert(page, was)),
                        None => drop(self.pages.remove(&page)),
                    }
                }
                self.written_back = written_back;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The data that was synced together with a batch.
    fn data_of(&self, batch: &[u8]) -> Result<Vec<(PoolBlock, DataSum)>> {
        let mut data = Vec::new();
        self.each_record(batch, |record| {
            if let JournalRecord::Data { block, sum } = record {
                data.push((block, sum));
            }
            Ok(())
        })?;
        Ok(data)
    }

    /// The pages that a batch changes, as they are now.
    fn before(&self, batch: &[u8]) -> Result<HashMap<PoolBlock, Option<Replaying>>> {
        let mut before = HashMap::new();
        self.each_record(batch, |record| {
            let pages = match record {
                JournalRecord::Set { page, .. } | JournalRecord::Forget { page } => page.0..page.0 + 1,
                JournalRecord::Fresh { first, count } => first.0..first.0 + u64::from(count),
                JournalRecord::WriteBack { .. } | JournalRecord::Data { .. } => return Ok(()),
            };
            for page in pages.map(PoolBlock) {
                self.check_place(page)?;
                before.entry(page).or_insert_with(|| self.pages.get(&page).cloned());
            }
            Ok(())
        })?;
        Ok(before)
    }

    fn each_record(&self, batch: &[u8], mut each: impl FnMut(JournalRecord<'_>) -> Result<()>) -> Result<()> {
        let wrong = |why| PoolError::damaged(format!("the journal of {}", self.device.location()), why);
        let mut records = JournalReader::open(self.pool, batch).map_err(wrong)?;
        while let Some(record) = records.next_record().map_err(wrong)? {
            each(record)?;
        }
        Ok(())
    }

    /// Whether a block is in use as data after the batches so far. What no batch has changed is not asked for.
    fn is_in_use(&self, block: PoolBlock) -> Result<bool> {
        let why = || format!("it names block {block}, which is not a data block");
        let slot = self.geometry.fingerprint_slot(block).ok_or_else(|| self.damaged(why()))?;
        let Some(page) = self.pages.get(&slot.page) else { return Ok(false) };
        let count: [u8; FingerprintEntry::COUNT_BYTES] = std::array::from_fn(|n| page.bytes[slot.offset + n]);
        let entry = FingerprintEntry::decode(count);
        Ok(entry.count > 0 && !entry.is_node)
    }

    fn apply(&mut self, batch: &[u8]) -> Result<()> {
        let location = self.device.location();
        let wrong = |why| PoolError::damaged(format!("the journal of {location}"), why);
        let mut records = JournalReader::open(self.pool, batch).map_err(wrong)?;
        while let Some(record) = records.next_record().map_err(wrong)? {
            match record {
                JournalRecord::Set { page, offset, bytes } => {
                    self.page(page)?.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
                }
                JournalRecord::Fresh { first, count } => {
                    for block in first.0..first.0 + u64::from(count) {
                        self.check_place(PoolBlock(block))?;
                        let zeros = Replaying { bytes: Box::new([0; BLOCK_BYTES]), damage: None };
                        self.pages.insert(PoolBlock(block), zeros);
                    }
                }
                JournalRecord::Forget { page } => {
                    self.pages.remove(&page);
                    self.written_back.remove(&page);
                }
                JournalRecord::WriteBack { first, count } => {
                    let blocks = first.0..first.0 + u64::from(count.min(1 << 20));
                    self.written_back.extend(blocks.map(PoolBlock));
                }
                // Only the last batch's may not be there.
                JournalRecord::Data { .. } => {}
            }
        }
        Ok(())
    }

    fn check_place(&self, block: PoolBlock) -> Result<()> {
        let pages = self.geometry.catalog_start().0..self.geometry.filter_start(0).0;
        if pages.contains(&block.0)
            || (self.geometry.groups_start().0..self.geometry.blocks).contains(&block.0)
        {
            return Ok(());
        }
        Err(self.damaged(format!("it changes block {block}, where no page lies")))
    }

    fn damaged(&self, why: String) -> PoolError {
        PoolError::Damaged { what: format!("the journal of {}", self.device.location()), why }
    }

    fn page(&mut self, block: PoolBlock) -> Result<&mut Replaying> {
        if !self.pages.contains_key(&block) {
            self.check_place(block)?;
            let first = self.read_page(block);
            let (bytes, damage) = match (first, self.geometry.catalog_twin(block)) {
                (Ok((bytes, None)), _) => (bytes, None),
                // Its second copy has at least what was there when the batches began.
                (first, Some(twin)) => match self.read_page(twin) {
                    Ok((bytes, None)) => (bytes, None),
                    _ => first?,
                },
                (first, None) => first?,
            };
            self.pages.insert(block, Replaying { bytes, damage });
        }
        self.pages.get_mut(&block).ok_or_else(|| PoolError::Refused("no page".into()))
    }

    /// A page, and what is wrong with it.
    fn read_page(&self, block: PoolBlock) -> Result<(Box<[u8; BLOCK_BYTES]>, Option<String>)> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        self.read(block, &mut bytes[..])?;
        let damage = PageHeader::open(self.pool, block, &bytes).err().map(|why| why.to_string());
        Ok((bytes, damage))
    }

    /// The pages; an error where one was damaged, not half written.
    fn finish(self) -> Result<Vec<Arc<Page>>> {
        let written_back = self.written_back;
        self.pages
            .into_iter()
            .map(|(block, page)| match page.damage {
                Some(why) if !written_back.contains(&block) => Err(PoolError::Damaged {
                    what: format!("page {block} of {}", self.device.location()),
                    why,
                }),
                _ => Ok(Arc::new(Page::new(block, page.bytes))),
            })
            .collect()
    }
}
