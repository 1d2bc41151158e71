//! Reading a disk through its mapping: the one loop over runs that all mapped formats share.

use super::run::{DataRange, Place, Run};
use crate::disk::Source;
use crate::error::Result;
use crate::file::read_ahead::ReadAhead;
use std::ops::Range;

/// Where the parts of a disk are. All offsets are addresses of the disk and inside it.
pub(crate) trait Mapping: Send {
    /// The name of the format.
    fn format(&self) -> &'static str;

    /// Size of the disk in bytes.
    fn size(&self) -> u64;

    /// The run at `offset`; it ends with the disk and after `max_len` at most.
    fn run_at(&mut self, offset: u64, max_len: u64) -> Result<Run>;

    /// The first part of the run at `offset` that may hold anything but zeros.
    fn first_data(&mut self, offset: u64, run: Run) -> Result<Option<Range<u64>>>;

    /// Fills `out` from the run at `offset`, of which it is the beginning or all.
    fn read_run(&mut self, offset: u64, place: Place, out: &mut [u8]) -> Result<()>;

    /// Reads the whole compressed clusters from `offset` on, as far as they follow each other and fit into `out`.
    /// Returns how many bytes that was: 0 where no whole cluster begins at `offset`.
    fn read_packed(&mut self, offset: u64, out: &mut [u8]) -> Result<u64>;

    /// Tells the system that the run at `offset` is going to be read.
    fn will_need(&self, offset: u64, run: Run);
}

/// Reads a disk through its mapping.
pub(crate) struct MappedReader<M> {
    mapping: M,
    ahead: ReadAhead,
}

impl<M: Mapping> MappedReader<M> {
    /// A reader of the disk that `mapping` describes.
    pub fn new(mapping: M) -> Self {
        Self { mapping, ahead: ReadAhead::default() }
    }

    fn find_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let mut joined = DataRange::default();
        let mut at = from;
        while at < self.mapping.size() && joined.goes_on_at(at) {
            let run = self.mapping.run_at(at, u64::MAX)?;
            match self.mapping.first_data(at, run)? {
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

    /// Announces what is going to be read after `at`. An error there is reported when it is read.
    fn read_ahead(&mut self, at: u64) {
        let Some(range) = self.ahead.next(at) else {
            return;
        };
        let mut at = range.start;
        while at < range.end {
            let Ok(run) = self.mapping.run_at(at, range.end - at) else {
                return;
            };
            self.mapping.will_need(at, run);
            at += run.len;
        }
    }
}

impl<M: Mapping> Source for MappedReader<M> {
    fn format(&self) -> &'static str {
        self.mapping.format()
    }

    fn size(&self) -> Option<u64> {
        Some(self.mapping.size())
    }

    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let data = self.find_data(from)?;
        if let Some(data) = &data {
            self.ahead.told(data);
        }
        Ok(data)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let end = offset.saturating_add(buf.len() as u64).min(self.mapping.size());
        let mut at = offset;
        while at < end {
            let run = self.mapping.run_at(at, end - at)?;
            let out = &mut buf[(at - offset) as usize..(end - offset) as usize];
            if let Place::Packed(_) = run.place {
                let packed = self.mapping.read_packed(at, out)?;
                if packed > 0 {
                    at += packed;
                    continue;
                }
            }
            self.mapping.read_run(at, run.place, &mut out[..run.len as usize])?;
            at += run.len;
        }
        self.read_ahead(at);
        Ok((at - offset) as usize)
    }
}
