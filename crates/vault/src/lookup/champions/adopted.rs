//! Containers that killed backups of a disk have left, of which a later one takes what it needs.
//!
//! They were written in the order of the disk's addresses, and the later backup comes by in the same order. So only a few
//! of their tables are in memory: those where it is, and the next ones.

use super::places::Places;
use super::ChunkSearch;
use crate::base::error::{Result, UnlessDamaged};
use crate::container::tables::{read_table, ChunkPlace, Tables};
use chunk::Fingerprint;
use format::{ContainerEntry, ContainerId, Table};
use std::collections::{BTreeSet, VecDeque};

/// Tables in memory: about 1 MiB each.
const WINDOW: usize = 8;
/// When one of these is of use, another is read.
const AHEAD: usize = WINDOW / 2;

/// Containers of killed backups.
#[derive(Default)]
pub(crate) struct Adopted {
    /// Those that have not been read yet, in order.
    waiting: VecDeque<ContainerId>,
    window: VecDeque<(ContainerEntry, Table, Places)>,
    /// Those that are referenced by now.
    used: Vec<ContainerEntry>,
    used_ids: BTreeSet<ContainerId>,
}

impl Adopted {
    /// Takes containers that no manifest names, and that nobody removes as long as this backup runs.
    pub fn new(mut containers: Vec<ContainerId>) -> Adopted {
        containers.sort_unstable();
        Adopted { waiting: containers.into(), ..Adopted::default() }
    }

    /// Fills in where chunks are that have not been found. Returns which were found, by their places in `found`.
    pub fn fill(&mut self, search: &mut ChunkSearch<'_>) -> Result<Vec<usize>> {
        let ChunkSearch { tables, fingerprints, lengths, found, .. } = search;
        let mut filled = Vec::new();
        if self.waiting.is_empty() && self.window.is_empty() {
            return Ok(filled);
        }
        for (n, slot) in found.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
            while self.window.len() < WINDOW && self.read_next(tables)? {}
            let Some((at, place)) = self.find(&fingerprints[n], lengths[n]) else { continue };
            *slot = Some(place);
            filled.push(n);
            let entry = self.window[at].0;
            if self.used_ids.insert(entry.id) {
                self.used.push(entry);
            }
            if at >= AHEAD && !self.waiting.is_empty() {
                self.window.pop_front();
            }
        }
        Ok(filled)
    }

    /// Those that are referenced by now.
    pub fn into_used(self) -> Vec<ContainerEntry> {
        self.used
    }

    /// Returns whether there was another one.
    fn read_next(&mut self, tables: &Tables) -> Result<bool> {
        let Some(id) = self.waiting.pop_front() else { return Ok(false) };
        if let Some(table) = read_table(tables.own().folder(), id, id.writer()).unless_damaged()? {
            let places = Places::of(&table.fingerprints);
            self.window.push_back((table.entry(id.writer()), table, places));
        }
        Ok(true)
    }

    fn find(&self, f: &Fingerprint, bytes: u32) -> Option<(usize, ChunkPlace)> {
        self.window.iter().enumerate().find_map(|(at, (entry, table, places))| {
            let n = places.find(&table.fingerprints, &f.0).find(|n| table.length(*n) == bytes)?;
            Some((at, (entry.id, table.number_at(n)?)))
        })
    }
}
