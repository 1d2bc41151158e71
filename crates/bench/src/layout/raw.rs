//! Plain files, without any store: what the disk of this machine can do.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use chunk::Fingerprint;

use crate::files::{for_each_read, DataRanges, BLOCK_BYTES, READ_BYTES};
use crate::layout::extents::extents;
use crate::layout::seek_model::{Service, ST1000DM003};

/// Seconds to write `bytes` to the new file `path` and sync it.
pub fn write(path: &Path, bytes: &[u8]) -> Result<f64> {
    let start = Instant::now();
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    for (i, part) in bytes.chunks(READ_BYTES).enumerate() {
        file.write_all_at(part, (i * READ_BYTES) as u64)?;
    }
    file.sync_all()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds to read the data of a file from front to back.
pub fn read(path: &Path) -> Result<f64> {
    let start = Instant::now();
    let file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    for (from, to) in DataRanges::new(&file)? {
        for_each_read(&file, from, to, &mut buffer, |_, _| Ok(()))?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Bytes and seconds of a copy of a file's data to the new file `target`, synced.
pub fn copy(source: &Path, target: &Path) -> Result<(u64, f64)> {
    let start = Instant::now();
    let (from, to) = (File::open(source)?, File::create(target)?);
    to.set_len(from.metadata()?.len())?;
    let mut buffer = vec![0; READ_BYTES];
    let mut copied = 0;
    for (begin, end) in DataRanges::new(&from)? {
        for_each_read(&from, begin, end, &mut buffer, |offset, bytes| {
            copied += bytes.len() as u64;
            Ok(to.write_all_at(bytes, offset)?)
        })?;
    }
    to.sync_all()?;
    Ok((copied, start.elapsed().as_secs_f64()))
}

/// Reading a file from front to back on the modelled disk; `None` where the file system does not tell its places.
pub fn modelled(path: &Path) -> Result<Option<Service>> {
    Ok(extents(&File::open(path)?)?.map(|places| ST1000DM003.serve(places)))
}

/// Seconds to fingerprint each block of `bytes` on all cores, and nothing else.
pub fn hash(bytes: &[u8]) -> Result<f64> {
    let start = Instant::now();
    let parts: Vec<&[u8]> = bytes.chunks(READ_BYTES).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism()?.get() {
            scope.spawn(|| {
                let mut fingerprints: Vec<Fingerprint> = Vec::new();
                let mut lengths: Vec<u32> = Vec::new();
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    fingerprints.clear();
                    lengths.clear();
                    lengths.extend(part.chunks(BLOCK_BYTES).map(|block| block.len() as u32));
                    chunk::fingerprints(part, &lengths, &mut fingerprints);
                    std::hint::black_box(&fingerprints);
                }
            });
        }
        anyhow::Ok(())
    })?;
    Ok(start.elapsed().as_secs_f64())
}
