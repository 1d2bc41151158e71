//! Who says which format a file has, and whether the names in it may be followed.

use super::format::{Content, Format};
use crate::error::{ImageError, Result};
use crate::file::bytes::ReadAt;

/// The format that `file` shows, where it is one that is read.
pub(super) fn probe(file: &dyn ReadAt, name: &str, hint: &'static str) -> Result<Format> {
    match Content::of(file, name)? {
        Content::Disk(format) => Ok(format),
        Content::Container(what) => Err(ImageError::unsupported(name, what, Some(hint))),
    }
}

/// Told of containers that cannot be read.
pub(super) const HINT_CONVERT: &str =
    "convert it with qemu-img convert -O qcow2, or give --source-format raw to store its bytes as they are";
/// The same of a backing file.
const HINT_SAY_FORMAT: &str =
    "convert it with qemu-img convert -O qcow2, or say what it is with qemu-img rebase -u -F";

/// Who says which format a file has.
#[derive(Debug, Clone, Copy)]
pub(super) enum FormatBy {
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
    pub fn format(self, file: &dyn ReadAt, name: &str) -> Result<Format> {
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
    pub fn check_names(self, image: &str, format: Format, named: &[u8], role: &str) -> Result<()> {
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
