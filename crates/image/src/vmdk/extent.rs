//! An extent of a VMDK disk: zeros, bytes as they are, or a sparse file.

use super::header::{Header, FORMAT, SECTOR};
use super::sparse::SparseExtent;
use crate::error::{Blame, Result};
use crate::file::bytes::ReadAt;
use crate::mapping::file::MappedFile;
use crate::mapping::run::{Place, Run};
use crate::mapping::tables::TableBudget;
use std::ops::Range;

/// Opens the file that an extent names, and says what errors call it.
pub(crate) type OpenExtent<'a> = dyn FnMut(&[u8]) -> Result<(Box<dyn ReadAt>, String)> + 'a;

/// Where the bytes of an extent are.
pub(super) enum Content {
    Zero,
    /// In the file, from this offset on.
    Flat(MappedFile, u64),
    Sparse(Box<SparseExtent>),
}

/// A range of the disk.
pub(super) struct Extent {
    /// Its addresses on the disk, in bytes.
    pub range: Range<u64>,
    /// Where its bytes are.
    pub content: Content,
}

impl Extent {
    /// The run at `offset` of the extent.
    pub fn run_at(&mut self, offset: u64, max_len: u64) -> Result<Run> {
        let len = (self.range.end - self.range.start - offset).min(max_len);
        match &mut self.content {
            Content::Zero => Ok(Run { len, place: Place::Zero }),
            Content::Flat(_, at) => Ok(Run { len, place: Place::At(*at + offset) }),
            Content::Sparse(sparse) => sparse.run_at(offset, len),
        }
    }

    /// Its file, unless it is zeros.
    pub fn file(&self) -> Option<&MappedFile> {
        match &self.content {
            Content::Zero => None,
            Content::Flat(file, _) => Some(file),
            Content::Sparse(sparse) => Some(&sparse.file),
        }
    }

    /// The same, to be changed.
    pub fn file_mut(&mut self) -> Option<&mut MappedFile> {
        match &mut self.content {
            Content::Zero => None,
            Content::Flat(file, _) => Some(file),
            Content::Sparse(sparse) => Some(&mut sparse.file),
        }
    }
}

impl Content {
    /// Opens a flat extent of `len` bytes, from sector `at` of the file `name`.
    pub fn open_flat(open_extent: &mut OpenExtent, name: &[u8], at: u64, len: u64) -> Result<Content> {
        let (file, name) = open_extent(name)?;
        let blame = Blame { path: name, format: FORMAT };
        let at = at.checked_mul(SECTOR);
        let end = at.and_then(|at| at.checked_add(len));
        match (at, end) {
            (Some(at), Some(end)) if end <= file.len() => Ok(Content::Flat(MappedFile::new(file, blame), at)),
            _ => Err(blame.corrupt(format!(
                "the extent has {} bytes, and the descriptor says {}",
                file.len(),
                end.unwrap_or(u64::MAX)
            ))),
        }
    }

    /// Opens a sparse extent of at least `sectors`.
    pub fn open_sparse(
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
                "the extent has {} sectors, and the descriptor says {sectors}",
                header.capacity
            )));
        }
        let sparse = SparseExtent::open(MappedFile::new(file, blame), header, budget)?;
        Ok(Content::Sparse(Box::new(sparse)))
    }
}
