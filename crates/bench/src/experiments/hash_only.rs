//! `hash-only`: the least that storing an unchanged disk can cost. All cores
//! read the file in pieces of 4 MiB and hash each 4 KiB, and do nothing else.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use chunk::{ChunkSpec, Fingerprint};
use serde::Serialize;

use crate::files::{DataRanges, BLOCK_BYTES, READ_BYTES};

/// What it did; printed as one JSON object.
#[derive(Debug, Serialize)]
pub struct Hashed {
    /// Length of the file.
    pub size_bytes: u64,
    /// Blocks hashed.
    pub blocks: u64,
    /// Wall time without starting the program.
    pub seconds: f64,
    /// XOR of all fingerprints: equal for equal files, and keeps the work from
    /// being optimised away.
    pub mark: String,
}

/// Hashes `path`, only its data if wanted, and prints what it did.
pub fn print(path: &Path, data_only: bool) -> Result<()> {
    println!("{}", serde_json::to_string(&hash(path, data_only)?)?);
    Ok(())
}

fn hash(path: &Path, data_only: bool) -> Result<Hashed> {
    let started = Instant::now();
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let size_bytes = file.metadata()?.len();
    let pieces = pieces(&file, size_bytes, data_only)?;
    let next = AtomicUsize::new(0);
    let parts = thread::scope(|scope| {
        let workers: Vec<_> = (0..thread::available_parallelism()?.get())
            .map(|_| scope.spawn(|| hash_pieces(&file, &pieces, &next, data_only)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
            .collect::<Result<Vec<_>>>()
    })?;
    let (mut mark, mut blocks) = ([0; 32], 0);
    for (part, count) in parts {
        xor(&mut mark, &part);
        blocks += count;
    }
    Ok(Hashed {
        size_bytes,
        blocks,
        seconds: started.elapsed().as_secs_f64(),
        mark: Fingerprint(mark).to_string(),
    })
}

/// Offset and length of every read, in order; each starts on a block.
fn pieces(file: &File, size_bytes: u64, data_only: bool) -> Result<Vec<(u64, usize)>> {
    let ranges: Vec<(u64, u64)> =
        if data_only { DataRanges::new(file)?.collect() } else { vec![(0, size_bytes)] };
    let mut pieces = Vec::new();
    let mut done = 0;
    for (start, end) in ranges {
        // Where holes are smaller than a block, two ranges share one.
        let mut offset = done.max(start - start % BLOCK_BYTES as u64);
        let end = end.next_multiple_of(BLOCK_BYTES as u64).min(size_bytes);
        while offset < end {
            let length = usize::try_from(end - offset).map_or(READ_BYTES, |l| l.min(READ_BYTES));
            pieces.push((offset, length));
            offset += length as u64;
        }
        done = offset;
    }
    Ok(pieces)
}

fn hash_pieces(
    file: &File,
    pieces: &[(u64, usize)],
    next: &AtomicUsize,
    data_only: bool,
) -> Result<([u8; 32], u64)> {
    const BLOCKS: ChunkSpec = ChunkSpec::Fixed { bytes: BLOCK_BYTES as u32 };
    let mut buffer = vec![0; READ_BYTES];
    let (mut fingerprints, mut lengths, mut cut) = (Vec::new(), Vec::new(), Vec::new());
    let (mut mark, mut blocks) = ([0; 32], 0);
    while let Some(&(offset, length)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
        let piece = &mut buffer[..length];
        file.read_exact_at(piece, offset)?;
        fingerprints.clear();
        if data_only {
            cut.clear();
            chunk::cut(piece, BLOCKS, &mut cut);
            chunk::fingerprint_pieces(piece, &cut, &mut fingerprints);
        } else {
            lengths.clear();
            lengths.extend(piece.chunks(BLOCK_BYTES).map(|block| block.len() as u32));
            chunk::fingerprints(piece, &lengths, &mut fingerprints);
        }
        blocks += fingerprints.len() as u64;
        for fingerprint in &fingerprints {
            xor(&mut mark, &fingerprint.0);
        }
    }
    Ok((mark, blocks))
}

fn xor(mark: &mut [u8; 32], fingerprint: &[u8; 32]) {
    for (to, from) in mark.iter_mut().zip(fingerprint) {
        *to ^= from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), bytes).expect("write");
        file
    }

    fn marked<'a>(blocks: impl Iterator<Item = &'a [u8]>) -> (u64, String) {
        let (mut mark, mut count) = ([0; 32], 0);
        for block in blocks {
            xor(&mut mark, &Fingerprint::of(block).0);
            count += 1;
        }
        (count, Fingerprint(mark).to_string())
    }

    #[test]
    fn every_block_is_hashed_once() {
        let bytes: Vec<u8> = (0..(9 << 20) + 5000_u32).map(|i| (i >> 9) as u8).collect();
        let got = hash(file(&bytes).path(), false).expect("hash");
        assert_eq!((got.blocks, got.mark), marked(bytes.chunks(BLOCK_BYTES)));
    }

    #[test]
    fn null_blocks_and_holes_are_passed_over() {
        let mut bytes = vec![0; 3 << 20];
        bytes[70_000] = 1;
        bytes[(2 << 20) + 5] = 2;
        let image = file(&bytes);
        image.as_file().set_len(64 << 20).expect("length");
        let got = hash(image.path(), true).expect("hash");
        let data = bytes.chunks(BLOCK_BYTES).filter(|block| !chunk::is_null(block));
        assert_eq!((got.blocks, got.mark), marked(data));
    }
}
