//! Changes that are made together or not at all.
//!
//! A transaction reads pages that are in memory and says what it wants to change; then all of it is changed at once, under
//! the commit lock. Where a page is missing, the lock is given back, the page is read, and the transaction begins anew. So
//! nobody waits for the device with the lock, and what a transaction saw is true when it takes effect.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use chunk::Fingerprint;
use format::pool::{
    BlockGroupNo, FingerprintEntry, Geometry, JournalRecord, MapEntry, PageHeader, PageKind, PoolBlock,
    SummaryEntry, BLOCK_BYTES, COUNT_MAX, MAP_SLOTS,
};
use parking_lot::MutexGuard;

use super::commit::Commit;
use super::fingerprint_store::{decode_entry, Identity};
use super::page::Page;
use super::state::Engine;
use crate::error::{PoolError, Result};
use crate::filter::prefix;

/// Why a transaction did not take effect.
pub enum Need {
    /// A page must be read first; then it begins anew.
    Page(PoolBlock, PageKind),
    /// It fails.
    Failed(PoolError),
}

impl From<PoolError> for Need {
    fn from(error: PoolError) -> Self {
        Need::Failed(error)
    }
}

/// What a block becomes, beside its count.
#[derive(Clone, Copy)]
enum Content {
    /// What it was.
    Same,
    /// Data.
    Data(Identity),
    /// Data that had no fingerprint.
    Identified(Fingerprint),
    /// A map node.
    Node,
}

struct Change {
    block: PoolBlock,
    references: i64,
    content: Content,
}

/// What changes in a group's slot of the summary.
#[derive(Default)]
struct GroupChange {
    free: i64,
    /// Blocks without a fingerprint come.
    has_unshared: bool,
}

struct NewNode {
    block: PoolBlock,
    level: u8,
    entries: Vec<(usize, MapEntry)>,
}

/// A change that has not taken effect.
pub struct Transaction<'e> {
    engine: &'e Engine,
    commit: MutexGuard<'e, Commit>,
    sets: Vec<(Arc<Page>, usize, Vec<u8>)>,
    changes: Vec<Change>,
    nodes: Vec<NewNode>,
    gone: Vec<PoolBlock>,
    last_fingerprints: RefCell<Option<Arc<Page>>>,
}

impl Engine {
    /// Runs a transaction until it takes effect or fails. `body` may run several times.
    pub fn transact<T>(
        &self,
        mut body: impl FnMut(&mut Transaction<'_>) -> std::result::Result<T, Need>,
    ) -> Result<T> {
        // What was read stays in memory until the transaction has taken effect.
        let mut pins = Vec::new();
        loop {
            self.make_room()?;
            let mut transaction = Transaction {
                engine: self,
                commit: self.commit.lock(),
                sets: Vec::new(),
                changes: Vec::new(),
                nodes: Vec::new(),
                gone: Vec::new(),
                last_fingerprints: RefCell::new(None),
            };
            let outcome = match body(&mut transaction) {
                Ok(value) => transaction.take_effect().map(|left_filter| (value, left_filter)),
                Err(need) => {
                    drop(transaction);
                    Err(need)
                }
            };
            match outcome {
                Ok((value, left_filter)) => {
                    for (prefix, block) in left_filter {
                        self.filter.remove(prefix, block);
                    }
                    if !self.settings.journal {
                        self.write_in_place()?;
                    }
                    return Ok(value);
                }
                Err(Need::Failed(error)) => return Err(error),
                Err(Need::Page(block, kind)) => {
                    let page = match kind {
                        PageKind::Fingerprints => self.fingerprint_page(block)?,
                        _ => self.page(block, kind)?,
                    };
                    pins.push(page);
                }
            }
        }
    }
}

impl Transaction<'_> {
    /// A page that is in memory.
    pub fn page(&self, block: PoolBlock, kind: PageKind) -> std::result::Result<Arc<Page>, Need> {
        self.engine.page_in_memory(block).ok_or(Need::Page(block, kind))
    }

    /// What the fingerprint store says of a block.
    pub fn entry(&self, block: PoolBlock) -> std::result::Result<(FingerprintEntry, Fingerprint), Need> {
        let slot = self.slot(block)?;
        Ok(decode_entry(self.fingerprint_page(slot.page)?.array(slot.offset)))
    }

    /// A page of a fingerprint store. Blocks follow each other, so that it is often the one that was asked for last.
    fn fingerprint_page(&self, block: PoolBlock) -> std::result::Result<Arc<Page>, Need> {
        let mut last = self.last_fingerprints.borrow_mut();
        match &*last {
            Some(page) if page.block == block => Ok(Arc::clone(page)),
            _ => {
                let page = self.page(block, PageKind::Fingerprints)?;
                *last = Some(Arc::clone(&page));
                Ok(page)
            }
        }
    }

