//! A snapshot of a vault as the input of a backup to another one.

use crate::backup::pipeline::Fingerprinted;
use crate::base::error::{Result, VaultError};
use crate::lookup::place::{Analysed, ReadRange, SegmentData};
use crate::restore::open_snapshot::OpenSnapshot;
use chunk::{Fingerprint, Piece};
use format::{ChunkNo, Reference, SegmentNo, SegmentRecipe};
use image::{Changes, ImageError, Source};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A snapshot, and how much of it was read.
pub(crate) struct CountedDisk {
    open: OpenSnapshot,
    read_bytes: AtomicU64,
    /// Why it could not be read as a disk.
    failure: Mutex<Option<VaultError>>,
}

impl CountedDisk {
    pub fn new(open: OpenSnapshot) -> CountedDisk {
        CountedDisk { open, read_bytes: AtomicU64::new(0), failure: Mutex::default() }
    }

    /// Bytes that were read.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// What an error of reading [`CountedDisk::source`] was.
    pub fn failure(&self) -> Option<VaultError> {
        self.failure.lock().take()
    }

    /// Keeps an error that no source of a backup can return.
    fn failed(&self, e: VaultError) -> ImageError {
        let (path, why) = (self.open.disk().to_owned(), e.to_string());
        self.failure.lock().get_or_insert(e);
        ImageError::Refused { path, why }
    }

    /// The same as a disk that is read from end to end.
    pub fn source(self: &Arc<Self>) -> Box<dyn Source> {
        Box::new(WholeDisk(self.clone()))
    }
}

impl ReadRange for CountedDisk {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.open.read_at(offset, buf)
    }
}

/// Its segments, with the fingerprints that the vault has of them.
pub(crate) struct StoredSegments {
    disk: Arc<CountedDisk>,
    /// All segments that are wanted; `None`: all that there are.
    touched: Option<Changes>,
    segment_bytes: u64,
}

impl StoredSegments {
    pub fn new(disk: Arc<CountedDisk>) -> StoredSegments {
        let segment_bytes = u64::from(disk.open.cut().0);
        StoredSegments { disk, touched: None, segment_bytes }
    }

    /// The first segment from `no` on that is wanted.
    fn next_wanted(&self, no: SegmentNo) -> Option<SegmentNo> {
        let Some(touched) = &self.touched else { return Some(no) };
        let from = no.0 * self.segment_bytes;
        let ranges = touched.ranges();
        let range = ranges.get(ranges.partition_point(|r| r.end <= from))?;
        Some(SegmentNo(range.start.max(from) / self.segment_bytes))
    }
}

impl Fingerprinted for StoredSegments {
    fn size(&self) -> u64 {
        self.disk.open.size()
    }

    fn narrow(&mut self, touched: &Changes) {
        self.touched = Some(touched.clone());
    }

    fn next_segment(&mut self, no: SegmentNo) -> Result<Option<Analysed>> {
        let mut no = no;
        loop {
            let Some(wanted) = self.next_wanted(no) else { return Ok(None) };
            let Some((found, segment, object)) = self.disk.open.next_segment(wanted)? else {
                return Ok(None);
            };
            // It may be behind the range that was looked for, and in none.
            if self.next_wanted(found) == Some(found) {
                let start = found.0 * self.segment_bytes;
                let bytes = self.segment_bytes.min(self.size().saturating_sub(start));
                return analysed(&self.disk, found, &segment, &object, bytes).map(Some);
            }
            no = found;
        }
    }
}

/// What the vault knows of a segment.
fn analysed(
    disk: &Arc<CountedDisk>,
    no: SegmentNo,
    segment: &SegmentRecipe,
    object: &str,
    bytes: u64,
) -> Result<Analysed> {
    let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
    for r in &segment.references {
        match *r {
            Reference::Null { bytes } => pieces.push(Piece::Null { bytes }),
            Reference::Direct { container, first, count } => {
                let table = disk.open.tables().get(container)?;
                for n in 0..count {
                    let index = first.0.checked_add(n).and_then(|no| table.index_of(ChunkNo(no)));
                    let index = index.ok_or_else(|| {
                        let why = format!("container {container} has no chunk {} + {n}", first.0);
                        VaultError::corrupt(object, why)
                    })?;
                    pieces.push(Piece::Data { bytes: table.length(index) });
                    fingerprints.push(Fingerprint(*table.fingerprint(index)));
                }
            }
            Reference::Indirect { .. } => {
                return Err(VaultError::corrupt(object, "refers to a newer snapshot"));
            }
        }
    }
    if pieces.iter().map(|p| u64::from(p.bytes())).sum::<u64>() != bytes {
        return Err(VaultError::corrupt(object, format!("segment {} is not as long as it should be", no.0)));
    }
    let fingerprint = chunk::segment_fingerprint(&pieces, &fingerprints);
    if fingerprint.0 != segment.fingerprint {
        return Err(VaultError::corrupt(
            object,
            format!("segment {} is not what its fingerprint says", no.0),
        ));
    }
    let signature = chunk::signature(&fingerprints).unwrap_or(0);
    let data = SegmentData::Elsewhere(disk.clone());
    Ok(Analysed { seq: 0, no, data, pieces, fingerprints, fingerprint, signature })
}

/// The snapshot as a disk.
struct WholeDisk(Arc<CountedDisk>);

impl Source for WholeDisk {
    fn format(&self) -> &'static str {
        "snapshot"
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.open.size())
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.0.open.next_data(from).map_err(|e| self.0.failed(e))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        let len = buf.len().min(self.0.open.size().saturating_sub(offset) as usize);
        self.0.read_at(offset, &mut buf[..len]).map_err(|e| self.0.failed(e))?;
        Ok(len)
    }
}
