//! Opening a disk: what format it has, and which other files it may lead to.
//!
//! An image names other files: its backing file, its extents. Images come from strangers, and a guest can write an
//! image's header into its raw disk, so the names are not trusted: unless the user allows it, they lead only to files
//! below the folder of the image that the user named.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::bytes::{read_full, ReadAt};
use crate::hostfile::{FileId, HostFile};
use crate::nbd::{self, NbdSource};
use crate::qcow2::{self, BackingName};
use crate::raw::RawReader;
use crate::stream::Stream;
use crate::tables::TableBudget;
use crate::vmdk;
use crate::{ImageError, Result, Source};

/// The most images of a chain. Each holds a file open.
const MAX_CHAIN: usize = 200;

/// How a disk stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The bytes as they are.
    Raw,
    /// QEMU's copy-on-write format, versions 2 and 3.
    Qcow2,
    /// VMware's sparse files, and descriptors that name sparse or flat files.
    Vmdk,
}

/// How to open a disk.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// Whether an image may name backing files and extents outside its own folder.
    pub allow_backing_outside: bool,
    /// The format; `None` goes by content.
    ///
    /// A guest can write anything into its raw disk, also the header of another format that names files of the host.
    /// Whoever knows that a disk is raw says so here.
    pub format: Option<Format>,
}

/// Opens the disk at `path`; `-` is standard input, and `nbd://…` and `nbd+unix://…` are exports ([`NbdSource`]).
///
/// # Errors
/// `Refused` where the path is no file or block device; `Outside` where an image names a file that it may not name;
/// `Corrupt` and `Unsupported` by what the image says of itself.
pub fn open(path: &Path, options: &SourceOptions) -> Result<Box<dyn Source>> {
    if path.as_os_str() == "-" {
        return match options.format {
            None | Some(Format::Raw) => Ok(Box::new(Stream::new(std::io::stdin(), "-"))),
            Some(_) => Err(ImageError::refused(
                "-",
                "only a raw disk can be read from standard input; name a file instead",
            )),
        };
    }
    if let Some(uri) = nbd::uri(path) {
        return match options.format {
            None | Some(Format::Raw) => Ok(Box::new(NbdSource::connect(uri, None)?)),
            Some(_) => Err(ImageError::refused(uri, "an export is a raw disk; leave the format out")),
        };
    }
    let file = HostFile::open(path)?;
    // A device's folder holds all the machine's disks, and whatever leads nowhere has none.
    let real = if file.is_device() { None } else { path.canonicalize().ok() };
    let mut opener = Opener {
        root: real.as_deref().and_then(Path::parent).map(Path::to_owned),
        allow_outside: options.allow_backing_outside,
        chain: Vec::new(),
    };
    let name = path.display().to_string();
    let path = real.unwrap_or_else(|| path.to_owned());
    let mut budget = TableBudget::default();
    opener.open_image(file, &path, name, options.format, &mut budget)
}

/// Opens the disk in `file`, called `name` in errors, without following the names in it: a backing file reads as zeros,
/// and a VMDK whose extents are other files cannot be opened.
pub fn open_bytes(file: Box<dyn ReadAt>, name: &str, format: Option<Format>) -> Result<Box<dyn Source>> {
    let format = match format {
        Some(format) => format,
        None => probe(&*file, name)?,
    };
    match format {
        Format::Raw => Ok(Box::new(RawReader::new(file, name.to_owned(), "raw"))),
        Format::Qcow2 => qcow2::open_bytes(file, name, None),
        Format::Vmdk => vmdk::open_bytes(file, name),
    }
}

/// The format that the first bytes of `file` show; what shows none is raw.
fn probe(file: &dyn ReadAt, name: &str) -> Result<Format> {
    let mut head = [0; vmdk::PROBE_BYTES];
    let n = read_full(file, 0, &mut head).map_err(|e| ImageError::read(name, "read", e))?;
    let head = &head[..n];
    Ok(if head.starts_with(&qcow2::MAGIC) {
        Format::Qcow2
    } else if vmdk::is_vmdk(head) {
        Format::Vmdk
    } else {
        Format::Raw
    })
}

