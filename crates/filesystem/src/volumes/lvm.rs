//! LVM2: logical volumes, of those physical volumes that are on one disk.
//!
//! Read are labels, the circular buffers of metadata with their checksums, and linear and striped segments. All other
//! segments (thin, raid, mirror, snapshot, cache, VDO) are named and not read. The metadata is text, as `vgcfgbackup`
//! writes it; libblkid and the libvslvm project document the structures around it.

mod error;
mod group;
mod label;
mod physical;
mod text;

pub(crate) use group::{Group, LogicalVolume, PIECES_MAX};
pub(crate) use label::is_member;
pub(crate) use physical::Physical;

use crate::error::Result;

/// The metadata of all physical volumes of a disk.
pub(crate) const TEXTS_BYTES_MAX: usize = 64 << 20;

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
