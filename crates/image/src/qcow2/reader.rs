//! A disk in a qcow2 image, with what lies behind it.

use std::ops::Range;

use super::header::{BackingName, Compression, Header, FORMAT};
use super::map::Map;
use crate::disk::Source;
use crate::error::{Blame, Result};
use crate::file::bytes::{read_full, ReadAt};
use crate::file::read_ahead::ReadAhead;
use crate::mapping::decode::Packing;
use crate::mapping::run::{DataMemo, Joined, Place};
use crate::mapping::tables::TableBudget;
use crate::mapping::unpack::{Packed, Unpacker};

/// The disk that shows through where the image holds nothing.
struct Backing {
    source: Box<dyn Source>,
    memo: DataMemo,
}

impl Backing {
    /// Reads at `offset`; behind the backing disk's end are zeros.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let n = match self.source.size() {
            Some(size) if offset >= size => 0,
            _ => self.source.read_at(offset, buf)?,
        };
        buf[n..].fill(0);
        Ok(())
    }
}

/// Reads a qcow2 image.
pub(super) struct Qcow2Reader {
    blame: Blame,
    file: Box<dyn ReadAt>,
    size: u64,
    map: Map,
    unpacker: Unpacker,
    backing: Option<Backing>,
    /// Where the file has holes: clusters that were allocated ahead and never written.
    holes: DataMemo,
    ahead: ReadAhead,
}

impl Qcow2Reader {
    /// Opens the image in `file`, called `name` in errors; `open_backing` opens the file that it names.
    pub fn open(
        file: Box<dyn ReadAt>,
        name: String,
        budget: &mut TableBudget,
        open_backing: impl FnOnce(BackingName, &mut TableBudget) -> Result<Option<Box<dyn Source>>>,
    ) -> Result<Self> {
        let mut header = Header::read(&*file, &name)?;
        let blame = Blame { path: name, format: FORMAT };
        let map = Map::load(&*file, &header, blame.clone(), budget)?;
        let packing = match header.compression {
            Compression::Deflate => Packing::Deflate,
            Compression::Zstd => Packing::Zstd,
        };
        let source = match header.backing.take() {
            Some(backing) => open_backing(backing, budget)?,
            None => None,
        };
        Ok(Self {
            unpacker: Unpacker::new(packing, blame.clone()),
            blame,
            file,
            size: header.size,
            map,
            backing: source.map(|source| Backing { source, memo: DataMemo::default() }),
            holes: DataMemo::default(),
            ahead: ReadAhead::default(),
        })
    }

    /// The first data of the run of `len` at `offset`, which stands at `place`.
    fn first_data(&mut self, offset: u64, len: u64, place: Place) -> Result<Option<Range<u64>>> {
        let guest = offset..offset + len;
        match place {
            Place::Zero => Ok(None),
            Place::Packed(_) => Ok(Some(guest)),
            Place::Absent => match &mut self.backing {
                Some(backing) => backing.memo.first_in(guest, |from| backing.source.next_data(from)),
                None => Ok(None),
            },
            Place::At(host) => {
                let (file, blame) = (&self.file, &self.blame);
                let data = self
                    .holes
                    .first_in(host..host + len, |from| file.next_data(from).map_err(|e| blame.read(e)))?;
                Ok(data.map(|d| d.start - host + offset..d.end - host + offset))
            }
        }
    }

    fn find_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let mut joined = Joined::default();
        let mut at = from;
        while at < self.size && joined.goes_on_at(at) {
            let run = self.map.run_at(&*self.file, at, u64::MAX)?;
            match self.first_data(at, run.len, run.place)? {
                None => at += run.len,
                Some(data) => {
                    at = data.end;
                    if !joined.add(data) {
                        break;
                    }
                }
            }
        }
        Ok(joined.into_range())
    }

    fn read_run(&mut self, offset: u64, place: Place, out: &mut [u8]) -> Result<()> {
        match place {
            Place::Zero => out.fill(0),
            Place::Absent => match &mut self.backing {
                Some(backing) => backing.read(offset, out)?,
                None => out.fill(0),
            },
            Place::At(host) => {
                let n = read_full(&*self.file, host, out).map_err(|e| self.blame.read(e))?;
                if n < out.len() {
                    return Err(self.blame.corrupt(format!("the file ends at {:#x}", host + n as u64)));
                }
            }
            Place::Packed(cluster) => {
                let cluster_bytes = self.map.cluster_bytes();
                let skip = (offset & (cluster_bytes - 1)) as usize;
                self.unpacker.read_part(&*self.file, cluster, cluster_bytes as usize, skip, out)?;
            }
        }
        Ok(())
    }

    /// Reads the whole compressed clusters from `offset` on, of which `first` is one, as far as they follow each other
    /// and fit into `out`. Returns how many bytes that was.
    fn read_packed(&mut self, offset: u64, first: Packed, out: &mut [u8]) -> Result<u64> {
        let cluster_bytes = self.map.cluster_bytes();
        let mut clusters = vec![first];
        let mut len = cluster_bytes;
        while len + cluster_bytes <= out.len() as u64 {
            let run = self.map.run_at(&*self.file, offset + len, cluster_bytes)?;
            match run.place {
                Place::Packed(next) if run.len == cluster_bytes => clusters.push(next),
                _ => break,
            }
            len += cluster_bytes;
        }
        let out = &mut out[..len as usize];
        self.unpacker.read_whole(&*self.file, &clusters, cluster_bytes as usize, out)?;
        Ok(len)
    }

    /// Announces what is going to be read after `at`. What is wrong there is told when it is read.
    fn read_ahead(&mut self, at: u64) {
        let Some(range) = self.ahead.next(at) else {
            return;
        };
        let mut at = range.start;
        while at < range.end {
            let Ok(run) = self.map.run_at(&*self.file, at, range.end - at) else {
                return;
            };
            if let Place::At(host) = run.place {
                self.file.will_need(host..host + run.len);
            }
            at += run.len;
        }
    }
}

impl Source for Qcow2Reader {
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
            let run = self.map.run_at(&*self.file, at, end - at)?;
            let done = (at - offset) as usize;
            match run.place {
                Place::Packed(first) if run.len == self.map.cluster_bytes() => {
                    at += self.read_packed(at, first, &mut buf[done..(end - offset) as usize])?;
                }
                place => {
                    self.read_run(at, place, &mut buf[done..done + run.len as usize])?;
                    at += run.len;
                }
            }
        }
        self.read_ahead(at);
        Ok((at - offset) as usize)
    }
}
