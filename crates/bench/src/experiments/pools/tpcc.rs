//! The benchmark of Paulo 2009, section 6.1: offsets by the function NURand of TPC-C, content with the duplicates that a
//! study found.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::files::BLOCK_BYTES;
use crate::images::generate::Random;

/// Of a range of 100,000, TPC-C takes 8,191 for A.
const RANGE_OF_A: u64 = 12;

/// Offsets: few blocks are written often, most of them rarely.
pub struct NuRand {
    blocks: u64,
    a: u64,
    c: u64,
}

impl NuRand {
    /// Offsets within so many blocks.
    pub fn new(blocks: u64, random: &mut Random) -> Self {
        let a = (blocks / RANGE_OF_A).max(1).next_power_of_two() - 1;
        NuRand { blocks, a, c: random.below(a + 1) }
    }

    /// The number of the next block.
    pub fn next(&self, random: &mut Random) -> u64 {
        ((random.below(self.a + 1) | random.below(self.blocks)) + self.c) % self.blocks
    }
}

/// Different blocks that occur equally often.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Class {
    /// How often each occurs.
    pub copies: u64,
    /// How many of them, of all different blocks.
    pub part: f64,
}

/// What the paper's table 6.1 says of 108 GB of personal files: 22.6 of 24.4 million different blocks occur once, the others
/// 3.76 times. How often each of those occurs, the paper only draws (figures 6.2 and 6.3).
const PAPER: [Class; 6] = [
    Class { copies: 1, part: 0.9248 },
    Class { copies: 2, part: 0.0414 },
    Class { copies: 3, part: 0.0188 },
    Class { copies: 6, part: 0.0105 },
    Class { copies: 12, part: 0.0037 },
    Class { copies: 24, part: 0.0008 },
];

/// Numbers of blocks to write: equal numbers, equal content.
pub struct Contents {
    numbers: Vec<u64>,
}

/// How often blocks occur: as in the paper, or as `sapwood study --json` has found it.
pub fn classes(study: Option<&Path>) -> Result<Vec<Class>> {
    let Some(path) = study else { return Ok(PAPER.to_vec()) };
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let study: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let rows = study["rows"].as_array().context("no rows: is it the output of `sapwood study --json`?")?;
    let is_blocks =
        |row: &&Value| row["cut"].as_str().is_some_and(|cut| cut.contains(&BLOCK_BYTES.to_string()));
    let row = rows.iter().find(is_blocks).context("the study has no row of fixed chunks of 4096 bytes")?;
    let all = row["unique_chunks"].as_f64().context("no unique_chunks")?.max(1.0);
    let classes = row["duplicates"].as_array().context("no duplicates")?;
    classes
        .iter()
        .map(|class| {
            let number = |name: &str| class[name].as_f64().with_context(|| format!("no {name}"));
            let unique = number("unique_chunks")?;
            let copies = (number("chunks")? / unique.max(1.0)).round().max(1.0) as u64;
            Ok(Class { copies, part: unique / all })
        })
        .collect()
}

impl Contents {
    /// So many writes.
    pub fn new(classes: &[Class], writes: u64, random: &mut Random) -> Self {
        let copies: f64 = classes.iter().map(|class| class.copies as f64 * class.part).sum();
        let unique = writes as f64 / copies.max(1.0);
        let mut numbers = Vec::with_capacity(writes as usize);
        let mut next = 0;
        for class in classes {
            for _ in 0..(unique * class.part).round() as u64 {
                numbers.extend(std::iter::repeat_n(next, class.copies as usize));
                next += 1;
            }
        }
        while (numbers.len() as u64) < writes {
            numbers.push(next);
            next += 1;
        }
        random.shuffle(&mut numbers);
        numbers.truncate(writes as usize);
        Contents { numbers }
    }

    /// What the `n`-th write writes.
    pub fn number(&self, n: u64) -> u64 {
        self.numbers[n as usize % self.numbers.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_blocks_are_written_often() {
        let mut random = Random::new(1);
        let nurand = NuRand::new(50_000, &mut random);
        let mut written = vec![0u32; 50_000];
        (0..50_000).for_each(|_| written[nurand.next(&mut random) as usize] += 1);
        written.sort_unstable();
        let of_top: u32 = written[45_000..].iter().sum();
        assert!(of_top > 25_000, "a tenth of the blocks gets {of_top} of 50,000 writes");
    }

    #[test]
    fn duplicates_are_those_of_the_study() {
        let mut random = Random::new(1);
        let contents = Contents::new(&PAPER, 100_000, &mut random);
        let mut numbers = contents.numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let saved = 1.0 - numbers.len() as f64 / 100_000.0;
        // Table 6.1: 5,081,176 of 29,530,586.
        assert!((saved - 0.172).abs() < 0.02, "{saved}");
    }
}
