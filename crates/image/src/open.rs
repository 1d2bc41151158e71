//! Opening a disk: what format it has, and which other files it may lead to.
//!
//! An image names other files: its backing file, its extents. Images come from strangers, and a guest can write an
//! image's header into its raw disk, so neither the format that the content shows nor the names are trusted:
//!
//! - A file whose content shows another format than that in which the disk was read before is refused.
//! - Names are followed in an image whose format the user said, or the image above it, or where the user trusts it since
//!   an earlier backup ([`SourceOptions::follow_names`]); never because of the content alone.
//! - Unless the user allows it, names lead only to files below the folder of the image that the user named.

use std::ffi::OsStr;
use std::io::{Cursor, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::bytes::ReadAt;
use crate::format::{Content, Format, HEAD_BYTES};
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

/// How to open a disk.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// Whether an image may name backing files and extents outside its own folder.
    pub allow_backing_outside: bool,
    /// Whether files are read that another process has open for writing (QEMU's locks), and may be written meanwhile:
    /// what is read may be of no point in time.
    pub allow_in_use: bool,
    /// The format; `None` goes by content.
    ///
    /// A guest can write anything into its raw disk, also the header of another format that names files of the host.
    /// Whoever knows that a disk is raw says so here.
    pub format: Option<Format>,
    /// The format in which the disk was read before: content that shows another one is refused.
    pub expected: Option<Format>,
    /// Whether backing files and extents are followed although the format goes by content.
    pub follow_names: bool,
}

