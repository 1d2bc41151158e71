//! Runs of hooks in a vault's format, of any length: their bytes are computed where they are read, so that the index of a
//! petabyte needs no disk. Prefixes are drawn like those of fingerprints, and are in order.

use std::collections::BTreeMap;
use std::io::{self, Write};

use format::{names, ContainerId, Context, DiskId, Hook, HooksFooter, Token, VaultId, HOOK_BYTES};
use parking_lot::Mutex;

use crate::images::generate::Random;

/// Hooks of a cell, which is computed at once; about.
const CELL_HOOKS: u64 = 512;
const CELL_BITS_MAX: u32 = 16;

/// A run of hooks.
pub struct HookRun {
    /// The name of its object.
    pub name: String,
    seed: u64,
    /// The number of hooks before each cell, and in the end of all. Cells are equal parts of the prefixes.
    starts: Vec<u64>,
    /// Where hooks lead: an owner by its number, and a container.
    places: Vec<(u32, ContainerId)>,
    /// Hooks that stand among the drawn ones, by their cells.
    planted: BTreeMap<usize, Vec<Hook>>,
    footer: Vec<u8>,
    footer_memory_bytes: usize,
    /// The cell that was computed last, as it is stored.
    last: Mutex<(usize, Vec<u8>)>,
}

/// Where the hooks of a run lead.
#[derive(Clone)]
pub struct Places {
    /// All owners.
    pub owners: Vec<DiskId>,
    /// Owners by their numbers, with a container of each.
    pub containers: Vec<(u32, ContainerId)>,
}

impl HookRun {
    /// A run of `hooks` hooks, `planted` among them.
    pub fn new(vault: VaultId, seed: u64, hooks: u64, places: &Places, planted: &[Hook]) -> Self {
        let drawn = hooks.saturating_sub(planted.len() as u64);
        let bits = (drawn / CELL_HOOKS).max(1).ilog2().min(CELL_BITS_MAX);
        let cells = 1_u64 << bits;
        let mut by_cell: BTreeMap<usize, Vec<Hook>> = BTreeMap::new();
        for hook in planted {
            by_cell.entry(cell_of(hook.prefix, bits)).or_default().push(*hook);
        }
        let (mut random, mut left) = (Random::new(seed), drawn);
        let mut starts = vec![0];
        let mut footer = HooksFooter::for_hooks(cells * CELL_HOOKS, places.owners.clone());
        for cell in 0..cells {
            // What falls into this cell of all that is left, by the normal approximation of the binomial distribution.
            let part = 1.0 / (cells - cell) as f64;
            let mean = left as f64 * part;
            let count = (mean + (mean * (1.0 - part)).sqrt() * random.normal()).round().max(0.0);
            let count = (count as u64).min(left);
            left -= count;
            let planted = by_cell.get(&(cell as usize)).map_or(0, |hooks| hooks.len() as u64);
            (0..count + planted).for_each(|_| footer.count(first_prefix(cell as usize, bits)));
            starts.push(starts[cell as usize] + count + planted);
        }
        let name = names::hooks(Token(seed));
        let footer_memory_bytes = footer.memory_bytes();
        let footer = footer.encode(Context { vault, place: &name }, None);
        let last = Mutex::new((usize::MAX, Vec::new()));
        let places = places.containers.clone();
        HookRun { name, seed, starts, places, planted: by_cell, footer, footer_memory_bytes, last }
    }

