//! Disks to back up, made from seeds.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: usize = 4096;

/// Blocks that all disks may have in common.
const COMMON_BLOCKS: u64 = 200;

/// A disk of `bytes`: what other disks have too, what they have not, and zeros.
pub fn fresh(bytes: usize, rng: &mut StdRng) -> Vec<u8> {
    let mut disk = vec![0; bytes];
    let mut at = 0;
    while at < bytes {
        let end = (at + rng.random_range(1..64) * BLOCK).min(bytes);
        fill(&mut disk[at..end], rng);
        at = end;
    }
    disk
}

/// Random bytes.
pub fn random(bytes: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; bytes];
    StdRng::seed_from_u64(seed).fill(&mut data[..]);
    data
}

/// Changes a disk a little, as a guest would; now and then its size too.
pub fn change(disk: &mut Vec<u8>, rng: &mut StdRng) {
    if rng.random_bool(0.1) {
        let bytes = disk.len();
        disk.resize(rng.random_range(bytes * 3 / 4..bytes * 5 / 4), 0);
    }
    for _ in 0..rng.random_range(1..20) {
        let at = rng.random_range(0..disk.len()) / BLOCK * BLOCK;
        let end = (at + rng.random_range(1..12) * BLOCK).min(disk.len());
        if rng.random_bool(0.2) {
            let from = rng.random_range(0..=disk.len() - (end - at)) / BLOCK * BLOCK;
            disk.copy_within(from..from + (end - at), at);
        } else {
            fill(&mut disk[at..end], rng);
        }
    }
}

fn fill(range: &mut [u8], rng: &mut StdRng) {
    match rng.random_range(0..4) {
        0 => range.fill(0),
        1 => rng.fill(range),
        _ => {
            let first = rng.random_range(0..COMMON_BLOCKS);
            for (n, block) in range.chunks_mut(BLOCK).enumerate() {
                common(block, (first + n as u64) % COMMON_BLOCKS);
            }
        }
    }
}

/// One of the blocks that all disks may have.
fn common(block: &mut [u8], kind: u64) {
    let mut x = kind.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for (n, b) in block.iter_mut().enumerate() {
        if n % 16 == 0 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        *b = (x >> (n % 8)) as u8;
    }
}

/// A sparse file with pieces of data far from each other.
pub struct Scattered {
    seed: u64,
    piece: usize,
    /// Where the pieces are, in order.
    pub at: Vec<u64>,
}

impl Scattered {
    /// Makes a file of `size` bytes with `pieces` pieces of `piece` bytes.
    pub fn create(path: &Path, size: u64, pieces: u64, piece: usize, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let room = size / pieces;
        let place = |n| n * room + rng.random_range(0..room - piece as u64) / 512 * 512;
        let all = Scattered { seed, piece, at: (0..pieces).map(place).collect() };
        let file = File::create(path).unwrap();
        file.set_len(size).unwrap();
        for n in 0..all.at.len() {
            file.write_all_at(&all.piece(n), all.at[n]).unwrap();
        }
        all
    }

    /// The bytes of a piece, made anew: a test of memory must not hold all of them.
    pub fn piece(&self, n: usize) -> Vec<u8> {
        let mut data = vec![0; self.piece];
        StdRng::seed_from_u64(self.seed + n as u64).fill(&mut data[..]);
        data
    }

    /// What `len` bytes at `offset` are.
    pub fn expected(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let end = offset + len as u64;
        for (n, &at) in self.at.iter().enumerate() {
            let (from, to) = (at.max(offset), (at + self.piece as u64).min(end));
            if from < to {
                let piece = self.piece(n);
                let source = &piece[(from - at) as usize..(to - at) as usize];
                out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        out
    }
}