    /// Changes bytes of a page. What stands there is still seen until the transaction takes effect.
    pub fn set(&mut self, page: &Arc<Page>, offset: usize, bytes: &[u8]) {
        self.sets.push((Arc::clone(page), offset, bytes.to_vec()));
    }

    /// Changes slots of a map node that follow each other.
    pub fn set_map(&mut self, node: &Arc<Page>, first: usize, entries: &[MapEntry]) {
        let bytes = entries.iter().flat_map(|e| e.encode()).collect();
        self.sets.push((Arc::clone(node), Geometry::map_slot(node.block, first).offset, bytes));
    }

    /// So many more slots name a block, or fewer.
    pub fn refer(&mut self, block: PoolBlock, references: i64) {
        self.changes.push(Change { block, references, content: Content::Same });
    }

    /// A slot names a newly allocated block with data.
    pub fn new_data(&mut self, block: PoolBlock, identity: Identity) {
        self.changes.push(Change { block, references: 1, content: Content::Data(identity) });
    }

    /// A block without a fingerprint gets it.
    pub fn identify(&mut self, block: PoolBlock, fingerprint: Fingerprint) {
        self.changes.push(Change { block, references: 0, content: Content::Identified(fingerprint) });
    }

    /// A newly allocated block is a map node from now on, with one parent. Entries that are not given are nothing.
    pub fn new_node(&mut self, block: PoolBlock, level: u8, entries: Vec<(usize, MapEntry)>) {
        self.changes.push(Change { block, references: 1, content: Content::Node });
        self.nodes.push(NewNode { block, level, entries });
    }

    /// A node has no parent any more.
    pub fn remove_node(&mut self, block: PoolBlock) {
        self.changes.push(Change { block, references: -1, content: Content::Same });
        self.gone.push(block);
    }

    /// Pages of a fingerprint store that was never used are zero from now on, but for their kind.
    pub fn fresh_fingerprints(&mut self, first: PoolBlock, count: u32) {
        self.commit.record(JournalRecord::Fresh { first, count });
        for block in first.0..first.0 + u64::from(count) {
            let page = Arc::new(Page::new(PoolBlock(block), Box::new([0; BLOCK_BYTES])));
            self.commit.set(&page, PageHeader::KIND_AT, &PageHeader::kind_bytes(PageKind::Fingerprints, 0));
            self.engine.pages.put(page);
        }
    }

    /// A page has these bytes behind its header from now on, whatever was there.
    pub fn renew(&mut self, block: PoolBlock, kind: PageKind, slots: &[(usize, Vec<u8>)]) {
        self.commit.record(JournalRecord::Fresh { first: block, count: 1 });
        let page = Arc::new(Page::new(block, Box::new([0; BLOCK_BYTES])));
        self.commit.set(&page, PageHeader::KIND_AT, &PageHeader::kind_bytes(kind, 0));
        for (offset, bytes) in slots {
            self.commit.set(&page, *offset, bytes);
        }
        self.engine.pages.put(page);
    }

    fn slot(&self, block: PoolBlock) -> std::result::Result<format::pool::Slot, Need> {
        self.engine.geometry.fingerprint_slot(block).ok_or_else(|| {
            Need::Failed(PoolError::Damaged {
                what: format!("the map of {}", self.engine.location()),
                why: format!("it names block {block}, which is not a data block"),
            })
        })
    }

