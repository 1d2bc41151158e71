//! Group commit: the first thread that flushes writes the open batch for all that wait.

use std::sync::atomic::Ordering;

use format::pool::{BatchNo, PoolBlock, BLOCK_BYTES};

use super::state::{Engine, Waiting};
use crate::error::{PoolError, Result};

impl Engine {
    /// Makes durable what was committed before.
    pub fn flush(&self) -> Result<()> {
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
        let (batch, bytes, freed) = {
            let mut commit = self.commit.lock();
            commit.close_set();
            let batch = commit.batch;
            commit.batch = batch.next();
            (batch, commit.writer.finish(self.id, batch), std::mem::take(&mut commit.freed))
        };
        // Data first: the batch names it.
        if self.data_written.swap(false, Ordering::SeqCst) {
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
