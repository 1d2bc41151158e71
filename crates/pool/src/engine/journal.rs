//! Where chunks lie in the ring of the journal.

use std::collections::VecDeque;

use format::pool::JournalTail;

/// A chunk in the ring.
#[derive(Clone, Copy)]
struct Placed {
    chunk: u64,
    block: u32,
}

/// The ring: which of its blocks hold chunks that may have to be replayed.
pub(super) struct Ring {
    blocks: u32,
    /// Where the next chunk goes, if it fits before the end.
    head: u32,
    /// Chunks from the tail on.
    chunks: VecDeque<Placed>,
}

impl Ring {
    /// A ring without chunks: the next one goes to `head`.
    pub fn new(blocks: u32, head: u32) -> Self {
        Ring { blocks, head, chunks: VecDeque::new() }
    }

    /// Takes chunks that are in the ring already; the next one goes to `head`.
    pub fn adopt(&mut self, chunks: &[JournalTail], head: u32) {
        self.chunks = chunks.iter().map(|at| Placed { chunk: at.chunk, block: at.block }).collect();
        self.head = head;
    }

    /// Where a chunk that is so long starts: at the head, or at the beginning where it does not fit before the end.
    pub fn start_at(&self, head: u32, length: u32) -> u32 {
        if head + length > self.blocks {
            0
        } else {
            head
        }
    }

    /// Gives a chunk its place; `None` where it would overwrite one that may have to be replayed.
    pub fn place(&mut self, chunk: u64, length: u32) -> Option<u32> {
        let start = self.start_at(self.head, length);
        if let Some(tail) = self.chunks.front() {
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
        self.chunks.push_back(Placed { chunk, block: start });
        self.head = start + length;
        Some(start)
    }

    /// Blocks between tail and head.
    pub fn used(&self) -> u32 {
        match self.chunks.front() {
            None => 0,
            Some(tail) if self.head > tail.block => self.head - tail.block,
            Some(tail) => self.blocks - tail.block + self.head,
        }
    }

    /// Where replaying begins if it begins with this chunk or a later one. `next` is the number of the next chunk.
    pub fn tail_for(&self, chunk: u64, next: u64) -> JournalTail {
        match self.chunks.iter().find(|placed| placed.chunk >= chunk) {
            Some(placed) => JournalTail { chunk: placed.chunk, block: placed.block },
            None => JournalTail { chunk: next, block: if self.head >= self.blocks { 0 } else { self.head } },
        }
    }

    /// Chunks before this one are not needed any more.
    pub fn release_before(&mut self, chunk: u64) {
        while self.chunks.front().is_some_and(|placed| placed.chunk < chunk) {
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_never_overlap_and_the_ring_comes_round() {
        let mut ring = Ring::new(100, 0);
        let mut live: VecDeque<(u64, u32, u32)> = VecDeque::new();
        let mut refused = 0;
        for n in 1..10_000u64 {
            let length = 1 + (n * 7919 % 23) as u32;
            match ring.place(n, length) {
                Some(start) => {
                    assert!(start + length <= 100);
                    for (_, s, l) in &live {
                        assert!(start + length <= *s || s + l <= start, "{n}");
                    }
                    live.push_back((n, start, length));
                    assert_eq!(ring.tail_for(0, n + 1).chunk, live[0].0);
                }
                None => {
                    refused += 1;
                    let keep = live.len() / 3;
                    live.drain(..live.len() - keep);
                    ring.release_before(live.front().map_or(n, |l| l.0));
                }
            }
        }
        assert!((100..5000).contains(&refused));
    }
}
