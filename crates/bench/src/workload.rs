//! Workloads: disks with many versions, made of a few real images.
//!
//! A version is a base image and the blocks in which it differs from it, each of which stands somewhere in one of the
//! images or is generated. So a version costs memory for its changes and no disk space, its bytes are mostly those of
//! real files, and a hole of the base stays a hole.

mod blocks;
mod cluster;
mod daily;
pub mod hook_runs;
mod students;

pub use cluster::{Cluster, ClusterShape, Day, Days};
pub use daily::Daily;
pub use students::{Students, StudentsShape};

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{ensure, Result};
use image::ImageError;
use rustix::fs::{seek, SeekFrom};
use rustix::io::Errno;

use crate::files::{BLOCK_BYTES, READ_BYTES};
use crate::images::generate::Content;
use crate::images::Image;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A block of a disk or of an image, counted from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u64);

/// One of a workload's images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileNo(usize);

/// Where the bytes of a changed block stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere: zeros.
    Null,
    /// In an image.
    At(FileNo, BlockNo),
    /// Nowhere: the generated block of this name.
    Generated(u64),
}

/// Changed blocks of a disk.
type Changes = BTreeMap<BlockNo, Place>;

/// The images that a workload is made of.
struct Files {
    images: Vec<(PathBuf, File)>,
    /// Of generated blocks.
    content: Content,
}

impl Files {
    fn open<'a>(images: impl IntoIterator<Item = &'a Image>) -> Result<Self> {
        let mut files = Vec::new();
        for image in images {
            ensure!(image.size_bytes % BLOCK == 0, "{}: not a whole number of blocks", image.path.display());
            files.push((image.path.clone(), File::open(&image.path)?));
        }
        Ok(Self { images: files, content: Content::new(0) })
    }

    fn get(&self, no: FileNo) -> &File {
        &self.images[no.0].1
    }

    /// Fills `buf` from `offset` of the generated blocks that are called `first` and on.
    fn generate(&self, first: u64, offset: u64, buf: &mut [u8]) {
        let mut block = [0; BLOCK_BYTES];
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (name, within) = (first.wrapping_add(at / BLOCK), (at % BLOCK) as usize);
            let length = (BLOCK_BYTES - within).min(buf.len() - done);
            let part = &mut buf[done..done + length];
            if length == BLOCK_BYTES {
                self.content.fill(name, part);
            } else {
                self.content.fill(name, &mut block);
                part.copy_from_slice(&block[within..within + length]);
            }
            done += length;
        }
    }

    fn size_bytes(&self, no: FileNo) -> io::Result<u64> {
        Ok(self.get(no).metadata()?.len())
    }
}

/// Changed blocks that follow one another, on the disk and where their bytes stand.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: BlockNo,
    count: u64,
    place: Place,
}

impl Run {
    /// The range of the disk, in bytes.
    fn range(&self) -> Range<u64> {
        self.start.0 * BLOCK..(self.start.0 + self.count) * BLOCK
    }
}

fn runs(changes: &Changes) -> Vec<Run> {
    joined(changes.iter().map(|(block, place)| (*block, *place)))
}

/// Blocks in the order of the disk as runs.
fn joined(blocks: impl IntoIterator<Item = (BlockNo, Place)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (block, place) in blocks {
        if let Some(last) = runs.last_mut() {
            let goes_on = match (last.place, place) {
                (Place::Null, Place::Null) => true,
                (Place::At(f, b), Place::At(g, c)) => f == g && b.0 + last.count == c.0,
                (Place::Generated(n), Place::Generated(m)) => n.wrapping_add(last.count) == m,
                _ => false,
            };
            if goes_on && last.start.0 + last.count == block.0 {
                last.count += 1;
                continue;
            }
        }
        runs.push(Run { start: block, count: 1, place });
    }
    runs
}

/// One version of a disk.
#[derive(Clone)]
pub struct Version {
    /// The disk's name in a vault.
    pub disk: String,
    /// Length of the disk.
    pub size_bytes: u64,
    /// Bytes in blocks that are not all zero.
    pub nonzero_bytes: u64,
    /// Bytes in blocks that the version before has not in that place; 0 in the first version.
    pub changed_bytes: u64,
    files: Arc<Files>,
    base: FileNo,
    runs: Arc<[Run]>,
}

