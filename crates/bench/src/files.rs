//! Files and the page cache: how much space something takes, whether two files
//! are equal, and how to make reads start warm or cold.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context as _, Result};
use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;
use serde::Serialize;

/// The unit of a guest's I/O.
pub const BLOCK_BYTES: usize = 4096;
/// Size of one read when a whole file is read.
pub const READ_BYTES: usize = 4 << 20;

/// Space that files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Space {
    /// Blocks the file system allocated, as `du` counts them.
    pub allocated_bytes: u64,
    /// Sum of the files' lengths.
    pub apparent_bytes: u64,
}

impl Space {
    /// The space of a file, or of everything under a directory.
    pub fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        let mut space = Self { allocated_bytes: metadata.blocks() * 512, apparent_bytes: 0 };
        if metadata.is_dir() {
            for entry in fs::read_dir(path)? {
                // A tool may still be removing its temporary files.
                match Self::of(&entry?.path()) {
                    Ok(inner) => space += inner,
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        } else {
            space.apparent_bytes = metadata.len();
        }
        Ok(space)
    }
}

impl std::ops::AddAssign for Space {
    fn add_assign(&mut self, other: Self) {
        self.allocated_bytes += other.allocated_bytes;
        self.apparent_bytes += other.apparent_bytes;
    }
}

/// Bytes an unprivileged process can still write to the file system of `path`.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Fails unless `bytes` can be written beside `path` with a reserve left over.
pub fn require_free(path: &Path, bytes: u64) -> Result<()> {
    const RESERVE_BYTES: u64 = 1 << 30;
    let free = free_bytes(path)?;
    if free < bytes + RESERVE_BYTES {
        bail!(
            "the disk of the working directory has {} MiB free, this step may need {} MiB and a reserve of {} MiB; give --work DIR on a larger disk",
            free >> 20,
            bytes >> 20,
            RESERVE_BYTES >> 20,
        );
    }
    Ok(())
}

/// Writes everything pending on the file system of `path` to its disk.
pub fn sync_file_system(path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    rustix::fs::syncfs(&file)?;
    Ok(())
}

/// How the page cache was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cold {
    /// `sync`, then `/proc/sys/vm/drop_caches`: nothing is cached.
    DropCaches,
    /// `posix_fadvise(DONTNEED)` on the files read: where the other is not
    /// permitted, and in tiny runs, which leave the rest of the machine alone.
    Fadvise,
}

/// Empties the page cache, at least of the files under `path`, which are synced.
///
/// The files are read once before: the host of a virtual machine caches what was read or written lately, and every
/// tool must find its disk alike.
pub fn make_cold(path: &Path, only_these: bool) -> Result<Cold> {
    if !only_these {
        make_all_warm(path)?;
    }
    empty_cache(path, only_these)
}

/// Empties the page cache, at least of the files under `path`, which are synced.
pub fn empty_cache(path: &Path, only_these: bool) -> Result<Cold> {
    if !only_these {
        rustix::fs::sync();
        if fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
            return Ok(Cold::DropCaches);
        }
    }
    evict(path)?;
    Ok(Cold::Fadvise)
}

fn evict(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            evict(&entry?.path())?;
        }
    } else if path.is_file() {
        rustix::fs::fadvise(&File::open(path)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Reads the data of a file once, so that the next reader finds it cached.
pub fn make_warm(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    for (start, end) in DataRanges::new(&file)? {
        for_each_read(&file, start, end, &mut buffer, |_, _| Ok(()))?;
    }
    Ok(())
}

fn make_all_warm(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            make_all_warm(&entry?.path())?;
        }
    } else if path.is_file() {
        make_warm(path)?;
    }
    Ok(())
}

/// Bytes of `path` in blocks that are not all zero.
pub fn nonzero_bytes(path: &Path) -> Result<u64> {
    let file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut total = 0;
    for (start, end) in DataRanges::new(&file)? {
        let start = start - start % BLOCK_BYTES as u64;
        for_each_read(&file, start, end, &mut buffer, |_, bytes| {
            let used = bytes.chunks(BLOCK_BYTES).filter(|block| !chunk::is_null(block));
            total += used.map(|block| block.len() as u64).sum::<u64>();
            Ok(())
        })?;
    }
    Ok(total)
}

