//! Pages are written to their places, so that the journal's tail can move on.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use format::pool::{JournalRecord, PageHeader, PoolBlock, BLOCK_BYTES};

use super::page::Page;
use super::state::{Engine, Wanted};
use crate::error::Result;

/// Pages that are copied at once under the commit lock.
const WRITTEN_AT_ONCE: usize = 512;
/// How long what was written stays only in memory if nobody flushes.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// A copy of a page, sealed.
struct Copy {
    page: Arc<Page>,
    version: u64,
    bytes: Box<[u8; BLOCK_BYTES]>,
}

impl Engine {
    /// Waits until there is room for another transaction: in the open batch, in the journal, among dirty pages.
    pub(super) fn make_room(&self) -> Result<()> {
        self.check_alive()?;
        let (batch_bytes, dirty) = {
            let commit = self.commit.lock();
            (commit.writer.len(), commit.dirty.len())
        };
        let journal_bytes = self.geometry.journal_blocks as usize * BLOCK_BYTES;
        let most = (journal_bytes / 16).min(8 << 20);
        if batch_bytes > most {
            self.flush()?;
        } else if batch_bytes > most / 4 {
            // Nobody waits: the next batch is filled while this one is written.
            self.want(Wanted::Flush);
        }
        let used = self.journal_used.load(Ordering::Relaxed);
        let journal = self.geometry.journal_blocks;
        if used > journal / 8 * 5 || dirty > self.dirty_max() {
            self.checkpoint()?;
        } else if used > journal / 2 || dirty > self.dirty_max() / 2 {
            self.want(Wanted::Checkpoint);
        }
        Ok(())
    }

    fn dirty_max(&self) -> usize {
        self.settings.cache_pages / 2
    }

    /// Writes all pages back that are dirty now, and moves the tail of the journal on.
    pub fn checkpoint(&self) -> Result<()> {
        let journal_used = self.journal_used.load(Ordering::Relaxed);
        let _one = self.checkpointing.lock();
        // Another one did it while this one waited.
        if self.journal_used.load(Ordering::Relaxed) < journal_used / 2 {
            return Ok(());
        }
        // A page that is freed meanwhile must not be used for data before its copy was written.
        let guard = self.read_guard();
        let pages: Vec<Arc<Page>> = self.commit.lock().dirty.values().cloned().collect();
        for pages in pages.chunks(WRITTEN_AT_ONCE) {
            self.write_back(pages)?;
        }
        drop(guard);
        self.sync()?;
        self.move_tail()
    }

    fn write_back(&self, pages: &[Arc<Page>]) -> Result<()> {
        let (mut copies, batch) = {
            let mut commit = self.commit.lock();
            // Pages that were freed meanwhile are none any more.
            let is_live = |p: &&Arc<Page>| commit.dirty.get(&p.block).is_some_and(|now| Arc::ptr_eq(now, p));
            let live: Vec<_> = pages.iter().filter(is_live).collect();
            if live.is_empty() {
                // Nor is there a batch to write, which must not be empty.
                return Ok(());
            }
            for run in live.chunk_by(|a, b| a.block.0 + 1 == b.block.0) {
                commit.record(JournalRecord::WriteBack { first: run[0].block, count: run.len() as u32 });
            }
            let copies: Vec<Copy> = live
                .into_iter()
                .map(|page| Copy {
                    page: Arc::clone(page),
                    version: page.version(),
                    bytes: page.bytes().clone(),
                })
                .collect();
            (copies, commit.batch)
        };
        // Their last changes, and the record that they may be half written.
        self.flush_to(batch)?;
        for copy in &mut copies {
            PageHeader::seal(self.id, copy.page.block, batch, &mut copy.bytes);
        }
        for run in copies.chunk_by(|a, b| a.page.block.0 + 1 == b.page.block.0) {
            let bytes: Vec<u8> = run.iter().flat_map(|copy| &copy.bytes[..]).copied().collect();
            self.write_at(run[0].page.block, &bytes)?;
        }
        // A crash may leave both half written: the batches make the first one whole, as they do with any page.
        for copy in &mut copies {
            if let Some(twin) = self.geometry.catalog_twin(copy.page.block) {
                PageHeader::seal(self.id, twin, batch, &mut copy.bytes);
                self.write_at(twin, &copy.bytes[..])?;
            }
        }
        for copy in &copies {
            if let Some(group) = self.group_of(copy.page.block) {
                self.fingerprint_writes[group.0 as usize].fetch_add(1, Ordering::SeqCst);
            }
        }
        let mut commit = self.commit.lock();
        for copy in &copies {
            if !commit.dirty.get(&copy.page.block).is_some_and(|now| Arc::ptr_eq(now, &copy.page)) {
                continue;
            }
            if copy.page.version() == copy.version {
                copy.page.set_dirty_since(None);
                commit.dirty.remove(&copy.page.block);
            } else {
                // What changed after it was copied is in this batch or a later one.
                copy.page.set_dirty_since(Some(batch));
            }
        }
        Ok(())
    }

    /// Writes a superblock with the first batch that must be replayed.
    fn move_tail(&self) -> Result<()> {
        let mut ring = self.ring.lock();
        let (first, next) = {
            let commit = self.commit.lock();
            let first = commit.dirty.values().filter_map(|page| page.dirty_since()).min();
            (first.unwrap_or(commit.batch), commit.batch)
        };
        let tail = ring.tail_for(first, next);
        self.write_superblock(|superblock| superblock.tail = tail)?;
        ring.release_before(tail.batch);
        self.journal_used.store(ring.used(), Ordering::Relaxed);
        Ok(())
    }

    /// Changes the superblock, durably.
    pub(super) fn write_superblock(&self, change: impl FnOnce(&mut format::pool::Superblock)) -> Result<()> {
        let mut current = self.superblock.lock();
        let mut next = *current;
        change(&mut next);
        next.written += 1;
        self.write_at(PoolBlock(next.written % 2), &next.encode())?;
        self.sync()?;
        *current = next;
        Ok(())
    }

    /// Tells the thread that runs [`Engine::maintain`] what to do, if it was not told to do more.
    pub(super) fn want(&self, what: Wanted) {
        let (wanted, changed) = &self.wanted;
        let mut wanted = wanted.lock();
        if *wanted < what {
            *wanted = what;
            changed.notify_one();
        }
    }

    /// Ends [`Engine::maintain`].
    pub fn end_maintenance(&self) {
        self.want(Wanted::End);
    }

    /// Flushes now and then, and writes pages back before anybody has to wait for it. Returns when the pool ends.
    pub fn maintain(&self) {
        let (wanted, changed) = &self.wanted;
        loop {
            let what = {
                let mut wanted = wanted.lock();
                if *wanted == Wanted::Nothing {
                    changed.wait_for(&mut wanted, FLUSH_EVERY);
                }
                let what = *wanted;
                if what != Wanted::End {
                    *wanted = Wanted::Nothing;
                }
                what
            };
            let done = match what {
                Wanted::End => return,
                Wanted::Checkpoint => self.checkpoint(),
                Wanted::Nothing | Wanted::Flush => self.flush().map(|()| self.release(Vec::new())),
            };
            // The failure is kept, and the next call on the pool returns it.
            if done.is_err() {
                return;
            }
        }
    }
}
