//! A disk in VMDK extents.

use super::descriptor::{Descriptor, ExtentKind};
use super::extent::{Content, Extent, OpenExtent};
use super::header::{Header, FORMAT, SECTOR};
use super::sparse::SparseExtent;
use crate::disk::Source;
use crate::error::{Blame, Result};
use crate::file::bytes::ReadAt;
use crate::mapping::decode::Packing;
use crate::mapping::file::MappedFile;
use crate::mapping::reader::{MappedReader, Mapping};
use crate::mapping::run::{Place, Run};
use crate::mapping::tables::TableBudget;
use crate::mapping::unpack::Unpacker;
use std::ops::Range;

/// Where the parts of a VMDK disk are.
struct VmdkMapping {
    size: u64,
    /// In address order, without gaps, none empty.
    extents: Vec<Extent>,
    /// The decompressor of the extent that was read last.
    unpacker: Option<(usize, Unpacker)>,
}

/// Opens the disk of the one sparse extent in `file`.
pub(super) fn open_single(
    file: Box<dyn ReadAt>,
    header: Header,
    blame: Blame,
    budget: &mut TableBudget,
) -> Result<Box<dyn Source>> {
    let sparse = SparseExtent::open(MappedFile::new(file, blame), header, budget)?;
    let size = sparse.sectors() * SECTOR;
    let extent = Extent { range: 0..size, content: Content::Sparse(Box::new(sparse)) };
    Ok(reader(size, if size == 0 { vec![] } else { vec![extent] }))
}

/// Opens the disk of the extents that `descriptor` lists.
pub(super) fn open_extents(
    descriptor: &Descriptor,
    blame: &Blame,
    budget: &mut TableBudget,
    open_extent: &mut OpenExtent,
) -> Result<Box<dyn Source>> {
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
            ExtentKind::Flat { name, at } => Content::open_flat(open_extent, name, *at, end - size)?,
            ExtentKind::Sparse { name } => Content::open_sparse(open_extent, name, line.sectors, budget)?,
        };
        if end > size {
            extents.push(Extent { range: size..end, content });
        }
        size = end;
    }
    Ok(reader(size, extents))
}

fn reader(size: u64, extents: Vec<Extent>) -> Box<dyn Source> {
    Box::new(MappedReader::new(VmdkMapping { size, extents, unpacker: None }))
}

impl VmdkMapping {
    /// The number of the extent that holds `offset`, which must be inside the disk.
    fn extent_of(&self, offset: u64) -> usize {
        self.extents.partition_point(|e| e.range.end <= offset)
    }
}

impl Mapping for VmdkMapping {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn run_at(&mut self, offset: u64, max_len: u64) -> Result<Run> {
        let number = self.extent_of(offset);
        let extent = &mut self.extents[number];
        extent.run_at(offset - extent.range.start, max_len)
    }

    fn first_data(&mut self, offset: u64, run: Run) -> Result<Option<Range<u64>>> {
        let host = match run.place {
            Place::Absent | Place::Zero => return Ok(None),
            Place::Packed(_) => return Ok(Some(offset..offset + run.len)),
            Place::At(host) => host,
        };
        let number = self.extent_of(offset);
        let Some(file) = self.extents[number].file_mut() else { return Ok(None) };
        let data = file.first_data(host..host + run.len)?;
        Ok(data.map(|d| d.start - host + offset..d.end - host + offset))
    }

    fn read_run(&mut self, offset: u64, place: Place, out: &mut [u8]) -> Result<()> {
        let number = self.extent_of(offset);
        let extent = &self.extents[number];
        match (place, &extent.content) {
            (Place::Packed(marker), Content::Sparse(sparse)) => {
                let unpacker = unpacker_of(&mut self.unpacker, number, sparse);
                let offset = offset - extent.range.start;
                let grain = sparse.grain_at(unpacker, marker.offset, offset)?;
                let grain_bytes = sparse.grain_bytes();
                let skip = (offset % grain_bytes) as usize;
                return unpacker.read_part(&*sparse.file.file, grain, grain_bytes as usize, skip, out);
            }
            (Place::At(host), _) => {
                if let Some(file) = extent.file() {
                    return file.read_data(host, out);
                }
            }
            _ => {}
        }
        out.fill(0);
        Ok(())
    }

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
        let out = &mut out[..len as usize];
        unpacker.read_whole(&*sparse.file.file, &grains, grain_bytes as usize, out)?;
        Ok(len)
    }

    fn will_need(&self, offset: u64, run: Run) {
        if let (Place::At(host), Some(file)) = (run.place, self.extents[self.extent_of(offset)].file()) {
            file.file.will_need(host..host + run.len);
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
    let fresh = || (number, Unpacker::new(Packing::Zlib, sparse.file.blame.clone()));
    &mut kept.get_or_insert_with(fresh).1
}
