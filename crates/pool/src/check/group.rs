//! A block group: what its fingerprint store and its summary say, beside what the maps name.

use chunk::Fingerprint;
use format::pool::{
    BlockGroupNo, FingerprintEntry, PoolBlock, SummaryEntry, BLOCK_BYTES, COUNT_MAX, FINGERPRINT_SLOTS,
};

use super::mend::{Mended, PageEdits};
use super::Check;
use crate::error::{PoolError, Result};

/// What stands in a group once all that can be mended is.
#[derive(Default)]
struct Found {
    free: u32,
    unshared: u32,
    /// Pages of the fingerprint store that cannot be read, and are left so.
    unread_pages: u32,
    edits: Vec<PageEdits>,
}

impl Check<'_> {
    /// Compares a group, and mends it.
    pub(super) fn group(&mut self, group: BlockGroupNo) -> Result<()> {
        let summary = self.engine.summary(group)?;
        let is_named = self.names.of(group).iter().any(|named| *named > 0);
        if !summary.in_use {
            if is_named {
                let what = format!("group {} has blocks that maps name, but is not in use", group.0);
                let is_mended = self.mends && self.names.were_all_read;
                self.found(what, is_mended);
                if is_mended {
                    self.engine.initialise(group)?;
                }
            }
            if !is_named || !self.mends || !self.names.were_all_read {
                return Ok(());
            }
        }
        if !is_named && self.mends && self.names.were_all_read && self.has_no_store(group) {
            let what = format!("group {} has no fingerprint store, and nothing names it", group.0);
            self.found(what, true);
            let free = self.engine.geometry.data_blocks();
            return self.engine.renew_summary(group, SummaryEntry { free, ..SummaryEntry::default() });
        }
        let mut found = Found::default();
        for page in 0..self.engine.geometry.fingerprint_pages() {
            let mut entries = Vec::with_capacity(FINGERPRINT_SLOTS as usize);
            let read = self.engine.entries_of(group, page, |index, entry, fingerprint| {
                entries.push((index, entry, fingerprint));
            });
            match read {
                Ok(()) => self.page(group, page, &entries, &mut found)?,
                Err(PoolError::Damaged { what, why }) => {
                    self.damaged_page(group, page, format!("{what} is damaged: {why}"), &mut found);
                }
                Err(error) => return Err(error),
            }
        }
        self.report.unshared_blocks += u64::from(found.unshared);
        self.carry_out(&found.edits)?;
        self.summary(group, &found)
    }

    /// Whether no page of a group's fingerprint store can be read: it was never initialised.
    fn has_no_store(&self, group: BlockGroupNo) -> bool {
        let is_damaged = |page| {
            matches!(self.engine.entries_of(group, page, |_, _, _| ()), Err(PoolError::Damaged { .. }))
        };
        (0..self.engine.geometry.fingerprint_pages()).all(is_damaged)
    }

    /// Compares the entries of a page of a fingerprint store.
    fn page(
        &mut self,
        group: BlockGroupNo,
        page: u32,
        entries: &[(u32, FingerprintEntry, Fingerprint)],
        found: &mut Found,
    ) -> Result<()> {
        let mut edits = PageEdits::of(group, page);
        for (index, entry, fingerprint) in entries {
            let block = self.engine.geometry.data_block(group, *index);
            let (named, is_node) = (self.names.of(group)[*index as usize], self.names.is_node(block));
            let mended = match self.mended(*entry, named, is_node) {
                Some(Mended::Count(entry)) if self.homeless.contains(&block) => {
                    Some(Mended::Data(entry.count))
                }
                None if self.homeless.contains(&block) => Some(Mended::Data(entry.count)),
                mended => mended,
            };
            let is_mended = mended.is_some() && self.mends;
            if named < entry.count && !self.names.were_all_read {
                self.hidden_blocks += 1;
            } else if named != entry.count {
                let what = format!("block {block} has count {}, but is named {named} times", entry.count);
                self.found(what, is_mended);
            }
            if entry.count > 0 && named > 0 && entry.is_node != is_node {
                let what = format!("block {block} is {}a map node", if is_node { "" } else { "not " });
                self.found(what, is_mended);
            }
            if self.data && entry.count > 0 && named > 0 && entry.has_fingerprint {
                self.content(block, fingerprint)?;
            }
            match mended {
                Some(mended) if self.mends => {
                    self.add(found, mended.entry(), is_node);
                    edits.change(block, (*entry, *fingerprint), mended);
                }
                _ => self.add(found, *entry, is_node),
            }
        }
        if !edits.is_empty() {
            found.edits.push(edits);
        }
        Ok(())
    }

    /// Counts a block as it is from now on.
    fn add(&mut self, found: &mut Found, entry: FingerprintEntry, is_node: bool) {
        if entry.count == 0 {
            found.free += 1;
            return;
        }
        self.report.used_blocks += 1;
        self.report.stored_blocks += u64::from(!is_node);
        found.unshared += u32::from(entry.is_unshared());
    }

    /// What an entry should be; `None` where it is right, or cannot be told. While a map cannot be read it may name any block
    /// once more: then none is freed, and none named less often.
    fn mended(&self, entry: FingerprintEntry, named: u32, is_node: bool) -> Option<Mended> {
        let is_kind = named == 0 || entry.count == 0 || entry.is_node == is_node;
        if named == entry.count && is_kind || named > COUNT_MAX {
            return None;
        }
        if !self.names.were_all_read && (named < entry.count || !is_kind) {
            return None;
        }
        Some(match (named, is_node) {
            (0, _) => Mended::Free,
            (_, true) => Mended::Node(named),
            // What stands there may be of an earlier content.
            _ if entry.count == 0 || entry.is_node => Mended::Data(named),
            _ => Mended::Count(FingerprintEntry { count: named, ..entry }),
        })
    }

    fn content(&mut self, block: PoolBlock, fingerprint: &Fingerprint) -> Result<()> {
        let mut content = [0; BLOCK_BYTES];
        self.engine.read_blocks(block, &mut content)?;
        if Fingerprint::of(&content) != *fingerprint {
            self.found(format!("block {block} does not have the content of its fingerprint"), false);
        }
        Ok(())
    }

    /// A page that cannot be read is made anew, from the maps and the content.
    fn damaged_page(&mut self, group: BlockGroupNo, page: u32, what: String, found: &mut Found) {
        let first = page * FINGERPRINT_SLOTS;
        let named = &self.names.of(group)[first as usize..];
        let named = named[..named.len().min(FINGERPRINT_SLOTS as usize)].to_vec();
        let can_be = self.names.were_all_read && named.iter().all(|named| *named <= COUNT_MAX);
        self.found(what, can_be && self.mends);
        if !can_be || !self.mends {
            found.unread_pages += 1;
            return;
        }
        let mut edits = PageEdits::of_new(group, page);
        for (index, named) in (first..).zip(named) {
            let block = self.engine.geometry.data_block(group, index);
            let is_node = self.names.is_node(block);
            let mended = match (named, is_node) {
                (0, _) => Mended::Free,
                (_, true) => Mended::Node(named),
                _ => Mended::Data(named),
            };
            self.add(found, mended.entry(), is_node);
            edits.put(block, mended);
        }
        found.edits.push(edits);
    }

    /// Compares what the summary says.
    fn summary(&mut self, group: BlockGroupNo, found: &Found) -> Result<()> {
        if found.unread_pages > 0 {
            return Ok(());
        }
        let summary = self.engine.summary(group)?;
        let (free, unshared) = (found.free, found.unshared);
        if unshared > 0 && !summary.has_unshared {
            let what = format!(
                "group {} has {unshared} blocks without fingerprints, which its summary does not say",
                group.0
            );
            self.found(what, self.mends);
        }
        if free != summary.free {
            let what = format!("group {} has {free} free blocks, its summary says {}", group.0, summary.free);
            self.found(what, self.mends);
        }
        // Also where only fingerprints have changed: checkpoints of the filter go by it.
        let is_wrong = free != summary.free || unshared > 0 && !summary.has_unshared;
        if self.mends && (is_wrong || !found.edits.is_empty()) {
            let entry = SummaryEntry { free, in_use: true, has_unshared: unshared > 0, changed: 0 };
            self.engine.renew_summary(group, entry)?;
        }
        Ok(())
    }
}