    /// Makes all changes, or none. Returns what has to leave the filter.
    fn take_effect(mut self) -> std::result::Result<Vec<(u64, PoolBlock)>, Need> {
        let mut changes = std::mem::take(&mut self.changes);
        changes.sort_by_key(|change| change.block);
        let mut group_changes: HashMap<BlockGroupNo, GroupChange> = HashMap::new();
        let mut sets = Vec::with_capacity(changes.len());
        let (mut freed, mut left_filter) = (Vec::new(), Vec::new());
        for same_block in changes.chunk_by(|a, b| a.block == b.block) {
            let block = same_block[0].block;
            let slot = self.slot(block)?;
            let page = self.fingerprint_page(slot.page)?;
            let (old, old_fingerprint) = decode_entry(page.array(slot.offset));
            let new = self.counted(block, old, same_block)?;
            let (mut bytes, mut length) = ([0; FingerprintEntry::BYTES], FingerprintEntry::COUNT_BYTES);
            bytes[..4].copy_from_slice(&new.encode());
            let (mut is_changed, mut is_unshared) = ((old.count == 0) != (new.count == 0), false);
            for change in same_block {
                let identity = match change.content {
                    Content::Data(identity) => identity,
                    Content::Identified(fingerprint) => Identity::Fingerprint(fingerprint),
                    Content::Same | Content::Node => continue,
                };
                bytes[4..].copy_from_slice(&identity.bytes());
                length = FingerprintEntry::BYTES;
                is_changed = true;
                is_unshared = matches!(identity, Identity::Home(_));
            }
            if is_changed {
                let (group, _) =
                    self.engine.geometry.locate(block).ok_or(Need::Page(block, PageKind::Fingerprints))?;
                let change = group_changes.entry(group).or_default();
                change.free += i64::from(new.count == 0) - i64::from(old.count == 0);
                change.has_unshared |= is_unshared;
            }
            if new.count == 0 && old.count != 0 {
                freed.push(block);
                if old.has_fingerprint {
                    left_filter.push((prefix(&old_fingerprint), block));
                }
            }
            sets.push((page, slot.offset, bytes, length));
        }
        let (mut summaries, mut unseen) = (Vec::with_capacity(group_changes.len()), Vec::new());
        for (group, change) in group_changes {
            let slot = self.engine.geometry.summary_slot(group);
            let page = self.page(slot.page, PageKind::Summary)?;
            let mut entry = SummaryEntry::decode(page.array(slot.offset));
            entry.free = (i64::from(entry.free) + change.free).max(0) as u32;
            if change.has_unshared {
                entry.has_unshared = true;
                unseen.push(group);
            }
            entry.changed = self.engine.filter_epoch();
            summaries.push((page, slot.offset, entry.encode()));
        }
        // Nothing fails from here on.
        self.engine.note_freed(&freed);
        let commit = &mut *self.commit;
        for node in self.nodes {
            commit.record(JournalRecord::Fresh { first: node.block, count: 1 });
            let page = Arc::new(Page::new(node.block, Box::new([0; BLOCK_BYTES])));
            commit.set(&page, PageHeader::KIND_AT, &PageHeader::kind_bytes(PageKind::Map, node.level));
            for (index, entry) in node.entries {
                debug_assert!(index < MAP_SLOTS);
                commit.set(&page, Geometry::map_slot(node.block, index).offset, &entry.encode());
            }
            self.engine.pages.put(page);
        }
        for (page, offset, bytes) in self.sets {
            commit.set(&page, offset, &bytes);
        }
        for (page, offset, bytes, length) in sets {
            commit.set(&page, offset, &bytes[..length]);
        }
        for (page, offset, bytes) in summaries {
            commit.set(&page, offset, &bytes);
        }
        // After the entries: a scan that takes this back reads them afterwards, and one that read them before finds it when it
        // says that all blocks are shared.
        unseen.into_iter().for_each(|group| self.engine.groups.set_unseen(group, true));
        for block in self.gone {
            if freed.binary_search(&block).is_ok() {
                commit.forget(block);
            }
        }
        commit.freed.append(&mut freed);
        Ok(left_filter)
    }

    /// What a block's entry becomes.
    fn counted(
        &self,
        block: PoolBlock,
        old: FingerprintEntry,
        changes: &[Change],
    ) -> std::result::Result<FingerprintEntry, Need> {
        let references: i64 = changes.iter().map(|change| change.references).sum();
        let count = i64::from(old.count) + references;
        let mut new = FingerprintEntry { count: 0, ..old };
        for change in changes {
            match change.content {
                Content::Same => continue,
                Content::Data(identity) => {
                    new.has_fingerprint = matches!(identity, Identity::Fingerprint(_));
                    new.is_node = false;
                }
                Content::Identified(_) if old.is_unshared() => {
                    new.has_fingerprint = true;
                    continue;
                }
                Content::Identified(_) => {
                    return Err(self.wrong_count(block, "it has no content to identify"));
                }
                Content::Node => {
                    new.is_node = true;
                    new.has_fingerprint = false;
                }
            }
            if old.count != 0 {
                return Err(self.wrong_count(block, "it was allocated, but is in use"));
            }
        }
        match u32::try_from(count) {
            Ok(count) if count <= COUNT_MAX => new.count = count,
            _ => {
                return Err(
                    self.wrong_count(block, &format!("its count {} changes by {references}", old.count))
                )
            }
        }
        Ok(new)
    }

    fn wrong_count(&self, block: PoolBlock, why: &str) -> Need {
        Need::Failed(PoolError::Damaged {
            what: format!("the store entry of block {block} of {}", self.engine.location()),
            why: why.to_owned(),
        })
    }
}
