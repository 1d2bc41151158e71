//! An image with the files that it names, each opened in turn.

use super::format::Format;
use super::trust::FormatBy;
use crate::disk::Source;
use crate::error::{ImageError, Result};
use crate::file::bytes::ReadAt;
use crate::file::host::{FileId, HostFile};
use crate::mapping::tables::TableBudget;
use crate::qcow2::{self, BackingName};
use crate::source::raw::RawReader;
use crate::vmdk;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most images of a chain. Each holds a file open.
const MAX_CHAIN: usize = 200;

/// Opens an image and what it names.
pub(super) struct Opener {
    /// The folder that names must stay below; `None`: every name leads outside.
    root: Option<PathBuf>,
    allow_outside: bool,
    allow_in_use: bool,
    /// The images opened so far, each the backing file of the one before.
    chain: Vec<FileId>,
}

impl Opener {
    /// Opens images whose names lead only below `root`, unless that is lifted.
    pub fn new(root: Option<PathBuf>, allow_outside: bool, allow_in_use: bool) -> Self {
        Opener { root, allow_outside, allow_in_use, chain: Vec::new() }
    }

    /// Opens the image in `file`, at `path` and called `name` in errors, with its backing files.
    pub fn open_image(
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
                format!("names {shown:?} as its {role}, which is not a file name"),
            ));
        }
        if has_protocol(named) {
            return Err(ImageError::unsupported(
                image,
                format!("the {role} {shown:?}, which is not a plain file name,"),
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