impl Version {
    /// The file that holds most of it.
    pub fn base(&self) -> &Path {
        &self.files.images[self.base.0].0
    }

    /// The version as a disk to back up.
    pub fn source(&self) -> Box<dyn image::Source> {
        Box::new(VersionSource(self.clone()))
    }

    /// Fills `buf` from `offset`. Returns less than its length only at the end of the disk.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let length = self.size_bytes.saturating_sub(offset).min(buf.len() as u64);
        let (mut at, end) = (offset, offset + length);
        let mut n = self.runs.partition_point(|run| run.range().end <= at);
        while at < end {
            let run = self.runs.get(n);
            let within = run.is_some_and(|run| run.range().start <= at);
            let edge = run.map_or(end, |run| if within { run.range().end } else { run.range().start });
            let to = edge.min(end);
            let part = &mut buf[(at - offset) as usize..(to - offset) as usize];
            match run.filter(|_| within) {
                None => self.files.get(self.base).read_exact_at(part, at)?,
                Some(Run { place: Place::Null, .. }) => part.fill(0),
                Some(Run { start, place: Place::At(file, block), .. }) => {
                    self.files.get(*file).read_exact_at(part, at - start.0 * BLOCK + block.0 * BLOCK)?;
                }
                Some(Run { start, place: Place::Generated(name), .. }) => {
                    self.files.generate(*name, at - start.0 * BLOCK, part);
                }
            }
            n += usize::from(within);
            at = to;
        }
        Ok(length as usize)
    }

    /// The next range at or after `from` that may hold data; it may end before the data does.
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let of_base = if from < self.size_bytes { self.next_of_base(from)? } else { None };
        let n = self.runs.partition_point(|run| run.range().end <= from);
        let mut later = self.runs[n..].iter().filter(|run| run.place != Place::Null);
        let of_runs = later.next().map(|run| run.range().start.max(from)..run.range().end);
        Ok(match (of_base, of_runs) {
            (Some(a), Some(b)) => Some(if a.start <= b.start { a } else { b }),
            (a, b) => a.or(b),
        })
    }

    fn next_of_base(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let file = self.files.get(self.base);
        let start = match seek(file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // File systems without holes answer differently: all is data.
            Err(_) => from,
        };
        let end = seek(file, SeekFrom::Hole(start)).unwrap_or(self.size_bytes);
        Ok(Some(start..end.min(self.size_bytes)))
    }

    /// Writes it to the new file `path`; what is not data becomes holes.
    pub fn write_to(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size_bytes)?;
        let mut buffer = vec![0; READ_BYTES];
        let mut at = 0;
        while let Some(range) = self.next_data(at)? {
            at = range.start;
            while at < range.end {
                let length = (range.end - at).min(READ_BYTES as u64) as usize;
                self.read_at(at, &mut buffer[..length])?;
                file.write_all_at(&buffer[..length], at)?;
                at += length as u64;
            }
        }
        Ok(())
    }

    /// Reads all of it once, so that the next reader finds it cached.
    pub fn make_warm(&self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let mut at = 0;
        while let Some(range) = self.next_data(at)? {
            at = range.start;
            while at < range.end {
                let length = (range.end - at).min(READ_BYTES as u64);
                self.read_at(at, &mut buffer[..length as usize])?;
                at += length;
            }
        }
        Ok(())
    }

    /// The same of the changed blocks alone.
    pub fn make_changes_warm(&self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        for run in self.runs.iter() {
            if run.place == Place::Null {
                continue;
            }
            let mut range = run.range();
            while range.start < range.end {
                let length = (range.end - range.start).min(READ_BYTES as u64);
                range.start += self.read_at(range.start, &mut buffer[..length as usize])? as u64;
            }
        }
        Ok(())
    }
}

/// Reads a version as a disk.
struct VersionSource(Version);

impl VersionSource {
    fn error(&self, op: &'static str, source: io::Error) -> ImageError {
        ImageError::Io { path: self.0.base().display().to_string(), op, source }
    }
}

impl image::Source for VersionSource {
    fn format(&self) -> &'static str {
        "raw"
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.size_bytes)
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.0.next_data(from).map_err(|e| self.error("find the data of", e))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        self.0.read_at(offset, buf).map_err(|e| self.error("read", e))
    }
}

/// A disk in memory.
#[derive(Clone)]
pub struct MemoryDisk(pub Arc<Vec<u8>>);

