//! Walks over maps.

use std::collections::{HashMap, HashSet};

use format::pool::{Home, MapEntry, PageKind, PoolBlock, VolumeBlock, BLOCK_BYTES};
use xxhash_rust::xxh3::xxh3_64;

use super::Check;
use crate::volume::{node_entries, slot_blocks};

impl Check<'_> {
    /// Counts what a node and those below it name, once for each node. Returns how many slots of leaves below it name a block.
    pub(super) fn node(&mut self, name: &str, block: PoolBlock, level: u8) -> u64 {
        self.node_at(name, block, level, VolumeBlock(0))
    }

    /// The same of one that maps a volume's blocks from `first` on.
    fn node_at(&mut self, name: &str, block: PoolBlock, level: u8, first: VolumeBlock) -> u64 {
        self.names.count(&self.engine.geometry, block);
        if let Some(mapped) = self.names.begin_node(block) {
            return mapped;
        }
        let is_first = self.names.is_first();
        let page = match self.engine.page(block, PageKind::Map) {
            Ok(page) if page.bytes()[9] == level => page,
            found => {
                self.names.were_all_read = false;
                if is_first {
                    let why = match found {
                        Ok(page) => format!("node {block} has level {}, not {level}", page.bytes()[9]),
                        Err(error) => error.to_string(),
                    };
                    self.found(format!("{name}: {why}"), false);
                }
                return 0;
            }
        };
        let mut mapped = 0;
        for (index, entry) in node_entries(&page) {
            let Some(child) = entry.block() else { continue };
            let first = first + index as u64 * slot_blocks(level);
            if self.engine.geometry.locate(child).is_none() {
                if is_first {
                    self.found(
                        format!("{name}: node {block} names {child}, which is not a data block"),
                        false,
                    );
                }
            } else if level > 0 {
                mapped += self.node_at(name, child, level - 1, first);
            } else {
                mapped += 1;
                if self.names.count(&self.engine.geometry, child) && self.data {
                    self.unshared(name, entry, child, first);
                }
            }
        }
        self.names.end_node(block, mapped);
        mapped
    }

    /// A block without a fingerprint has the content that the slot of its leaf says, and is named at its home only. A
    /// fingerprint store that cannot be read is found with its group.
    fn unshared(&mut self, name: &str, slot: MapEntry, block: PoolBlock, named_at: VolumeBlock) {
        let Ok((entry, bytes)) = self.engine.fingerprint_entry(block) else { return };
        if !entry.is_unshared() {
            return;
        }
        if self.content_of(block, slot).is_none() {
            self.found(format!("{name}: block {block} does not have the content that its map says"), false);
        }
        let home = Home::decode(&bytes.0);
        if home.block != named_at {
            // It is given the fingerprint of its content instead.
            self.found(
                format!("{name}: block {block} was written as block {}, but is block {named_at}", home.block),
                self.mends,
            );
            self.homeless.insert(block);
        }
    }

    /// A block's content, if it can be read and has the check bits of a slot.
    pub(super) fn content_of(&self, block: PoolBlock, slot: MapEntry) -> Option<[u8; BLOCK_BYTES]> {
        let mut content = [0; BLOCK_BYTES];
        self.engine.read_blocks(block, &mut content).ok()?;
        slot.checks(xxh3_64(&content)).then_some(content)
    }

    /// By which slots of leaves blocks are named: one slot of each.
    pub(super) fn slots_of(&self, wanted: &HashSet<PoolBlock>) -> HashMap<PoolBlock, MapEntry> {
        let mut found = HashMap::new();
        let mut seen = HashSet::new();
        let mut nodes: Vec<_> =
            self.roots.iter().filter_map(|r| Some((r.root.root?, r.root.level))).collect();
        while let Some((block, level)) = nodes.pop() {
            if !seen.insert(block) {
                continue;
            }
            let Ok(page) = self.engine.page(block, PageKind::Map) else { continue };
            for (_, entry) in node_entries(&page) {
                match entry.block() {
                    Some(child) if level > 0 => nodes.push((child, level - 1)),
                    Some(child) if wanted.contains(&child) => drop(found.insert(child, entry)),
                    _ => {}
                }
            }
        }
        found
    }
}
