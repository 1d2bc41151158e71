//! Fingerprint stores: which block has a fingerprint.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use chunk::Fingerprint;
use format::pool::{
    BlockGroupNo, FingerprintEntry, Home, PageKind, PoolBlock, SummaryEntry, BLOCK_BYTES, COUNT_MAX,
    FINGERPRINT_SLOTS, PAGE_HEADER_BYTES,
};

use super::groups::BlockSet;
use super::page::Page;
use super::state::Engine;
use crate::error::{PoolError, Result};

/// What stands in a fingerprint store beside a data block's count.
#[derive(Clone, Copy, Debug)]
pub enum Identity {
    /// The fingerprint of its content: it can be shared.
    Fingerprint(Fingerprint),
    /// Where it was written. Its content was not hashed.
    Home(Home),
}

impl Identity {
    pub(super) fn bytes(self) -> [u8; Home::BYTES] {
        match self {
            Identity::Fingerprint(fingerprint) => fingerprint.0,
            Identity::Home(home) => home.encode(),
        }
    }
}

/// What an entry of a fingerprint store becomes.
pub struct StoreEdit {
    /// The data block.
    pub block: PoolBlock,
    /// Its entry.
    pub entry: FingerprintEntry,
    /// Its fingerprint, if that changes too.
    pub fingerprint: Option<Fingerprint>,
}

impl StoreEdit {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.entry.encode().to_vec();
        bytes.extend(self.fingerprint.iter().flat_map(|fingerprint| fingerprint.0));
        bytes
    }
}

impl Engine {
    /// A page of a fingerprint store. All of its group's are read with it, because they will be needed (LiveDFS, 2.3).
    pub(super) fn fingerprint_page(&self, block: PoolBlock) -> Result<Arc<Page>> {
        if let Some(page) = self.pages.get(block) {
            return Ok(page);
        }
        if self.settings.prefetch {
            self.load_fingerprints(block)?;
        }
        self.page(block, PageKind::Fingerprints)
    }

    /// Reads the whole fingerprint store that a page belongs to.
    fn load_fingerprints(&self, page: PoolBlock) -> Result<()> {
        let Some(group) = self.group_of(page) else { return Ok(()) };
        let start = self.geometry.fingerprints_start(group);
        let written = &self.fingerprint_writes[group.0 as usize];
        let before = written.load(Ordering::SeqCst);
        let mut bytes = vec![0; self.geometry.fingerprint_pages() as usize * BLOCK_BYTES];
        self.read_blocks(start, &mut bytes)?;
        for (index, page) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            let block = PoolBlock(start.0 + index as u64);
            let page = self.pages.get_or_load(block, || {
                let mut own = Box::new([0; BLOCK_BYTES]);
                own.copy_from_slice(page);
                // A page that was changed, written and dropped since is not what was read.
                if written.load(Ordering::SeqCst) != before {
                    self.read_blocks(block, &mut own[..])?;
                }
                self.check_page(block, PageKind::Fingerprints, &own)?;
                Ok::<_, PoolError>(own)
            });
            // A damaged page fails when it is needed.
            drop(page);
        }
        Ok(())
    }

    /// The group whose fingerprint store has this page.
    pub(super) fn group_of(&self, block: PoolBlock) -> Option<BlockGroupNo> {
        let from_start = block.0.checked_sub(self.geometry.groups_start().0)?;
        let group = from_start / u64::from(self.geometry.group_blocks);
        u32::try_from(group).ok().filter(|g| *g < self.geometry.groups).map(BlockGroupNo)
    }

    /// What the fingerprint store says of a data block.
    pub fn fingerprint_entry(&self, block: PoolBlock) -> Result<(FingerprintEntry, Fingerprint)> {
        let slot = self.geometry.fingerprint_slot(block).ok_or_else(|| PoolError::Damaged {
            what: format!("the map of {}", self.device.location()),
            why: format!("it names block {block}, which is not a data block"),
        })?;
        Ok(decode_entry(self.fingerprint_page(slot.page)?.array(slot.offset)))
    }

    /// Calls `each` with the index of each data block that has its entry on a page of a group's fingerprint store.
    pub fn entries_of(
        &self,
        group: BlockGroupNo,
        page: u32,
        mut each: impl FnMut(u32, FingerprintEntry, Fingerprint),
    ) -> Result<()> {
        let store =
            self.fingerprint_page(PoolBlock(self.geometry.fingerprints_start(group).0 + u64::from(page)))?;
        let bytes = store.bytes();
        let first = page * FINGERPRINT_SLOTS;
        let slots = bytes[PAGE_HEADER_BYTES..].chunks_exact(FingerprintEntry::BYTES);
        for (index, slot) in (first..self.geometry.data_blocks()).zip(slots) {
            let mut bytes = [0; FingerprintEntry::BYTES];
            bytes.copy_from_slice(slot);
            let (entry, fingerprint) = decode_entry(bytes);
            each(index, entry, fingerprint);
        }
        Ok(())
    }

    /// Blocks of a group that have no fingerprint, that `is_wanted` wants for their homes, and that the scan before saw as
    /// well. `None` without looking where nothing has changed since a scan of this generation found nothing to do.
    pub fn scan_group(
        &self,
        group: BlockGroupNo,
        generation: u64,
        is_wanted: impl Fn(&Home) -> bool,
    ) -> Result<Option<BlockSet>> {
        if !self.summary(group)?.has_unshared {
            return Ok(None);
        }
        {
            let mut locked = self.groups.lock(group);
            if locked.settled == Some(generation) && !self.groups.has_unseen(group) {
                return Ok(None);
            }
            locked.settled = None;
        }
        // Before the fingerprint store is read: what is written meanwhile is for the next scan.
        self.groups.set_unseen(group, false);
        let mut found = BlockSet::new(self.geometry.data_blocks());
        let mut are_others = false;
        for page in 0..self.geometry.fingerprint_pages() {
            self.entries_of(group, page, |index, entry, bytes| {
                if entry.is_unshared() {
                    if is_wanted(&Home::decode(&bytes.0)) {
                        found.insert(index);
                    } else {
                        are_others = true;
                    }
                }
            })?;
        }
        let is_settled = found.is_empty();
        let cold = {
            let mut locked = self.groups.lock(group);
            locked.settled = is_settled.then_some(generation);
            locked.see(found)
        };
        if is_settled && !are_others {
            self.all_are_shared(group)?;
        }
        Ok(Some(cold))
    }

    /// The summary says from now on that all blocks of a group have fingerprints, unless one without came meanwhile.
    fn all_are_shared(&self, group: BlockGroupNo) -> Result<()> {
        let slot = self.geometry.summary_slot(group);
        self.transact(|t| {
            let page = t.page(slot.page, PageKind::Summary)?;
            if !self.groups.has_unseen(group) {
                let entry = SummaryEntry::decode(page.array(slot.offset));
                t.set(&page, slot.offset, &SummaryEntry { has_unshared: false, ..entry }.encode());
            }
            Ok(())
        })
    }

    /// Changes entries of one page of a group's fingerprint store, all at once. One that `is_new` replaces what cannot be
    /// read: all other entries are free then.
    pub fn edit_fingerprints(
        &self,
        group: BlockGroupNo,
        page: u32,
        is_new: bool,
        edits: &[StoreEdit],
    ) -> Result<()> {
        let block = PoolBlock(self.geometry.fingerprints_start(group).0 + u64::from(page));
        let slots: Vec<_> = edits
            .iter()
            .filter_map(|edit| Some((self.geometry.fingerprint_slot(edit.block)?.offset, edit.bytes())))
            .collect();
        self.transact(|t| {
            if is_new {
                t.renew(block, PageKind::Fingerprints, &slots);
                return Ok(());
            }
            let page = t.page(block, PageKind::Fingerprints)?;
            slots.iter().for_each(|(offset, bytes)| t.set(&page, *offset, bytes));
            Ok(())
        })
    }

    /// Begins to look fingerprints up, one after the other.
    pub fn search(&self) -> Search<'_> {
        Search { engine: self, candidates: Vec::new(), page: None, last: None }
    }
}

