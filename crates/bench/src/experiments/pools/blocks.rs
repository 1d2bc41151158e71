//! Numbered blocks: equal numbers, equal content. They are made much faster than they can be written.

use crate::files::BLOCK_BYTES;
use crate::images::generate::Random;

/// What every numbered block begins with.
pub const MARK: [u8; 8] = *b"numbered";
const BASE_BLOCKS: usize = 4096;

/// Makes blocks.
pub struct Blocks {
    base: Vec<u8>,
}

impl Blocks {
    /// Blocks of their own for each seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut base = vec![0; BASE_BLOCKS * BLOCK_BYTES];
        base.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.bits().to_le_bytes()));
        base.chunks_exact_mut(BLOCK_BYTES).for_each(|block| block[..8].copy_from_slice(&MARK));
        Self { base }
    }

    /// Fills `buf`, whole blocks, with the blocks from number `first` on.
    pub fn fill(&self, first: u64, buf: &mut [u8]) {
        for (n, block) in (first..).zip(buf.chunks_exact_mut(BLOCK_BYTES)) {
            let at = n as usize % BASE_BLOCKS * BLOCK_BYTES;
            block.copy_from_slice(&self.base[at..at + BLOCK_BYTES]);
            block[8..16].copy_from_slice(&n.to_le_bytes());
        }
    }

    /// The number of the first block that is not the one it should be, if `buf` should hold those from `first` on.
    pub fn first_wrong(&self, first: u64, buf: &[u8]) -> Option<u64> {
        (first..).zip(buf.chunks_exact(BLOCK_BYTES)).find_map(|(n, block)| {
            let at = n as usize % BASE_BLOCKS * BLOCK_BYTES;
            let base = &self.base[at..at + BLOCK_BYTES];
            let is_right = block[..8] == MARK && block[8..16] == n.to_le_bytes() && block[16..] == base[16..];
            (!is_right).then_some(n)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_have_equal_content() {
        let blocks = Blocks::new(1);
        let (mut many, mut one) = (vec![0; 8 * BLOCK_BYTES], vec![0; BLOCK_BYTES]);
        blocks.fill(4094, &mut many);
        blocks.fill(4096, &mut one);
        assert_eq!(many[2 * BLOCK_BYTES..3 * BLOCK_BYTES], one);
        assert_eq!(blocks.first_wrong(4094, &many), None);
        many[3 * BLOCK_BYTES + 100] ^= 1;
        assert_eq!(blocks.first_wrong(4094, &many), Some(4097));
        blocks.fill(0, &mut one);
        assert_eq!(blocks.first_wrong(4096, &one), Some(4096));
    }
}
