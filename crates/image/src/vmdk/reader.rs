//! A disk in VMDK extents.

use std::ops::Range;

use super::descriptor::{Descriptor, ExtentKind};
use super::header::{Header, FORMAT, SECTOR};
use super::sparse::SparseExtent;
use crate::disk::Source;
use crate::error::{Blame, Result};
use crate::file::bytes::{read_full, ReadAt};
use crate::file::read_ahead::ReadAhead;
use crate::mapping::decode::Packing;
use crate::mapping::run::{DataMemo, Joined, Place, Run};
use crate::mapping::tables::TableBudget;
use crate::mapping::unpack::Unpacker;

/// Opens the file that an extent names, and says what errors call it.
pub(crate) type OpenExtent<'a> = dyn FnMut(&[u8]) -> Result<(Box<dyn ReadAt>, String)> + 'a;

/// Where the bytes of an extent are.
enum Content {
    Zero,
    Flat { file: Box<dyn ReadAt>, blame: Blame, at: u64 },
    Sparse(SparseExtent),
}

/// A range of the disk.
struct Extent {
    /// Its addresses on the disk, in bytes.
    range: Range<u64>,
    content: Content,
    /// Where its file has holes.
    holes: DataMemo,
}

impl Extent {
    /// The run at `offset` of the extent.
    fn run_at(&mut self, offset: u64, max_len: u64) -> Result<Run> {
        let len = (self.range.end - self.range.start - offset).min(max_len);
        match &mut self.content {
            Content::Zero => Ok(Run { len, place: Place::Zero }),
            Content::Flat { at, .. } => Ok(Run { len, place: Place::At(*at + offset) }),
            Content::Sparse(sparse) => sparse.run_at(offset, len),
        }
    }

    fn file(&self) -> Option<(&dyn ReadAt, &Blame)> {
        match &self.content {
            Content::Zero => None,
            Content::Flat { file, blame, .. } => Some((&**file, blame)),
            Content::Sparse(sparse) => Some((&*sparse.file, &sparse.blame)),
        }
    }

    /// The first data of the run of `len` that stands at `place`, relative to the run.
    fn first_data(&mut self, len: u64, place: Place) -> Result<Option<Range<u64>>> {
        let host = match place {
            Place::Absent | Place::Zero => return Ok(None),
            Place::Packed(_) => return Ok(Some(0..len)),
            Place::At(host) => host,
        };
        let mut holes = std::mem::take(&mut self.holes);
        let data = match self.file() {
            Some((file, blame)) => {
                holes.first_in(host..host + len, |from| file.next_data(from).map_err(|e| blame.read(e)))
            }
            None => Ok(None),
        };
        self.holes = holes;
        Ok(data?.map(|d| d.start - host..d.end - host))
    }
}

/// Reads a VMDK disk.
pub(super) struct VmdkReader {
    size: u64,
    /// In address order, without gaps, none empty.
    extents: Vec<Extent>,
    /// The decompressor of the extent that was read last.
    unpacker: Option<(usize, Unpacker)>,
    ahead: ReadAhead,
}

impl VmdkReader {
    /// A disk of the one sparse extent in `file`.
    pub fn open_single(
        file: Box<dyn ReadAt>,
        header: Header,
        blame: Blame,
        budget: &mut TableBudget,
    ) -> Result<Self> {
        let sparse = SparseExtent::open(file, header, blame, budget)?;
        let size = sparse.sectors() * SECTOR;
        let extent = Extent { range: 0..size, content: Content::Sparse(sparse), holes: DataMemo::default() };
        let extents = if size == 0 { vec![] } else { vec![extent] };
        Ok(Self::new(size, extents))
    }

    /// A disk of the extents that `descriptor` lists.
    pub fn open_extents(
        descriptor: &Descriptor,
        blame: Blame,
        budget: &mut TableBudget,
        open_extent: &mut OpenExtent,
    ) -> Result<Self> {
        let mut extents = Vec::new();
        let mut size = 0u64;
        for line in &descriptor.extents {
            let end = line
                .sectors
                .checked_mul(SECTOR)
                .and_then(|len| size.checked_add(len))
                .filter(|end| i64::try_from(*end).is_ok())
                .ok_or_else(|| blame.corrupt("the extents are too large together"))?;
            let content = match &line.kind {
                ExtentKind::Zero => Content::Zero,
                ExtentKind::Flat { name, at } => open_flat(open_extent, name, *at, end - size)?,
                ExtentKind::Sparse { name } => open_sparse(open_extent, name, line.sectors, budget)?,
            };
            if end > size {
                extents.push(Extent { range: size..end, content, holes: DataMemo::default() });
            }
            size = end;
        }
        Ok(Self::new(size, extents))
    }

    fn new(size: u64, extents: Vec<Extent>) -> Self {
        Self { size, extents, unpacker: None, ahead: ReadAhead::default() }
    }

    /// The number of the extent that holds `offset`, which must be inside the disk.
    fn extent_of(&self, offset: u64) -> usize {
        self.extents.partition_point(|e| e.range.end <= offset)
    }

    /// The run at `offset`, and the number of its extent.
    fn run_at(&mut self, offset: u64, max_len: u64) -> Result<(usize, Run)> {
        let number = self.extent_of(offset);
        let extent = &mut self.extents[number];
        let run = extent.run_at(offset - extent.range.start, max_len)?;
        Ok((number, run))
    }

