//! Where batches lie in the ring of the journal.

use std::collections::VecDeque;

use format::pool::{BatchNo, JournalTail};

/// The ring: which of its blocks hold batches that may have to be replayed.
pub(in crate::engine) struct Ring {
    blocks: u32,
    /// Where the next batch goes, if it fits before the end.
    head: u32,
    /// Batches from the tail on.
    batches: VecDeque<JournalTail>,
}

impl Ring {
    /// A ring without batches: the next one goes to `head`.
    pub fn new(blocks: u32, head: u32) -> Self {
        Ring { blocks, head, batches: VecDeque::new() }
    }

    /// Takes batches that are in the ring already; the next one goes to `head`.
    pub fn adopt(&mut self, batches: &[JournalTail], head: u32) {
        self.batches = batches.iter().copied().collect();
        self.head = head;
    }

    /// Where a batch that is so long starts: at the head, or at the beginning where it does not fit before the end.
    pub fn start_at(&self, head: u32, length: u32) -> u32 {
        if head + length > self.blocks {
            0
        } else {
            head
        }
    }

    /// Gives a batch its place; `None` where it would overwrite one that may have to be replayed.
    pub fn place(&mut self, batch: BatchNo, length: u32) -> Option<u32> {
        let start = self.start_at(self.head, length);
        if let Some(tail) = self.batches.front() {
            // What is taken reaches from the tail to the head, over the end if the head is below.
            let is_free = if self.head > tail.block {
                start == self.head || start + length < tail.block
            } else {
                start == self.head && start + length < tail.block
            };
            if !is_free {
                return None;
            }
        } else if length > self.blocks {
            return None;
        }
        self.batches.push_back(JournalTail { batch, block: start });
        self.head = start + length;
        Some(start)
    }

    /// Blocks between tail and head.
    pub fn used(&self) -> u32 {
        match self.batches.front() {
            None => 0,
            Some(tail) if self.head > tail.block => self.head - tail.block,
            Some(tail) => self.blocks - tail.block + self.head,
        }
    }

    /// Where replaying begins if it begins with this batch or a later one. `next` is the number of the next batch.
    pub fn tail_for(&self, batch: BatchNo, next: BatchNo) -> JournalTail {
        match self.batches.iter().find(|placed| placed.batch >= batch) {
            Some(placed) => *placed,
            None => JournalTail { batch: next, block: if self.head >= self.blocks { 0 } else { self.head } },
        }
    }

    /// Batches before this one are not needed any more.
    pub fn release_before(&mut self, batch: BatchNo) {
        while self.batches.front().is_some_and(|placed| placed.batch < batch) {
            self.batches.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_never_overlap_and_the_ring_comes_round() {
        let mut ring = Ring::new(100, 0);
        let mut live: VecDeque<(BatchNo, u32, u32)> = VecDeque::new();
        let mut refused = 0;
        for n in 1..10_000u64 {
            let length = 1 + (n * 7919 % 23) as u32;
            match ring.place(BatchNo(n), length) {
                Some(start) => {
                    assert!(start + length <= 100);
                    for (_, s, l) in &live {
                        assert!(start + length <= *s || s + l <= start, "{n}");
                    }
                    live.push_back((BatchNo(n), start, length));
                    assert_eq!(ring.tail_for(BatchNo::FIRST, BatchNo(n + 1)).batch, live[0].0);
                }
                None => {
                    refused += 1;
                    let keep = live.len() / 3;
                    live.drain(..live.len() - keep);
                    ring.release_before(live.front().map_or(BatchNo(n), |l| l.0));
                }
            }
        }
        assert!((100..5000).contains(&refused));
    }
}