/// Fails, naming the first differing range, unless both files have the same
/// length and bytes. Ranges that are holes in both are not read.
pub fn require_equal(wanted: &Path, got: &Path) -> Result<()> {
    let describe = || format!("comparing {} with its source", got.display());
    let (a, b) = (File::open(wanted)?, File::open(got).with_context(describe)?);
    let (length, restored) = (a.metadata()?.len(), b.metadata()?.len());
    if length != restored {
        bail!("{}: {restored} bytes instead of {length}", describe());
    }
    let (mut left, mut right) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
    // Data of either file is compared with what stands at that place in the other.
    for ranges in [DataRanges::new(&a)?, DataRanges::new(&b)?] {
        for (start, end) in ranges {
            for_each_read(&a, start, end, &mut left, |offset, bytes| {
                let other = &mut right[..bytes.len()];
                b.read_exact_at(other, offset)?;
                if bytes != other {
                    bail!("{}: bytes differ at or after offset {offset}", describe());
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Calls `each(offset, bytes)` for the range in reads of at most the buffer's size.
pub fn for_each_read(
    file: &File,
    start: u64,
    end: u64,
    buffer: &mut [u8],
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut offset = start;
    while offset < end {
        let length = usize::try_from(end - offset).map_or(buffer.len(), |l| l.min(buffer.len()));
        file.read_exact_at(&mut buffer[..length], offset)?;
        each(offset, &buffer[..length])?;
        offset += length as u64;
    }
    Ok(())
}

/// The ranges of a file that are not holes, in order.
pub struct DataRanges<'a> {
    file: &'a File,
    offset: u64,
    length: u64,
}

impl<'a> DataRanges<'a> {
    /// Starts at the beginning of `file`.
    pub fn new(file: &'a File) -> Result<Self> {
        Ok(Self { file, offset: 0, length: file.metadata()?.len() })
    }
}

impl Iterator for DataRanges<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.offset >= self.length {
            return None;
        }
        let start = match rustix::fs::seek(self.file, SeekFrom::Data(self.offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return None,
            // File systems without holes answer differently: all is data.
            Err(_) => self.offset,
        };
        let end = rustix::fs::seek(self.file, SeekFrom::Hole(start)).unwrap_or(self.length);
        self.offset = end;
        Some((start, end.min(self.length)))
    }
}

/// Makes an empty directory, removing what was there.
pub fn fresh_dir(path: &Path) -> io::Result<PathBuf> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(path)?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse(dir: &Path, name: &str, data: &[(u64, &[u8])], length: u64) -> PathBuf {
        let path = dir.join(name);
        let file = File::create(&path).expect("create");
        file.set_len(length).expect("length");
        for (offset, bytes) in data {
            file.write_all_at(bytes, *offset).expect("write");
        }
        path
    }

    #[test]
    fn equality_sees_data_where_the_source_has_a_hole() {
        let dir = tempfile::tempdir().expect("dir");
        let length = 1 << 30;
        let a = sparse(dir.path(), "a", &[(8192, b"x")], length);
        let b = sparse(dir.path(), "b", &[(8192, b"x"), (900 << 20, &[0; 99])], length);
        let c = sparse(dir.path(), "c", &[(8192, b"x"), (900 << 20, b"y")], length);
        let d = sparse(dir.path(), "d", &[(8192, b"x")], length - 1);
        require_equal(&a, &b).expect("zeros written equal a hole");
        assert!(require_equal(&a, &c).is_err());
        assert!(require_equal(&a, &d).is_err());
    }

    #[test]
    fn nonzero_counts_blocks() {
        let dir = tempfile::tempdir().expect("dir");
        let path = sparse(dir.path(), "a", &[(5000, b"x"), (1 << 20, b"y")], 1 << 21);
        assert_eq!(nonzero_bytes(&path).expect("count"), 8192);
    }
}