    fn find_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let mut joined = Joined::default();
        let mut at = from;
        while at < self.size && joined.goes_on_at(at) {
            let (number, run) = self.run_at(at, u64::MAX)?;
            match self.extents[number].first_data(run.len, run.place)? {
                None => at += run.len,
                Some(data) => {
                    let data = at + data.start..at + data.end;
                    at = data.end;
                    if !joined.add(data) {
                        break;
                    }
                }
            }
        }
        Ok(joined.into_range())
    }

    /// Fills `out` from the run at `offset`, which stands at `place` of extent `number`.
    fn read_run(&mut self, offset: u64, number: usize, place: Place, out: &mut [u8]) -> Result<()> {
        let extent = &self.extents[number];
        match (place, &extent.content) {
            (Place::Packed(marker), Content::Sparse(sparse)) => {
                let unpacker = unpacker_of(&mut self.unpacker, number, sparse);
                let offset = offset - extent.range.start;
                let grain = sparse.grain_at(unpacker, marker.offset, offset)?;
                let grain_bytes = sparse.grain_bytes();
                let skip = (offset % grain_bytes) as usize;
                unpacker.read_part(&*sparse.file, grain, grain_bytes as usize, skip, out)
            }
            (Place::At(host), _) => {
                let Some((file, blame)) = extent.file() else {
                    out.fill(0);
                    return Ok(());
                };
                let n = read_full(file, host, out).map_err(|e| blame.read(e))?;
                if n < out.len() {
                    return Err(blame.corrupt(format!("the file ends at {:#x}", host + n as u64)));
                }
                Ok(())
            }
            _ => {
                out.fill(0);
                Ok(())
            }
        }
    }

    /// Reads the whole compressed grains from `offset` on, as far as they follow each other and fit into `out`. Returns
    /// how many bytes that was: 0 where there is none.
    fn read_packed(&mut self, offset: u64, out: &mut [u8]) -> Result<u64> {
        let number = self.extent_of(offset);
        let extent = &mut self.extents[number];
        let Content::Sparse(sparse) = &mut extent.content else {
            return Ok(0);
        };
        let unpacker = unpacker_of(&mut self.unpacker, number, sparse);
        let grain_bytes = sparse.grain_bytes();
        let offset = offset - extent.range.start;
        let room = (out.len() as u64).min(extent.range.end - extent.range.start - offset);
        let mut grains = Vec::new();
        let mut len = 0;
        while len + grain_bytes <= room {
            let run = sparse.run_at(offset + len, grain_bytes)?;
            match run.place {
                Place::Packed(marker) if run.len == grain_bytes => {
                    grains.push(sparse.grain_at(unpacker, marker.offset, offset + len)?);
                }
                _ => break,
            }
            len += grain_bytes;
        }
        unpacker.read_whole(&*sparse.file, &grains, grain_bytes as usize, &mut out[..len as usize])?;
        Ok(len)
    }

    /// Announces what is going to be read after `at`. What is wrong there is told when it is read.
    fn read_ahead(&mut self, at: u64) {
        let Some(range) = self.ahead.next(at) else {
            return;
        };
        let mut at = range.start;
        while at < range.end {
            let Ok((number, run)) = self.run_at(at, range.end - at) else {
                return;
            };
            if let (Place::At(host), Some((file, _))) = (run.place, self.extents[number].file()) {
                file.will_need(host..host + run.len);
            }
            at += run.len;
        }
    }
}

/// The decompressor of extent `number`. Only one is kept: a disk is read one extent after the other.
fn unpacker_of<'a>(
    kept: &'a mut Option<(usize, Unpacker)>,
    number: usize,
    sparse: &SparseExtent,
) -> &'a mut Unpacker {
    if kept.as_ref().is_none_or(|(of, _)| *of != number) {
        *kept = None;
    }
    let fresh = || (number, Unpacker::new(Packing::Zlib, sparse.blame.clone()));
    &mut kept.get_or_insert_with(fresh).1
}

fn open_flat(open_extent: &mut OpenExtent, name: &[u8], at: u64, len: u64) -> Result<Content> {
    let (file, name) = open_extent(name)?;
    let blame = Blame { path: name, format: FORMAT };
    let at = at.checked_mul(SECTOR);
    let end = at.and_then(|at| at.checked_add(len));
    match (at, end) {
        (Some(at), Some(end)) if end <= file.len() => Ok(Content::Flat { file, blame, at }),
        _ => Err(blame.corrupt(format!(
            "the extent has {} bytes, and the descriptor speaks of {}",
            file.len(),
            end.unwrap_or(u64::MAX)
        ))),
    }
}

fn open_sparse(
    open_extent: &mut OpenExtent,
    name: &[u8],
    sectors: u64,
    budget: &mut TableBudget,
) -> Result<Content> {
    let (file, name) = open_extent(name)?;
    let blame = Blame { path: name, format: FORMAT };
    let header = Header::read(&*file, &blame)?;
    if header.capacity < sectors {
        return Err(blame.corrupt(format!(
            "the extent has {} sectors, and the descriptor speaks of {sectors}",
            header.capacity
        )));
    }
    let sparse = SparseExtent::open(file, header, blame, budget)?;
    Ok(Content::Sparse(sparse))
}

impl Source for VmdkReader {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let data = self.find_data(from)?;
        if let Some(data) = &data {
            self.ahead.told(data);
        }
        Ok(data)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let end = offset.saturating_add(buf.len() as u64).min(self.size);
        let mut at = offset;
        while at < end {
            let (number, run) = self.run_at(at, end - at)?;
            let done = (at - offset) as usize;
            if let Place::Packed(_) = run.place {
                let packed = self.read_packed(at, &mut buf[done..(end - offset) as usize])?;
                if packed > 0 {
                    at += packed;
                    continue;
                }
            }
            self.read_run(at, number, run.place, &mut buf[done..done + run.len as usize])?;
            at += run.len;
        }
        self.read_ahead(at);
        Ok((at - offset) as usize)
    }
}