/// Opens an image and what it names.
struct Opener {
    /// The folder that names must stay below; `None`: every name leads outside.
    root: Option<PathBuf>,
    allow_outside: bool,
    /// The images opened so far, each the backing file of the one before.
    chain: Vec<FileId>,
}

impl Opener {
    fn open_image(
        &mut self,
        file: HostFile,
        path: &Path,
        name: String,
        format: Option<Format>,
        budget: &mut TableBudget,
    ) -> Result<Box<dyn Source>> {
        if self.chain.contains(&file.id()) {
            return Err(ImageError::refused(&name, "is its own backing file, directly or through others"));
        }
        if self.chain.len() >= MAX_CHAIN {
            return Err(ImageError::refused(
                &name,
                format!("ends a chain of more than {MAX_CHAIN} backing files"),
            ));
        }
        self.chain.push(file.id());
        let format = match format {
            Some(format) => format,
            None => probe(&file, &name)?,
        };
        match format {
            Format::Raw => {
                let format = if file.is_device() { "block" } else { "raw" };
                Ok(Box::new(RawReader::new(file, name, format)))
            }
            Format::Qcow2 => {
                let image = name.clone();
                qcow2::open(Box::new(file), name, budget, |backing, budget| {
                    self.open_backing(path, &image, &backing, budget).map(Some)
                })
            }
            Format::Vmdk => {
                let image = name.clone();
                vmdk::open(Box::new(file), name, budget, &mut |extent| {
                    let (file, _, name) = self.open_named(path, &image, extent, "extent")?;
                    Ok((Box::new(file) as Box<dyn ReadAt>, name))
                })
            }
        }
    }

    fn open_backing(
        &mut self,
        image_path: &Path,
        image: &str,
        backing: &BackingName,
        budget: &mut TableBudget,
    ) -> Result<Box<dyn Source>> {
        let format = match backing.format.as_deref() {
            None => None,
            Some("raw" | "file" | "host_device") => Some(Format::Raw),
            Some("qcow2") => Some(Format::Qcow2),
            Some("vmdk") => Some(Format::Vmdk),
            Some(other) => {
                return Err(ImageError::unsupported(
                    image,
                    format!("a backing file of format {other:?}"),
                    Some("convert the image with qemu-img convert -O qcow2"),
                ))
            }
        };
        let (file, path, name) = self.open_named(image_path, image, &backing.name, "backing file")?;
        self.open_image(file, &path, name, format, budget)
    }

    /// Opens the file that the image at `image_path` calls `named`; returns it with its path, and its name for errors.
    fn open_named(
        &self,
        image_path: &Path,
        image: &str,
        named: &[u8],
        role: &'static str,
    ) -> Result<(HostFile, PathBuf, String)> {
        let shown = String::from_utf8_lossy(named);
        if named.is_empty() || named.contains(&0) {
            return Err(ImageError::refused(
                image,
                format!("names {shown:?} as its {role}, which is no file name"),
            ));
        }
        if has_protocol(named) {
            return Err(ImageError::unsupported(
                image,
                format!("the {role} {shown:?}, which is no plain file name,"),
                Some("convert the image with qemu-img convert, or give it another backing file with qemu-img rebase"),
            ));
        }
        let folder = image_path.parent().unwrap_or(Path::new(""));
        let wanted = folder.join(OsStr::from_bytes(named));
        let name = format!("{} ({role} of {image})", wanted.display());
        let path = wanted.canonicalize().map_err(|e| ImageError::io(&name, "find", e))?;
        let is_inside = self.root.as_ref().is_some_and(|root| path.starts_with(root));
        if !is_inside && !self.allow_outside {
            return Err(ImageError::Outside { path: image.to_owned(), other: shown.into_owned(), role });
        }
        let file = HostFile::open_real(&path, &name)?;
        Ok((file, path, name))
    }
}

/// Whether QEMU would take `name` for something else than a path: `json:…`, `nbd://…`.
fn has_protocol(name: &[u8]) -> bool {
    name.iter().find(|b| matches!(b, b':' | b'/')).is_some_and(|b| *b == b':')
}