    /// Hooks in it.
    pub fn hooks(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Length of its object.
    pub fn length(&self) -> u64 {
        self.hooks() * HOOK_BYTES as u64 + self.footer.len() as u64
    }

    /// Memory that its footer takes where it is opened.
    pub fn footer_memory_bytes(&self) -> usize {
        self.footer_memory_bytes
    }

    /// Fills a buffer from an offset of the object, which must not end before.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) {
        let bytes = |hooks: u64| hooks * HOOK_BYTES as u64;
        let (mut at, mut left) = (offset, buffer);
        while !left.is_empty() {
            let all = bytes(self.hooks());
            let mut last = self.last.lock();
            let (start, source) = if at >= all {
                (all, &self.footer)
            } else {
                let cell = self.starts.partition_point(|start| bytes(*start) <= at) - 1;
                if last.0 != cell {
                    *last = (cell, self.cell(cell));
                }
                (bytes(self.starts[cell]), &last.1)
            };
            let source = &source[(at - start) as usize..];
            let length = source.len().min(left.len());
            let (now, later) = left.split_at_mut(length);
            now.copy_from_slice(&source[..length]);
            at += length as u64;
            left = later;
        }
    }

    /// Writes all of the object.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        (0..self.starts.len() - 1).try_for_each(|cell| out.write_all(&self.cell(cell)))?;
        out.write_all(&self.footer)
    }

    /// The hooks of a cell, as they are stored.
    fn cell(&self, cell: usize) -> Vec<u8> {
        let bits = (self.starts.len() - 1).ilog2();
        let planted = self.planted.get(&cell).map_or(&[][..], Vec::as_slice);
        let drawn = (self.starts[cell + 1] - self.starts[cell]) as usize - planted.len();
        let mut random = Random::new(Random::new(self.seed ^ ((cell as u64) << 40)).bits());
        let mut hooks: Vec<Hook> = (0..drawn)
            .map(|_| {
                let prefix = first_prefix(cell, bits) | random.bits() >> bits;
                let (owner, container) = self.places[random.below(self.places.len() as u64) as usize];
                Hook { prefix, owner, container }
            })
            .chain(planted.iter().copied())
            .collect();
        hooks.sort_unstable();
        hooks.iter().flat_map(Hook::encode).collect()
    }
}

fn cell_of(prefix: u64, bits: u32) -> usize {
    prefix.checked_shr(64 - bits).unwrap_or(0) as usize
}

fn first_prefix(cell: usize, bits: u32) -> u64 {
    (cell as u64).checked_shl(64 - bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{OwnerNo, WriterNo};

    fn run(hooks: u64) -> (HookRun, Vec<Hook>) {
        let container = ContainerId::new(OwnerNo::OWN, WriterNo(1), 1);
        let places = Places { owners: vec![DiskId([1; 16]); 3], containers: vec![(0, container)] };
        let planted: Vec<Hook> = (0..5).map(|n| Hook { prefix: n << 61 | 77, owner: 2, container }).collect();
        (HookRun::new(VaultId([7; 16]), 9, hooks, &places, &planted), planted)
    }

    #[test]
    fn a_run_is_what_the_format_says_however_it_is_read() {
        for hooks in [100, 5_000, 200_000] {
            let (run, planted) = run(hooks);
            let mut whole = Vec::new();
            run.write(&mut whole).expect("write");
            assert_eq!((run.hooks(), run.length()), (hooks, whole.len() as u64));
            let mut pieces = vec![0; whole.len()];
            for (n, piece) in pieces.chunks_mut(777).enumerate() {
                run.read_at(n as u64 * 777, piece);
            }
            assert!(pieces == whole, "read in pieces it differs");
            let tail = whole.last_chunk::<8>().expect("tail");
            let begins = HooksFooter::begins_at(run.length(), tail).expect("footer") as usize;
            assert_eq!(begins, hooks as usize * HOOK_BYTES);
            let context = Context { vault: VaultId([7; 16]), place: &run.name };
            let footer =
                HooksFooter::decode(context, &whole[begins..whole.len() - 8], hooks).expect("footer");
            let all: Vec<Hook> = whole[..begins]
                .chunks_exact(HOOK_BYTES)
                .map(|h| Hook::decode(h.try_into().expect("hook")).expect("hook"))
                .collect();
            assert!(all.is_sorted(), "out of order");
            assert!(planted.iter().all(|h| all.contains(h)));
            for (n, hook) in all.iter().enumerate() {
                assert!(footer.find(hook.prefix).all.contains(&(n as u64)), "{n} is not found");
            }
        }
    }
}