impl image::Source for MemoryDisk {
    fn format(&self) -> &'static str {
        "raw"
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        let size = self.0.len() as u64;
        Ok((from < size).then_some(from..size))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let length = rest.len().min(buf.len());
        buf[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Source as _;

    /// A version read whole, by its data ranges.
    pub(super) fn bytes_of(version: &Version) -> Vec<u8> {
        let mut source = version.source();
        let mut bytes = vec![0; version.size_bytes as usize];
        let mut at = 0;
        while let Some(range) = source.next_data(at).expect("ranges") {
            assert!(range.start >= at && range.end > range.start, "{range:?} after {at}");
            let part = &mut bytes[range.start as usize..range.end as usize];
            assert_eq!(source.read_at(range.start, part).expect("read"), part.len());
            at = range.end;
        }
        bytes
    }

    pub(super) fn nonzero_bytes(bytes: &[u8]) -> u64 {
        bytes.chunks(BLOCK_BYTES).filter(|b| !chunk::is_null(b)).count() as u64 * BLOCK
    }

    #[test]
    fn a_version_reads_as_its_base_with_its_changes() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("base");
        let file = File::create(&path).expect("create");
        file.set_len(64 * BLOCK).expect("length");
        let mut wanted = vec![0; 64 * BLOCK_BYTES];
        for no in [0, 1, 2, 3, 30, 31] {
            wanted[no * BLOCK_BYTES..(no + 1) * BLOCK_BYTES].fill(no as u8 + 1);
            file.write_all_at(&vec![no as u8 + 1; BLOCK_BYTES], no as u64 * BLOCK).expect("write");
        }
        let original = wanted.clone();
        let mut changes = Changes::new();
        let content = Content::new(0);
        for (to, name) in [(10, 77), (11, 78), (12, 80)] {
            changes.insert(BlockNo(to), Place::Generated(name));
            content.fill(name, &mut wanted[to as usize * BLOCK_BYTES..][..BLOCK_BYTES]);
        }
        for (to, from) in [(1, Some(30)), (2, Some(31)), (3, None), (50, Some(0)), (63, Some(1)), (31, None)]
        {
            let place = from.map_or(Place::Null, |b| Place::At(FileNo(0), BlockNo(b)));
            changes.insert(BlockNo(to), place);
            let bytes = match from {
                Some(b) => original[b as usize * BLOCK_BYTES..][..BLOCK_BYTES].to_vec(),
                None => vec![0; BLOCK_BYTES],
            };
            wanted[to as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&bytes);
        }
        let image = Image::open(&path).expect("image");
        let version = Version {
            disk: "a/a".into(),
            size_bytes: 64 * BLOCK,
            nonzero_bytes: 0,
            changed_bytes: 0,
            files: Arc::new(Files::open([&image]).expect("files")),
            base: FileNo(0),
            runs: runs(&changes).into(),
        };
        assert_eq!(version.runs.len(), 7, "{:?}", version.runs);
        assert!(bytes_of(&version) == wanted);
        let copy = dir.path().join("copy");
        version.write_to(&copy).expect("write");
        assert!(std::fs::read(copy).expect("read") == wanted);
        let mut part = vec![9; 3 * BLOCK_BYTES];
        assert_eq!(version.read_at(BLOCK + 77, &mut part).expect("read"), part.len());
        assert!(part == wanted[BLOCK_BYTES + 77..][..part.len()]);
        assert_eq!(version.read_at(10 * BLOCK + 99, &mut part).expect("read"), part.len());
        assert!(part == wanted[10 * BLOCK_BYTES + 99..][..part.len()]);
        assert_eq!(version.read_at(63 * BLOCK + 1, &mut part).expect("read"), BLOCK_BYTES - 1);
    }

    #[test]
    fn a_disk_in_memory_ends_where_it_ends() {
        let mut disk = MemoryDisk(Arc::new((0..100).collect()));
        let mut buffer = [0; 64];
        assert_eq!(disk.next_data(10).expect("range"), Some(10..100));
        assert_eq!(disk.read_at(90, &mut buffer).expect("read"), 10);
        assert_eq!(buffer[..10], [90, 91, 92, 93, 94, 95, 96, 97, 98, 99]);
        assert_eq!(disk.read_at(100, &mut buffer).expect("read"), 0);
    }
}
