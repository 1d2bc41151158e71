//! Physical volumes.

use super::error::corrupt;
use super::label::Label;
use crate::disk::Part;
use crate::error::Result;

/// A physical volume.
pub(crate) struct Physical {
    /// Its identity, without hyphens.
    pub id: String,
    /// Where it is on the disk.
    pub part: Part,
    /// The text of its group, where it has a copy.
    pub text: Option<String>,
}

impl Physical {
    /// Reads the label and the metadata of a volume of the kind `lvm`, of `left` bytes at most, which it counts down.
    pub fn read(part: Part, left: &mut usize) -> Result<Physical> {
        let label = Label::read(&part)?;
        let text = label.metadata(&part)?;
        let len = text.as_ref().map_or(0, String::len);
        *left = left.checked_sub(len).ok_or_else(|| corrupt("metadata", "it is too long"))?;
        Ok(Physical { id: label.id, part, text })
    }
}