/// Looks fingerprints up. Content that was written in a row lies in a row: the block behind the last one that was found is
/// looked at first, without the filter.
pub struct Search<'e> {
    engine: &'e Engine,
    candidates: Vec<PoolBlock>,
    /// The page of a fingerprint store that was looked at last.
    page: Option<Arc<Page>>,
    last: Option<PoolBlock>,
}

impl Search<'_> {
    /// A block that has this fingerprint now and may be referred to once more. Only a transaction can rely on it.
    pub fn find(&mut self, fingerprint: &Fingerprint) -> Option<PoolBlock> {
        let next = self.last.map(|last| PoolBlock(last.0 + 1));
        self.last = next.filter(|next| self.has(*next, fingerprint));
        if self.last.is_none() {
            let mut candidates = std::mem::take(&mut self.candidates);
            candidates.clear();
            self.engine.filter.candidates(fingerprint, &mut candidates);
            self.last = candidates.iter().copied().find(|block| self.has(*block, fingerprint));
            self.candidates = candidates;
        }
        self.last
    }

    /// Whether a block can be shared for this fingerprint. A fingerprint store that cannot be read costs
    /// space; the write goes on.
    fn has(&mut self, block: PoolBlock, fingerprint: &Fingerprint) -> bool {
        let Some(slot) = self.engine.geometry.fingerprint_slot(block) else { return false };
        if self.page.as_ref().is_none_or(|page| page.block != slot.page) {
            self.page = self.engine.fingerprint_page(slot.page).ok();
        }
        self.page.as_ref().is_some_and(|page| {
            let (entry, found) = decode_entry(page.array(slot.offset));
            can_share(entry) && found == *fingerprint
        })
    }
}

/// Count and fingerprint of a slot of a fingerprint store.
pub fn decode_entry(bytes: [u8; FingerprintEntry::BYTES]) -> (FingerprintEntry, Fingerprint) {
    let (mut count, mut fingerprint) = ([0; 4], [0; 32]);
    count.copy_from_slice(&bytes[..4]);
    fingerprint.copy_from_slice(&bytes[4..]);
    (FingerprintEntry::decode(count), Fingerprint(fingerprint))
}

/// Whether a block with this entry may be named once more for its fingerprint.
pub fn can_share(entry: FingerprintEntry) -> bool {
    entry.has_fingerprint && (1..COUNT_MAX).contains(&entry.count)
}
