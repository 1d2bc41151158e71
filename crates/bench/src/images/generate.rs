//! Generated content: the same bytes for the same seed, about half as large
//! when compressed, like the files of a guest.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;

use crate::files::{BLOCK_BYTES, READ_BYTES};

/// A small, seeded source of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// A number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Puts things into any order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for n in (1..things.len()).rev() {
            things.swap(n, self.below(n as u64 + 1) as usize);
        }
    }

    /// A number of the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

const WORDS: usize = 512;
const WORD_BYTES: usize = 8;

/// Makes blocks of semi-compressible content.
pub struct Content {
    words: [[u8; WORD_BYTES]; WORDS],
}

impl Content {
    /// One vocabulary for all content of an experiment.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut words = [[0; WORD_BYTES]; WORDS];
        for word in &mut words {
            *word = random.bits().to_le_bytes();
        }
        Self { words }
    }

    /// Fills `block` with the content called `name`.
    pub fn fill(&self, name: u64, block: &mut [u8]) {
        let mut random = Random::new(name);
        for pair in block.chunks_mut(2 * WORD_BYTES) {
            let bits = random.bits();
            let word = &self.words[(bits >> 55) as usize % WORDS];
            let fresh = bits.rotate_left(17).to_le_bytes();
            for (to, from) in pair.iter_mut().zip(word.iter().chain(&fresh)) {
                *to = *from;
            }
        }
    }

    /// Writes `length` bytes at `offset`; block `i` gets the content `first_name + i`.
    pub fn write(&self, file: &File, offset: u64, length: u64, first_name: u64) -> Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let mut done = 0;
        while done < length {
            let part = usize::try_from(length - done).map_or(READ_BYTES, |l| l.min(READ_BYTES));
            let first = first_name.wrapping_add(done / BLOCK_BYTES as u64);
            for (i, block) in buffer[..part].chunks_mut(BLOCK_BYTES).enumerate() {
                self.fill(first.wrapping_add(i as u64), block);
            }
            file.write_all_at(&buffer[..part], offset + done)?;
            done += part as u64;
        }
        Ok(())
    }
}

/// The shape of one generated disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskShape {
    /// Length, a multiple of a block.
    pub size_bytes: u64,
    /// Disks of one family share half of their blocks.
    pub family: u64,
    /// What this disk alone has.
    pub disk: u64,
    /// Version, from 0: each changes about 3 % of the blocks of the one before.
    pub version: u64,
}

/// Writes a generated disk: a third null, the rest in extents that are common to
/// its family or its own, with the changes of every version up to this one.
pub fn write_disk(content: &Content, path: &Path, shape: DiskShape) -> Result<()> {
    const EXTENT_BYTES: u64 = 128 << 10;
    let file = File::create(path)?;
    file.set_len(shape.size_bytes)?;
    let mut layout = Random::new(shape.family);
    let own = |salt: u64| Random::new(shape.disk ^ (salt << 32)).bits();
    for offset in (0..shape.size_bytes).step_by(EXTENT_BYTES as usize) {
        let length = EXTENT_BYTES.min(shape.size_bytes - offset);
        let family_name = layout.bits();
        match layout.below(3) {
            0 => {}
            1 => content.write(&file, offset, length, family_name)?,
            _ => content.write(&file, offset, length, own(offset))?,
        }
    }
    let blocks = shape.size_bytes / BLOCK_BYTES as u64;
    for version in 1..=shape.version {
        let mut changes = Random::new(own(version) ^ version);
        // Guests write in short runs of blocks.
        for _ in 0..(blocks * 3 / 100 / 8).max(1) {
            let offset = changes.below(blocks.saturating_sub(8).max(1)) * BLOCK_BYTES as u64;
            let length = (8 * BLOCK_BYTES as u64).min(shape.size_bytes - offset);
            content.write(&file, offset, length, changes.bits())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_bytes_and_versions_differ_little() {
        let dir = tempfile::tempdir().expect("dir");
        let content = Content::new(1);
        let make = |name: &str, version| {
            let path = dir.path().join(name);
            let shape = DiskShape { size_bytes: 4 << 20, family: 7, disk: 9, version };
            write_disk(&content, &path, shape).expect("write");
            std::fs::read(path).expect("read")
        };
        let (a, b, c) = (make("a", 1), make("b", 1), make("c", 2));
        assert!(a == b);
        let changed = a.chunks(BLOCK_BYTES).zip(c.chunks(BLOCK_BYTES)).filter(|(x, y)| x != y).count();
        assert!((1..200).contains(&changed), "{changed} of 1024 blocks changed");
    }
}
