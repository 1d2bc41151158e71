//! qcow2, QEMU's copy-on-write format: <https://www.qemu.org/docs/master/interop/qcow2.html>.
//!
//! Versions 2 and 3 are read, with zero clusters, subclusters, compressed clusters (deflate, zstd) and backing files.
//! The active state is read; internal snapshots are passed over.

mod entry;
mod header;
mod map;
mod overlay;
mod reader;
mod writer;

pub use header::BackingName;
pub(crate) use header::MAGIC;
pub use overlay::Overlay;
pub(crate) use writer::Qcow2Writer;

use crate::disk::Source;
use crate::error::Result;
use crate::file::bytes::ReadAt;
use crate::mapping::tables::TableBudget;

/// Opens the image in `file`, called `name` in errors, with `backing` in the place of the file that it names, if it
/// names one.
pub fn open_bytes(
    file: Box<dyn ReadAt>,
    name: &str,
    backing: Option<Box<dyn Source>>,
) -> Result<Box<dyn Source>> {
    let mut budget = TableBudget::default();
    reader::open(file, name.to_owned(), &mut budget, |_, _| Ok(backing))
}

/// Opens the image in `file`; `open_backing` opens the file that it names.
pub(crate) fn open(
    file: Box<dyn ReadAt>,
    name: String,
    budget: &mut TableBudget,
    open_backing: impl FnOnce(BackingName, &mut TableBudget) -> Result<Option<Box<dyn Source>>>,
) -> Result<Box<dyn Source>> {
    reader::open(file, name, budget, open_backing)
}
