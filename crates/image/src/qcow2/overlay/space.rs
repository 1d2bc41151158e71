//! Which clusters of an overlay's file are in use.

use super::layout::{CLUSTER_BYTES, REFCOUNTS};
use std::ops::Range;

/// Clusters in use, and those that will be free after the next flush.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// A bit for each cluster of the file.
    used: Vec<u64>,
    /// Clusters of the file.
    end: u64,
    /// No cluster before this one is free.
    first: u64,
    /// Given up, but a table on the disk may still name them.
    freed: Vec<u64>,
    /// Those of the refcounts that the header names.
    refcounts: Vec<u64>,
}

impl Space {
    /// Clusters of the file.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Marks clusters as used. Returns `false` where one of them was used already.
    pub fn take(&mut self, clusters: Range<u64>) -> bool {
        let free = !clusters.clone().any(|c| self.is_used(c));
        clusters.for_each(|c| self.set(c));
        free
    }

    /// Marks the clusters of the existing refcounts as used, unless a table uses them.
    pub fn take_refcounts(&mut self, clusters: impl Iterator<Item = u64>) {
        for c in clusters {
            if !self.is_used(c) {
                self.set(c);
                self.refcounts.push(c);
            }
        }
    }

    /// A free cluster, which is in use from now on.
    pub fn allocate(&mut self) -> u64 {
        let word = (self.first / 64) as usize;
        let with_room = self.used.iter().skip(word).position(|w| *w != u64::MAX);
        let cluster = match with_room {
            Some(n) => (word + n) as u64 * 64 + u64::from(self.used[word + n].trailing_ones()),
            None => self.used.len() as u64 * 64,
        };
        self.set(cluster);
        self.first = cluster + 1;
        cluster
    }

    /// Frees a cluster. It is used again only after [`Space::give_back`], when no table on the disk names it.
    pub fn free(&mut self, cluster: u64) {
        self.freed.push(cluster);
    }

    /// The clusters given up so far.
    pub fn take_freed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.freed)
    }

    /// Clusters that no table names any more, neither in memory nor on the disk.
    pub fn give_back(&mut self, clusters: &[u64]) {
        for c in clusters {
            self.used[(c / 64) as usize] &= !(1 << (c % 64));
            self.first = self.first.min(*c);
        }
    }

    /// The refcount blocks and their table, each with its offset in the file, and the offset of the table. The clusters of
    /// the old refcounts become free.
    pub fn refcounts(&mut self) -> (Vec<(u64, Vec<u8>)>, u64) {
        let before = std::mem::take(&mut self.refcounts);
        let table = self.allocate();
        self.refcounts.push(table);
        let mut blocks = Vec::new();
        while blocks.len() as u64 * REFCOUNTS < self.end {
            let block = self.allocate();
            blocks.push(block);
            self.refcounts.push(block);
        }
        self.give_back(&before);
        let mut offsets = Vec::with_capacity(CLUSTER_BYTES as usize);
        blocks.iter().for_each(|b| offsets.extend((b * CLUSTER_BYTES).to_be_bytes()));
        offsets.resize(CLUSTER_BYTES as usize, 0);
        let mut all: Vec<(u64, Vec<u8>)> = (0..)
            .zip(&blocks)
            .map(|(n, block)| {
                let first = n * REFCOUNTS;
                let counts =
                    (first..first + REFCOUNTS).flat_map(|c| u16::from(self.is_used(c)).to_be_bytes());
                (block * CLUSTER_BYTES, counts.collect())
            })
            .collect();
        all.push((table * CLUSTER_BYTES, offsets));
        (all, table * CLUSTER_BYTES)
    }

    fn is_used(&self, cluster: u64) -> bool {
        self.used.get((cluster / 64) as usize).is_some_and(|w| w >> (cluster % 64) & 1 == 1)
    }

    fn set(&mut self, cluster: u64) {
        let word = (cluster / 64) as usize;
        if word >= self.used.len() {
            self.used.resize(word + 1, 0);
        }
        self.used[word] |= 1 << (cluster % 64);
        self.end = self.end.max(cluster + 1);
    }
}
