//! A disk in a qcow2 image, with its backing file.

use super::header::{BackingName, Compression, Header, FORMAT};
use super::map::Map;
use crate::disk::Source;
use crate::error::{Blame, Result};
use crate::file::bytes::ReadAt;
use crate::mapping::decode::Packing;
use crate::mapping::file::MappedFile;
use crate::mapping::reader::{MappedReader, Mapping};
use crate::mapping::run::{DataMemo, Place, Run};
use crate::mapping::tables::TableBudget;
use crate::mapping::unpack::Unpacker;
use std::ops::Range;

/// The disk that shows through where the image holds nothing.
struct Backing {
    source: Box<dyn Source>,
    memo: DataMemo,
}

impl Backing {
    /// Reads at `offset`; bytes beyond the end of the backing disk are zeros.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let n = match self.source.size() {
            Some(size) if offset >= size => 0,
            _ => self.source.read_at(offset, buf)?,
        };
        buf[n..].fill(0);
        Ok(())
    }
}

/// Where the parts of a disk in a qcow2 image are.
struct Qcow2Mapping {
    file: MappedFile,
    size: u64,
    map: Map,
    unpacker: Unpacker,
    backing: Option<Backing>,
}

/// Opens the image in `file`, called `name` in errors; `open_backing` opens the file that it names.
pub(super) fn open(
    file: Box<dyn ReadAt>,
    name: String,
    budget: &mut TableBudget,
    open_backing: impl FnOnce(BackingName, &mut TableBudget) -> Result<Option<Box<dyn Source>>>,
) -> Result<Box<dyn Source>> {
    let mut header = Header::read(&*file, &name)?;
    let blame = Blame { path: name, format: FORMAT };
    let unpacker = Unpacker::new(
        match header.compression {
            Compression::Deflate => Packing::Deflate,
            Compression::Zstd => Packing::Zstd,
        },
        blame.clone(),
    );
    let file = MappedFile::new(file, blame);
    let map = Map::load(&file, &header, budget)?;
    let source = match header.backing.take() {
        Some(backing) => open_backing(backing, budget)?,
        None => None,
    };
    let backing = source.map(|source| Backing { source, memo: DataMemo::default() });
    let mapping = Qcow2Mapping { file, size: header.size, map, unpacker, backing };
    Ok(Box::new(MappedReader::new(mapping)))
}

impl Mapping for Qcow2Mapping {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn run_at(&mut self, offset: u64, max_len: u64) -> Result<Run> {
        self.map.run_at(&self.file, offset, max_len)
    }

    fn first_data(&mut self, offset: u64, run: Run) -> Result<Option<Range<u64>>> {
        let guest = offset..offset + run.len;
        match run.place {
            Place::Zero => Ok(None),
            Place::Packed(_) => Ok(Some(guest)),
            Place::Absent => match &mut self.backing {
                Some(backing) => backing.memo.first_in(guest, |from| backing.source.next_data(from)),
                None => Ok(None),
            },
            Place::At(host) => {
                let data = self.file.first_data(host..host + run.len)?;
                Ok(data.map(|d| d.start - host + offset..d.end - host + offset))
            }
        }
    }

    fn read_run(&mut self, offset: u64, place: Place, out: &mut [u8]) -> Result<()> {
        match place {
            Place::Zero => out.fill(0),
            Place::Absent => match &mut self.backing {
                Some(backing) => backing.read(offset, out)?,
                None => out.fill(0),
            },
            Place::At(host) => self.file.read_data(host, out)?,
            Place::Packed(cluster) => {
                let cluster_bytes = self.map.cluster_bytes();
                let skip = (offset & (cluster_bytes - 1)) as usize;
                self.unpacker.read_part(&*self.file.file, cluster, cluster_bytes as usize, skip, out)?;
            }
        }
        Ok(())
    }

    fn read_packed(&mut self, offset: u64, out: &mut [u8]) -> Result<u64> {
        let cluster_bytes = self.map.cluster_bytes();
        let mut clusters = Vec::new();
        let mut len = 0;
        while len + cluster_bytes <= out.len() as u64 {
            let run = self.map.run_at(&self.file, offset + len, cluster_bytes)?;
            match run.place {
                Place::Packed(next) if run.len == cluster_bytes => clusters.push(next),
                _ => break,
            }
            len += cluster_bytes;
        }
        let out = &mut out[..len as usize];
        self.unpacker.read_whole(&*self.file.file, &clusters, cluster_bytes as usize, out)?;
        Ok(len)
    }

    fn will_need(&self, _offset: u64, run: Run) {
        if let Place::At(host) = run.place {
            self.file.file.will_need(host..host + run.len);
        }
    }
}
