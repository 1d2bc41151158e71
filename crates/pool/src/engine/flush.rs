//! Group commit: the first thread that flushes writes the open batch for all that wait.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use format::pool::{BatchNo, JournalRecord, JournalWriter, PageHeader, PoolBlock, BLOCK_BYTES};

use super::journal::unsynced::Unsynced;
use super::page::Page;
use super::state::{Engine, Waiting};
use crate::error::{PoolError, Result};

impl Engine {
    /// Makes durable what was committed before.
    pub fn flush(&self) -> Result<()> {
        if !self.settings.journal {
            self.check_alive()?;
            return self.write_in_place();
        }
        let batch = {
            let commit = self.commit.lock();
            // Nothing is open: what was committed before is durable, or is being written.
            if commit.is_empty() {
                commit.batch.before()
            } else {
                commit.batch
            }
        };
        self.flush_to(batch)
    }

    /// Makes a batch durable, and all before it.
    pub(super) fn flush_to(&self, wanted: BatchNo) -> Result<()> {
        self.check_alive()?;
        if self.durable.load(Ordering::SeqCst) >= wanted.0 {
            return Ok(());
        }
        let mut ring = self.ring.lock();
        // Another one wrote it meanwhile.
        if self.durable.load(Ordering::SeqCst) >= wanted.0 {
            return Ok(());
        }
        self.check_alive()?;
        let (batch, bytes, freed, is_data_first) = {
            let mut commit = self.commit.lock();
            commit.close_set();
            // Under the lock: what a later batch names is not taken for synced.
            let unsynced = Unsynced::take(&self.unsynced);
            let writes_back = std::mem::take(&mut commit.writes_back);
            let is_data_first = match &unsynced {
                Unsynced::Few(sums) if !writes_back => {
                    for (block, sum) in sums {
                        commit.record(JournalRecord::Data { block: *block, sum: *sum });
                    }
                    false
                }
                unsynced => unsynced.is_any(),
            };
            let batch = commit.batch;
            commit.batch = batch.next();
            (batch, commit.writer.finish(self.id, batch), std::mem::take(&mut commit.freed), is_data_first)
        };
        // Data first, because the batch names it; or together, and the batch says what a crash must find.
        if is_data_first {
            self.sync()?;
        }
        let blocks = (bytes.len() / BLOCK_BYTES) as u32;
        let start = ring.place(batch, blocks).ok_or_else(|| {
            self.fail(PoolError::Damaged {
                what: format!("the journal of {}", self.device.location()),
                why: format!("no room for {blocks} blocks beside {}", ring.used()),
            })
        })?;
        self.journal_used.store(ring.used(), Ordering::Relaxed);
        self.write_at(PoolBlock(self.geometry.journal_start().0 + u64::from(start)), &bytes)?;
        self.sync()?;
        self.durable.store(batch.0, Ordering::SeqCst);
        drop(ring);
        self.release(freed);
        Ok(())
    }

    /// Takes what a durable batch freed, and lets blocks be used again that no reader has any more.
    pub(super) fn release(&self, freed: Vec<PoolBlock>) {
        let free = {
            let mut waiting = self.waiting.lock();
            let current = self.epochs.current();
            if !freed.is_empty() {
                waiting.push(Waiting { epoch: current, blocks: freed });
            }
            if waiting.is_empty() {
                return;
            }
            self.epochs.advance();
            let current = self.epochs.advance();
            let ready = waiting.partition_point(|w| w.epoch + 2 <= current);
            waiting.drain(..ready).flat_map(|w| w.blocks).collect::<Vec<_>>()
        };
        for block in free {
            self.make_free(block);
        }
    }
}

impl Engine {
    /// Without a journal (a variant that LiveDFS 4.1 compares with): writes every page that has changed to its place, durably,
    /// after the data that it names. After a power cut such a pool may be wrong, and nothing notices it.
    pub(super) fn write_in_place(&self) -> Result<()> {
        let _one = self.checkpointing.lock();
        // A page that is freed meanwhile must not be used for data before it was written.
        let guard = self.read_guard();
        let (batch, copies, freed) = {
            let mut commit = self.commit.lock();
            commit.close_set();
            commit.writer = JournalWriter::default();
            let batch = commit.batch;
            commit.batch = batch.next();
            let dirty = std::mem::take(&mut commit.dirty);
            let copy = |page: Arc<Page>| {
                page.set_dirty_since(None);
                let mut bytes: Box<[u8; BLOCK_BYTES]> = page.bytes().clone();
                PageHeader::seal(self.id, page.block, batch, &mut bytes);
                (page, bytes)
            };
            let copies: Vec<_> = dirty.into_values().map(copy).collect();
            (batch, copies, std::mem::take(&mut commit.freed))
        };
        if Unsynced::take(&self.unsynced).is_any() {
            self.sync()?;
        }
        for (page, mut bytes) in copies {
            self.write_at(page.block, &bytes[..])?;
            if let Some(twin) = self.geometry.catalog_twin(page.block) {
                PageHeader::seal(self.id, twin, batch, &mut bytes);
                self.write_at(twin, &bytes[..])?;
            }
            if let Some(group) = self.group_of(page.block) {
                self.fingerprint_writes[group.0 as usize].fetch_add(1, Ordering::SeqCst);
            }
        }
        drop(guard);
        self.sync()?;
        self.durable.store(batch.0, Ordering::SeqCst);
        self.release(freed);
        Ok(())
    }
}
