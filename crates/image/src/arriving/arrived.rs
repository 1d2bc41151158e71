//! Which blocks have arrived, in memory.
//!
//! A disk of 8 TiB has 256 MiB of bits. A restore fills it in order, so most of its parts have arrived whole or not at
//! all: only the bits of others take memory.

use super::layout::{sectors, BLOCK_BYTES, SECTOR_WORDS};
use parking_lot::RwLock;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sectors of the map whose bits are kept together.
const PAGE_SECTORS: u64 = 8;
const PAGE_WORDS: u64 = PAGE_SECTORS * SECTOR_WORDS;
/// Blocks of a page: 126 MiB of the disk.
const PAGE_BLOCKS: u64 = PAGE_WORDS * 64;

/// A bit for each block of a disk; any number of threads read and set them.
pub(super) struct Arrived {
    pages: Box<[RwLock<Page>]>,
    /// Blocks of the disk.
    blocks: u64,
    /// Blocks that have arrived.
    count: AtomicU64,
}

enum Page {
    None,
    Some { words: Box<[u64; PAGE_WORDS as usize]>, count: u64 },
    All,
}

/// The bits of a sector of the map, at one moment.
#[derive(Clone)]
pub(super) enum SectorBits {
    /// Those of all blocks of the disk that it stands for.
    All,
    /// Some.
    Some(Box<[u64; SECTOR_WORDS as usize]>),
}

impl Arrived {
    /// Nothing of a disk of `size` bytes.
    pub fn none(size: u64) -> Arrived {
        Self::of(size, || Page::None, 0)
    }

    /// All of it.
    pub fn all(size: u64) -> Arrived {
        Self::of(size, || Page::All, size.div_ceil(BLOCK_BYTES))
    }

    fn of(size: u64, page: impl Fn() -> Page, count: u64) -> Arrived {
        let pages = sectors(size).div_ceil(PAGE_SECTORS);
        let pages = (0..pages).map(|_| RwLock::new(page())).collect();
        Arrived { pages, blocks: size.div_ceil(BLOCK_BYTES), count: AtomicU64::new(count) }
    }

    /// How many blocks have arrived.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether the first of these blocks has arrived, and up to which block (or the end) the others are as it is.
    pub fn run(&self, blocks: &Range<u64>) -> (bool, u64) {
        let mut first = None;
        let mut at = blocks.start;
        while at < blocks.end {
            let page = at / PAGE_BLOCKS;
            let start = page * PAGE_BLOCKS;
            let end = blocks.end.min(start + PAGE_BLOCKS);
            let (state, until) = self.pages[page as usize].read().run(at - start..end - start);
            if *first.get_or_insert(state) != state {
                break;
            }
            at = start + until;
            if at < end {
                break;
            }
        }
        (first.unwrap_or(false), at)
    }

    /// Records that blocks have arrived; whether any had not.
    pub fn set(&self, blocks: &Range<u64>) -> bool {
        let mut new = 0;
        let mut at = blocks.start;
        while at < blocks.end {
            let page = at / PAGE_BLOCKS;
            let start = page * PAGE_BLOCKS;
            let end = blocks.end.min(start + PAGE_BLOCKS);
            new += self.pages[page as usize].write().set(at - start..end - start, self.blocks_of(page));
            at = end;
        }
        self.count.fetch_add(new, Ordering::Relaxed);
        new > 0
    }

    /// Takes over the words of a sector of the map, of which nothing had arrived. Bits behind the end of the disk do not
    /// count.
    pub fn put_sector(&self, sector: u64, words: &[u64; SECTOR_WORDS as usize]) {
        let from = sector * SECTOR_WORDS * 64;
        for (n, word) in (0..).zip(words) {
            let mut left = *word;
            while left != 0 {
                let first = u64::from(left.trailing_zeros());
                let ones = u64::from((left >> first).trailing_ones());
                let start = from + n * 64 + first;
                let end = (start + ones).min(self.blocks);
                if start < end {
                    self.set(&(start..end));
                }
                left &= u64::MAX.checked_shl((first + ones) as u32).unwrap_or(0);
            }
        }
    }

    /// The bits of a sector; `None` where none is set.
    pub fn sector(&self, sector: u64) -> Option<SectorBits> {
        let at = (sector % PAGE_SECTORS * SECTOR_WORDS) as usize;
        match &*self.pages[(sector / PAGE_SECTORS) as usize].read() {
            Page::None => None,
            Page::All => Some(SectorBits::All),
            Page::Some { words, .. } => {
                let mut of_sector = [0; SECTOR_WORDS as usize];
                of_sector.copy_from_slice(&words[at..at + SECTOR_WORDS as usize]);
                match of_sector.iter().map(|w| u64::from(w.count_ones())).sum() {
                    0 => None,
                    count if count == self.blocks_of_sector(sector) => Some(SectorBits::All),
                    _ => Some(SectorBits::Some(Box::new(of_sector))),
                }
            }
        }
    }