/// Opens the disk at `path`; `-` is standard input, and `nbd://…` and `nbd+unix://…` are exports ([`NbdSource`]).
///
/// # Errors
/// `Refused` where the path is no file or block device; `InUse` where another process writes it or a file it names; `Outside` where an image names a file that it may not name;
/// `Corrupt` and `Unsupported` by what the image says of itself.
pub fn open(path: &Path, options: &SourceOptions) -> Result<Box<dyn Source>> {
    if path.as_os_str() == "-" {
        return match options.format {
            None => open_stream(std::io::stdin(), "-"),
            Some(Format::Raw) => Ok(Box::new(Stream::new(std::io::stdin(), "-"))),
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
    let file = HostFile::open(path, options.allow_in_use)?;
    // A device's folder holds all the machine's disks, and whatever leads nowhere has none.
    let real = if file.is_device() { None } else { path.canonicalize().ok() };
    let mut opener = Opener {
        root: real.as_deref().and_then(Path::parent).map(Path::to_owned),
        allow_outside: options.allow_backing_outside,
        allow_in_use: options.allow_in_use,
        chain: Vec::new(),
    };
    let name = path.display().to_string();
    let path = real.unwrap_or_else(|| path.to_owned());
    let mut budget = TableBudget::default();
    let format = match options.format {
        Some(format) => FormatBy::User(format),
        None => FormatBy::Content { expected: options.expected, follow_names: options.follow_names },
    };
    opener.open_image(file, &path, name, format, &mut budget)
}

/// Opens the raw disk that comes through a pipe. What begins like an image is refused: an image cannot be read in order.
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
        format!("begins like {what}, and only a raw disk can be read from standard input; name a file instead, or give --source-format raw to store the bytes as they are"),
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

/// The format that `file` shows, where it is one that is read.
fn probe(file: &dyn ReadAt, name: &str, hint: &'static str) -> Result<Format> {
    match Content::of(file, name)? {
        Content::Disk(format) => Ok(format),
        Content::Container(what) => Err(ImageError::unsupported(name, what, Some(hint))),
    }
}

/// Told of containers that cannot be read.
const HINT_CONVERT: &str =
    "convert it with qemu-img convert -O qcow2, or give --source-format raw to store its bytes as they are";
/// The same of a backing file.
const HINT_SAY_FORMAT: &str =
    "convert it with qemu-img convert -O qcow2, or say what it is with qemu-img rebase -u -F";

/// Who says which format a file has.
#[derive(Debug, Clone, Copy)]
enum FormatBy {
    /// The user.
    User(Format),
    /// The image whose backing file it is.
    Image(Format),
    /// The content of the file that the user named.
    Content { expected: Option<Format>, follow_names: bool },
    /// The content of a backing file: the image above it does not say.
    BackingContent,
}

impl FormatBy {
    /// The format of `file`.
    fn format(self, file: &dyn ReadAt, name: &str) -> Result<Format> {
        let expected = match self {
            FormatBy::User(format) | FormatBy::Image(format) => return Ok(format),
            FormatBy::BackingContent => return probe(file, name, HINT_SAY_FORMAT),
            FormatBy::Content { expected, .. } => expected,
        };
        let found = probe(file, name, HINT_CONVERT)?;
        match expected {
            Some(expected) if expected != found => {
                let (was, is) = (expected.name(), found.name());
                Err(ImageError::refused(
                    name,
                    format!("was read as {was} before and looks like {is} now. If it is still the same {was} disk, its guest wrote that: give --source-format {was}. If it was replaced, give --source-format {is}"),
                ))
            }
            _ => Ok(found),
        }
    }

    /// Refuses to follow the name of another file in an image that only its content calls one.
    fn check_names(self, image: &str, format: Format, named: &[u8], role: &str) -> Result<()> {
        let format = format.name();
        let advice = match self {
            FormatBy::User(_) | FormatBy::Image(_) | FormatBy::Content { follow_names: true, .. } => {
                return Ok(())
            }
            FormatBy::Content { .. } => format!(
                "give --source-format {format} if you know that it is an image, or --source-format raw if it is the raw disk of a guest"
            ),
            FormatBy::BackingContent => format!(
                "say in the image above it that this is {format}, if you know it: qemu-img rebase -u -F {format}"
            ),
        };
        let named = String::from_utf8_lossy(named);
        Err(ImageError::refused(
            image,
            format!("looks like {format} and names {named:?} as its {role}; a guest can write that into a raw disk to read another file of this host: {advice}"),
        ))
    }
}

/// Opens an image and what it names.
struct Opener {
    /// The folder that names must stay below; `None`: every name leads outside.
    root: Option<PathBuf>,
    allow_outside: bool,
    allow_in_use: bool,
    /// The images opened so far, each the backing file of the one before.
    chain: Vec<FileId>,
}

impl Opener {
    fn open_image(
        &mut self,
        file: HostFile,
        path: &Path,
        name: String,
        by: FormatBy,
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
        let format = by.format(&file, &name)?;
        match format {
            Format::Raw => {
                let format = if file.is_device() { "block" } else { "raw" };
                Ok(Box::new(RawReader::new(file, name, format)))
            }
            Format::Qcow2 => {
                let image = name.clone();
                qcow2::open(Box::new(file), name, budget, |backing, budget| {
                    by.check_names(&image, format, &backing.name, "backing file")?;
                    self.open_backing(path, &image, &backing, budget).map(Some)
                })
            }
            Format::Vmdk => {
                let image = name.clone();
                vmdk::open(Box::new(file), name, budget, &mut |extent| {
                    by.check_names(&image, format, extent, "extent")?;
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
            None => FormatBy::BackingContent,
            Some("raw" | "file" | "host_device") => FormatBy::Image(Format::Raw),
            Some("qcow2") => FormatBy::Image(Format::Qcow2),
            Some("vmdk") => FormatBy::Image(Format::Vmdk),
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
        let file = HostFile::open_real(&path, &name, self.allow_in_use)?;
        Ok((file, path, name))
    }
}

/// Whether QEMU would take `name` for something else than a path: `json:…`, `nbd://…`.
fn has_protocol(name: &[u8]) -> bool {
    name.iter().find(|b| matches!(b, b':' | b'/')).is_some_and(|b| *b == b':')
}
