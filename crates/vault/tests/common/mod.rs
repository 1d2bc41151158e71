//! Images, sources and targets in memory for the tests of the vault.
#![allow(dead_code, clippy::unwrap_used)]

use image::{Source, Target};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::LocalStore;
use vault::{BackupOptions, BackupReport, Policy, Progress, Vault};

/// A seed: that of `SAPWOOD_SEED`, or always the same one. Printed, so that a failure can be replayed.
pub fn seed(test: &str) -> u64 {
    let given = std::env::var("SAPWOOD_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or(13);
    println!("{test}: SAPWOOD_SEED={seed}");
    seed
}

pub fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// Fills a range with one of the things that disks hold.
fn fill(rng: &mut StdRng, part: &mut [u8]) {
    match rng.random_range(0..5) {
        0 => part.fill(0),
        1 => rng.fill(part),
        2 => part.fill(rng.random()),
        3 => {
            let mut words = [[0u8; 16]; 8];
            words.iter_mut().for_each(|w| rng.fill(w));
            for piece in part.chunks_mut(16) {
                piece.copy_from_slice(&words[rng.random_range(0..8)][..piece.len()]);
            }
        }
        _ => {
            let mut block = [0u8; 4096];
            rng.fill(&mut block);
            part.chunks_mut(4096).for_each(|p| p.copy_from_slice(&block[..p.len()]));
        }
    }
}

/// A range within `len`, of at most `most` bytes, aligned to blocks three times out of four.
pub fn range(rng: &mut StdRng, len: usize, most: usize) -> Range<usize> {
    let mut start = rng.random_range(0..=len);
    let mut end = (start + rng.random_range(0..=most)).min(len);
    if rng.random_bool(0.75) {
        start -= start % 4096;
        end = end.next_multiple_of(4096).min(len);
    }
    start..end.max(start)
}

/// An image with runs of zeros, of repeated blocks, of text and of noise.
pub fn image(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let mut image = vec![0; len];
    let parts = rng.random_range(1..20);
    for _ in 0..parts {
        let r = range(rng, len, len / 6 + 5000);
        fill(rng, &mut image[r]);
    }
    image
}

/// The next version of a disk: some of it written anew, some moved, some zeroed, sometimes longer or shorter.
pub fn next_version(rng: &mut StdRng, image: &[u8]) -> Vec<u8> {
    let mut next = image.to_vec();
    for _ in 0..rng.random_range(0..6) {
        let len = next.len();
        let r = range(rng, len, len / 10 + 3000);
        match rng.random_range(0..4) {
            0 => fill(rng, &mut next[r]),
            1 => next[r].fill(0),
            2 => {
                let to = rng.random_range(0..=len - r.len());
                next.copy_within(r, to);
            }
            _ => next[r].iter_mut().for_each(|b| *b = b.wrapping_add(1)),
        }
    }
    match rng.random_range(0..8) {
        0 => next.truncate(rng.random_range(0..=image.len())),
        1 => {
            let more = rng.random_range(0..200_000);
            next.resize(image.len() + more, 0);
            fill(rng, &mut next[image.len()..]);
        }
        _ => {}
    }
    next
}

type Action = Box<dyn FnOnce() + Send>;

/// A disk in memory. With `holes`, zeros of whole 4 KiB blocks are told as holes.
pub struct MemorySource {
    bytes: Vec<u8>,
    holes: bool,
    /// Carried out when the byte at an offset is read.
    at: Option<(u64, Action)>,
}

pub fn source(bytes: &[u8], holes: bool) -> Box<dyn Source> {
    Box::new(MemorySource { bytes: bytes.to_vec(), holes, at: None })
}

/// The same without holes. Something happens when the byte at an offset has been read.
pub fn source_with(bytes: &[u8], at: u64, action: impl FnOnce() + Send + 'static) -> Box<dyn Source> {
    Box::new(MemorySource { bytes: bytes.to_vec(), holes: false, at: Some((at, Box::new(action))) })
}

impl Source for MemorySource {
    fn format(&self) -> &'static str {
        "memory"
    }

    fn size(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        let len = self.bytes.len();
        let from = from as usize;
        if from >= len {
            return Ok(None);
        }
        if !self.holes {
            return Ok(Some(from as u64..len as u64));
        }
        let is_hole = |block: usize| {
            let block = &self.bytes[block * 4096..len.min(block * 4096 + 4096)];
            *block == [0; 4096][..block.len()]
        };
        let blocks = len.div_ceil(4096);
        let Some(first) = (from / 4096..blocks).find(|b| !is_hole(*b)) else { return Ok(None) };
        let end = (first..blocks).find(|b| is_hole(*b)).unwrap_or(blocks);
        Ok(Some(from.max(first * 4096) as u64..len.min(end * 4096) as u64))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        if let Some((_, action)) = self.at.take_if(|(at, _)| (offset..offset + n as u64).contains(at)) {
            action();
        }
        Ok(n)
    }
}

/// A disk being restored to memory.
#[derive(Clone, Default)]
pub struct MemoryTarget {
    bytes: Arc<Mutex<Vec<u8>>>,
    finished: Arc<Mutex<bool>>,
    in_order: bool,
}

impl Target for MemoryTarget {
    fn in_order(&self) -> bool {
        self.in_order
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> image::Result<()> {
        let at = offset as usize;
        self.bytes.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn finish(self: Box<Self>) -> image::Result<()> {
        *self.finished.lock().unwrap() = true;
        Ok(())
    }
}

/// Restores a snapshot to memory.
pub fn restore(vault: &Vault, disk: &str, spec: &str) -> vault::Result<Vec<u8>> {
    restore_to(vault, disk, spec, MemoryTarget::default())
}

/// The same, as a pipe would take it.
pub fn restore_in_order(vault: &Vault, disk: &str, spec: &str) -> vault::Result<Vec<u8>> {
    restore_to(vault, disk, spec, MemoryTarget { in_order: true, ..MemoryTarget::default() })
}

fn restore_to(vault: &Vault, disk: &str, spec: &str, target: MemoryTarget) -> vault::Result<Vec<u8>> {
    let made = target.clone();
    let make = move |size: u64, _: &[Range<u64>]| {
        *made.bytes.lock().unwrap() = vec![0; size as usize];
        Ok(Box::new(made) as Box<dyn Target>)
    };
    vault.restore(disk, spec, make, &Progress::default())?;
    assert!(*target.finished.lock().unwrap());
    let bytes = std::mem::take(&mut *target.bytes.lock().unwrap());
    Ok(bytes)
}

/// A directory for a vault.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(testing::memory_dir()).unwrap()
}

pub fn new_vault(dir: &Path) -> Vault {
    Vault::init(Arc::new(LocalStore::create(dir).unwrap()), &vault::BALANCED).unwrap()
}

pub fn open_vault(dir: &Path) -> vault::Result<Vault> {
    Vault::open(Arc::new(LocalStore::open(dir).unwrap()))
}

pub fn backup(vault: &Vault, disk: &str, bytes: &[u8], policy: Policy) -> vault::Result<BackupReport> {
    let options = BackupOptions { policy: Some(policy), ..BackupOptions::default() };
    vault.backup(disk, source(bytes, true), &options, &Progress::default())
}
