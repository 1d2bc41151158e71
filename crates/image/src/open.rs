//! Opening a disk: what format it has, and which other files it may lead to.
//!
//! An image names other files: its backing file, its extents. Images come from strangers, and a guest can write an
//! image's header into its raw disk, so neither the format that the content shows nor the names are trusted:
//!
//! - A file whose content shows another format than that in which the disk was read before is refused.
//! - Names are followed in an image whose format the user said, or the image above it, or where the user trusts it since
//!   an earlier backup ([`SourceOptions::follow_names`]); never because of the content alone.
//! - Unless the user allows it, names lead only to files below the folder of the image that the user named.

mod chain;
pub mod format;
mod trust;

use crate::disk::Source;
use crate::error::{ImageError, Result};
use crate::file::bytes::ReadAt;
use crate::file::host::HostFile;
use crate::file::lock::check_stream;
use crate::mapping::tables::TableBudget;
use crate::source::nbd::{self, NbdSource};
use crate::source::raw::RawReader;
use crate::source::stream::Stream;
use crate::{qcow2, vmdk};
use chain::Opener;
use format::{Content, Format, HEAD_BYTES};
use std::io::{Cursor, Read};
use std::path::Path;
use trust::{probe, FormatBy, HINT_CONVERT};

/// How to open a disk.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// Whether an image may name backing files and extents outside its own folder.
    pub allow_backing_outside: bool,
    /// Whether to read files that another process has open for writing (QEMU's locks). The content may then be a mix of
    /// several points in time.
    pub allow_in_use: bool,
    /// The format; `None` goes by content.
    ///
    /// A guest can write anything into its raw disk, also the header of another format that names files of the host.
    /// Set it if the disk is known to be raw.
    pub format: Option<Format>,
    /// The format in which the disk was read before: content that shows another one is refused.
    pub expected: Option<Format>,
    /// Whether backing files and extents are followed although the format goes by content.
    pub follow_names: bool,
}

/// Opens the disk at `path`; `-` is standard input, and `nbd://…` and `nbd+unix://…` are exports ([`NbdSource`]).
///
/// # Errors
/// `Refused` where the path is no file or block device; `Address` where the URI of an export is not well-formed; `InUse` where
/// another process writes it or a file it names; `Outside` where an image names a file that it may not name; `Corrupt` and
/// `Unsupported` by what the image says of itself.
pub fn open(path: &Path, options: &SourceOptions) -> Result<Box<dyn Source>> {
    if path.as_os_str() == "-" {
        if !options.allow_in_use {
            check_stream(&std::io::stdin(), "-")?;
        }
        return open_pipe(std::io::stdin(), "-", options.format);
    }
    if let Some(uri) = nbd::uri(path) {
        return match options.format {
            None | Some(Format::Raw) => Ok(Box::new(NbdSource::connect(uri, None)?)),
            Some(_) => Err(ImageError::refused(uri, "an export is a raw disk; leave the format out")),
        };
    }
    let file = HostFile::open(path, options.allow_in_use)?;
    // A device's folder holds all the machine's disks, and whatever leads nowhere has none.
    let real = if file.is_device() { None } else { path.canonicalize().ok() };
    let root = real.as_deref().and_then(Path::parent).map(Path::to_owned);
    let mut opener = Opener::new(root, options.allow_backing_outside, options.allow_in_use);
    let name = path.display().to_string();
    let path = real.unwrap_or_else(|| path.to_owned());
    let mut budget = TableBudget::default();
    let format = match options.format {
        Some(format) => FormatBy::User(format),
        None => FormatBy::Content { expected: options.expected, follow_names: options.follow_names },
    };
    opener.open_image(file, &path, name, format, &mut budget)
}

/// Opens the raw disk that comes through a pipe, called `name` in errors. Without a format, what begins like an image is
/// refused: an image cannot be read in order.
pub fn open_pipe<R: Read + Send + 'static>(
    inner: R,
    name: &str,
    format: Option<Format>,
) -> Result<Box<dyn Source>> {
    match format {
        None => open_stream(inner, name),
        Some(Format::Raw) => Ok(Box::new(Stream::new(inner, name))),
        Some(_) => {
            Err(ImageError::refused(name, "only a raw disk can be read from a pipe; name a file instead"))
        }
    }
}

fn open_stream<R: Read + Send + 'static>(mut inner: R, name: &str) -> Result<Box<dyn Source>> {
    let mut head = Vec::new();
    let limit = HEAD_BYTES as u64;
    inner.by_ref().take(limit).read_to_end(&mut head).map_err(|e| ImageError::io(name, "read", e))?;
    let what = match Content::of_head(&head) {
        Content::Disk(Format::Raw) => return Ok(Box::new(Stream::new(Cursor::new(head).chain(inner), name))),
        Content::Disk(format) => format.name(),
        Content::Container(what) => what,
    };
    Err(ImageError::refused(
        name,
        format!("begins like {what}, and only a raw disk can be read from a pipe; name a file instead, or give --source-format raw to store the bytes as they are"),
    ))
}

/// Opens the disk in `file`, called `name` in errors, without following the names in it: a backing file reads as zeros,
/// and a VMDK whose extents are other files cannot be opened.
pub fn open_bytes(file: Box<dyn ReadAt>, name: &str, format: Option<Format>) -> Result<Box<dyn Source>> {
    let format = match format {
        Some(format) => format,
        None => probe(&*file, name, HINT_CONVERT)?,
    };
    match format {
        Format::Raw => Ok(Box::new(RawReader::new(file, name.to_owned(), "raw"))),
        Format::Qcow2 => qcow2::open_bytes(file, name, None),
        Format::Vmdk => vmdk::open_bytes(file, name),
    }
}
