//! LVM2: logical volumes, of those physical volumes that are on one disk.
//!
//! Read are labels, the circular buffers of metadata with their checksums, and linear and striped segments. All other
//! segments (thin, raid, mirror, snapshot, cache, VDO) are named and not read. The metadata is text, as `vgcfgbackup`
//! writes it; libblkid and the libvslvm project document the structures around it.

mod group;
mod label;
mod text;

pub(crate) use group::{Group, LogicalVolume, PIECES_MAX};
pub(crate) use label::is_member;

use crate::disk::{Disk, Part};
use crate::error::{FsError, Result};
use label::Label;

/// The metadata of all physical volumes of a disk.
pub(crate) const TEXTS_BYTES_MAX: usize = 64 << 20;

/// A physical volume.
pub(crate) struct Physical {
    id: String,
    part: Part,
    /// The text of its group, where it has a copy.
    text: Option<String>,
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

/// The groups of all physical volumes, each by its newest metadata.
pub(crate) fn groups(physical: &[Physical]) -> Vec<Result<Group>> {
    let mut newest: Vec<Group> = Vec::new();
    let mut wrong = Vec::new();
    for text in physical.iter().filter_map(|p| p.text.as_deref()) {
        match Group::parse(text) {
            Ok(group) => match newest.iter_mut().find(|g| g.id == group.id) {
                Some(other) if other.generation < group.generation => *other = group,
                Some(_) => {}
                None => newest.push(group),
            },
            Err(why) => wrong.push(Err(why)),
        }
    }
    newest.into_iter().map(Ok).chain(wrong).collect()
}

fn corrupt(what: impl std::fmt::Display, why: impl Into<String>) -> FsError {
    FsError::corrupt(format!("LVM {what}"), why)
}

/// Reads a range that the volume must have.
fn read_range(disk: &dyn Disk, offset: u64, len: u64, what: &str) -> Result<Vec<u8>> {
    if offset.checked_add(len).is_none_or(|end| end > disk.size()) {
        let why = format!("{len} bytes at offset {offset} are beyond the end at {}", disk.size());
        return Err(corrupt(what, why));
    }
    let mut bytes = vec![0; len as usize];
    disk.read_at(offset, &mut bytes)?;
    Ok(bytes)
}
