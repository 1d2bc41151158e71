//! Entries of fingerprint stores, made anew.

use std::collections::{HashMap, HashSet};

use chunk::Fingerprint;
use format::pool::{BlockGroupNo, CatalogIndex, FingerprintEntry, MapEntry, MapRoot, PageKind, PoolBlock};

use super::Check;
use crate::engine::StoreEdit;
use crate::error::Result;
use crate::filter::prefix;

/// No content has it: what stands for the fingerprint of a block whose content is damaged.
const NO_CONTENT: Fingerprint = Fingerprint([0; 32]);

/// What an entry becomes.
#[derive(Clone, Copy)]
pub(super) enum Mended {
    /// Nothing names the block.
    Free,
    /// A map node that is named so often.
    Node(u32),
    /// Data that is named so often, whose fingerprint is to be found.
    Data(u32),
    /// What it was, but for its count.
    Count(FingerprintEntry),
}

impl Mended {
    /// The entry without its fingerprint.
    pub fn entry(self) -> FingerprintEntry {
        let (count, is_node, has_fingerprint) = match self {
            Mended::Free => return FingerprintEntry::default(),
            Mended::Node(count) => (count, true, false),
            Mended::Data(count) => (count, false, true),
            Mended::Count(entry) => return entry,
        };
        FingerprintEntry { count, is_node, has_fingerprint }
    }
}

/// What changes on a page of a fingerprint store.
pub(super) struct PageEdits {
    group: BlockGroupNo,
    page: u32,
    /// Nothing of the old page stays.
    is_new: bool,
    /// Blocks, the fingerprints that they had, and what their entries become.
    edits: Vec<(PoolBlock, Option<Fingerprint>, Mended)>,
}

impl PageEdits {
    /// Nothing yet.
    pub fn of(group: BlockGroupNo, page: u32) -> Self {
        PageEdits { group, page, is_new: false, edits: Vec::new() }
    }

    /// Nothing yet, on a page that replaces one that cannot be read.
    pub fn of_new(group: BlockGroupNo, page: u32) -> Self {
        PageEdits { is_new: true, ..PageEdits::of(group, page) }
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && !self.is_new
    }

    /// An entry becomes another one.
    pub fn change(&mut self, block: PoolBlock, old: (FingerprintEntry, Fingerprint), mended: Mended) {
        let fingerprint = (old.0.count > 0 && old.0.has_fingerprint).then_some(old.1);
        self.edits.push((block, fingerprint, mended));
    }

    /// An entry of a new page.
    pub fn put(&mut self, block: PoolBlock, mended: Mended) {
        self.edits.push((block, None, mended));
    }
}

impl Check<'_> {
    /// Makes the changes of a group's pages, each page at once.
    pub(super) fn carry_out(&mut self, pages: &[PageEdits]) -> Result<()> {
        let is_lost = |edit: &&(PoolBlock, _, Mended)| matches!(edit.2, Mended::Data(_));
        let lost: HashSet<_> =
            pages.iter().flat_map(|p| p.edits.iter().filter(is_lost).map(|e| e.0)).collect();
        let slots = if lost.is_empty() { HashMap::new() } else { self.slots_of(&lost) };
        for page in pages {
            self.carry_out_page(page, &slots)?;
        }
        Ok(())
    }

    fn carry_out_page(&mut self, page: &PageEdits, slots: &HashMap<PoolBlock, MapEntry>) -> Result<()> {
        let (mut edits, mut came, mut left) = (Vec::with_capacity(page.edits.len()), Vec::new(), Vec::new());
        for (block, had, mended) in &page.edits {
            let fingerprint = match mended {
                Mended::Data(_) => Some(self.fingerprint_of(*block, slots.get(block))),
                _ => None,
            };
            came.extend(fingerprint.filter(|f| *f != NO_CONTENT).map(|f| (prefix(&f), *block)));
            if matches!(mended, Mended::Free | Mended::Node(_) | Mended::Data(_)) {
                left.extend(had.map(|had| (prefix(&had), *block)));
            }
            edits.push(StoreEdit { block: *block, entry: mended.entry(), fingerprint });
        }
        self.engine.edit_fingerprints(page.group, page.page, page.is_new, &edits)?;
        left.into_iter().for_each(|(prefix, block)| self.engine.filter.remove(prefix, block));
        came.into_iter().for_each(|(prefix, block)| self.engine.filter.insert(prefix, block));
        Ok(())
    }

    /// The fingerprint of a block's content, if that is what a slot says. Else nobody may share it, or take it for what was
    /// written.
    fn fingerprint_of(&mut self, block: PoolBlock, slot: Option<&MapEntry>) -> Fingerprint {
        if let Some(content) = slot.and_then(|slot| self.content_of(block, *slot)) {
            return Fingerprint::of(&content);
        }
        self.found(format!("block {block} does not have the content that its map says"), false);
        NO_CONTENT
    }

    /// Notes in a volume's slot how many blocks its map names, if that is to be mended. Returns whether it was.
    pub(super) fn set_mapped(&self, index: CatalogIndex, mapped: u64) -> bool {
        if !self.mends {
            return false;
        }
        let slot = self.engine.geometry.catalog_slot(index);
        let done = self.engine.transact(|t| {
            let page = t.page(slot.page, PageKind::Catalog)?;
            t.set(&page, slot.offset + MapRoot::MAPPED_AT, &MapRoot::encode_mapped(Some(mapped)));
            Ok(())
        });
        done.is_ok()
    }
}
