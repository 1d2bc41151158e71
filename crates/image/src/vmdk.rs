//! VMDK, VMware's virtual disks.
//!
//! Read are sparse files (`monolithicSparse`, `streamOptimized`) and descriptors that name sparse and flat files.
//! Snapshots (disks with a parent) and ESX's own sparse formats are refused.

mod descriptor;
mod extent;
mod header;
mod reader;
mod sparse;

use std::io::ErrorKind;

use crate::disk::Source;
use crate::error::{Blame, ImageError, Result};
use crate::file::bytes::{read_full, ReadAt};
use crate::mapping::tables::TableBudget;
use descriptor::{Descriptor, HINT_CLONE};
use extent::OpenExtent;
use header::{Header, FORMAT};

/// How much of a file [`is_vmdk`] wants to see.
pub(crate) const PROBE_BYTES: usize = 512;

/// The first line of a descriptor.
const DESCRIPTOR_LINE: &[u8] = b"# Disk DescriptorFile";

/// ESX's sparse formats, by their first bytes.
const ESX_MAGICS: [(&[u8], &str); 2] = [
    (b"COWD", "an ESX vmfsSparse extent"),
    (&[0xbe, 0xba, 0xfe, 0xca, 0, 0, 0, 0], "an ESX seSparse extent"),
];

/// Whether a file that begins with `head` is a VMDK.
pub(crate) fn is_vmdk(head: &[u8]) -> bool {
    head.starts_with(&header::MAGIC)
        || ESX_MAGICS.iter().any(|(magic, _)| head.starts_with(magic))
        || head.get(..DESCRIPTOR_LINE.len()).is_some_and(|line| line.eq_ignore_ascii_case(DESCRIPTOR_LINE))
}

/// Opens the disk in `file`, called `name` in errors. Only images of one file can be read so: extents that it names
/// are not found.
pub fn open_bytes(file: Box<dyn ReadAt>, name: &str) -> Result<Box<dyn Source>> {
    let mut budget = TableBudget::default();
    open(file, name.to_owned(), &mut budget, &mut |extent| {
        Err(ImageError::io(&String::from_utf8_lossy(extent), "open", ErrorKind::NotFound.into()))
    })
}

/// Opens the disk in `file`; `open_extent` opens the files that it names.
pub(crate) fn open(
    file: Box<dyn ReadAt>,
    name: String,
    budget: &mut TableBudget,
    open_extent: &mut OpenExtent,
) -> Result<Box<dyn Source>> {
    let blame = Blame { path: name, format: FORMAT };
    let mut head = [0; PROBE_BYTES];
    let n = read_full(&*file, 0, &mut head).map_err(|e| blame.read(e))?;
    if let Some((_, what)) = ESX_MAGICS.iter().find(|(m, _)| head[..n].starts_with(m)) {
        return Err(blame.unsupported(*what, Some(HINT_CLONE)));
    }
    if !head.starts_with(&header::MAGIC) {
        let descriptor = Descriptor::read_file(&*file, &blame)?;
        return reader::open_extents(&descriptor, &blame, budget, open_extent);
    }
    let header = Header::read(&*file, &blame)?;
    let descriptor = Descriptor::read_embedded(&*file, &header, &blame)?;
    descriptor.check_single(&blame)?;
    reader::open_single(file, header, blame, budget)
}