    /// The words of a sector that has these bits.
    pub fn words(&self, sector: u64, bits: Option<&SectorBits>) -> [u64; SECTOR_WORDS as usize] {
        match bits {
            None => [0; SECTOR_WORDS as usize],
            Some(SectorBits::Some(words)) => **words,
            Some(SectorBits::All) => {
                let blocks = self.blocks_of_sector(sector);
                std::array::from_fn(|n| match blocks.saturating_sub(n as u64 * 64) {
                    0 => 0,
                    left => u64::MAX >> (64 - left.min(64)),
                })
            }
        }
    }

    /// Blocks of the disk that a page stands for.
    fn blocks_of(&self, page: u64) -> u64 {
        self.blocks.saturating_sub(page * PAGE_BLOCKS).min(PAGE_BLOCKS)
    }

    /// The same of a sector.
    fn blocks_of_sector(&self, sector: u64) -> u64 {
        let blocks = SECTOR_WORDS * 64;
        self.blocks.saturating_sub(sector * blocks).min(blocks)
    }
}

impl Page {
    /// The same of blocks of the page.
    fn run(&self, blocks: Range<u64>) -> (bool, u64) {
        let words = match self {
            Page::None => return (false, blocks.end),
            Page::All => return (true, blocks.end),
            Page::Some { words, .. } => words,
        };
        let first = words[(blocks.start / 64) as usize] >> (blocks.start % 64) & 1 == 1;
        let mut at = blocks.start;
        while at < blocks.end {
            let word = words[(at / 64) as usize];
            // Ones where a block is not as the first.
            let others = if first { !word } else { word } >> (at % 64);
            if others != 0 {
                at += u64::from(others.trailing_zeros());
                break;
            }
            at = (at / 64 + 1) * 64;
        }
        (first, at.min(blocks.end))
    }

    /// Sets blocks of the page, which stands for `all`; how many had not been set.
    fn set(&mut self, blocks: Range<u64>, all: u64) -> u64 {
        if let Page::None = self {
            *self = Page::Some { words: Box::new([0; PAGE_WORDS as usize]), count: 0 };
        }
        let Page::Some { words, count } = self else { return 0 };
        let before = *count;
        let last = blocks.end - 1;
        for word in blocks.start / 64..=last / 64 {
            let from = blocks.start.max(word * 64) - word * 64;
            let to = last.min(word * 64 + 63) - word * 64;
            let mask = u64::MAX << from & u64::MAX >> (63 - to);
            let word = &mut words[word as usize];
            *count += u64::from((mask & !*word).count_ones());
            *word |= mask;
        }
        let new = *count - before;
        if *count == all {
            *self = Page::All;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Against one bit after the other, on disks that end within a word, a sector and a page.
    #[test]
    fn pages_say_what_bits_would_say() {
        let mut rng = StdRng::seed_from_u64(7);
        for blocks in [1, 63, 64, 5000, PAGE_BLOCKS - 1, PAGE_BLOCKS, 3 * PAGE_BLOCKS + 777] {
            let size = blocks * BLOCK_BYTES - rng.random_range(0..BLOCK_BYTES);
            let (arrived, mut model) = (Arrived::none(size), vec![false; blocks as usize]);
            for step in 0..400 {
                let start = rng.random_range(0..blocks);
                // Some are long: pages become full.
                let most = if step % 4 == 0 { blocks } else { 200 };
                let end = (start + rng.random_range(1..=most)).min(blocks);
                let of_model = &mut model[start as usize..end as usize];
                let as_first = of_model.iter().take_while(|b| **b == of_model[0]).count() as u64;
                assert_eq!(arrived.run(&(start..end)), (of_model[0], start + as_first));
                if step % 4 != 0 || step > 200 {
                    assert_eq!(arrived.set(&(start..end)), of_model.contains(&false));
                    of_model.fill(true);
                }
                assert_eq!(arrived.count(), model.iter().filter(|b| **b).count() as u64);
            }
            let copy = Arrived::none(size);
            for sector in 0..sectors(size) {
                let words = arrived.words(sector, arrived.sector(sector).as_ref());
                let from = (sector * SECTOR_WORDS * 64) as usize;
                for (n, is_set) in model[from..].iter().take(SECTOR_WORDS as usize * 64).enumerate() {
                    assert_eq!(words[n / 64] >> (n % 64) & 1 == 1, *is_set);
                }
                copy.put_sector(sector, &words);
            }
            assert_eq!((copy.count(), copy.run(&(0..blocks))), (arrived.count(), arrived.run(&(0..blocks))));
        }
    }

    /// 8 TiB in order, from eight places: what has arrived whole takes no memory.
    #[test]
    fn what_has_arrived_whole_takes_no_memory() {
        let size = 8 << 40;
        let arrived = Arrived::none(size);
        let eighth = size / BLOCK_BYTES / 8;
        for n in 0..8 {
            for at in (n * eighth..(n + 1) * eighth - PAGE_BLOCKS).step_by(256) {
                arrived.set(&(at..at + 256));
            }
        }
        let pages = arrived.pages.iter().filter(|p| matches!(*p.read(), Page::Some { .. })).count();
        assert!(pages <= 16 && arrived.count() > eighth * 7, "{pages} pages have bits");
    }
}
