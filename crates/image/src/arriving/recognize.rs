//! Whether a target is the one that a map belongs to. Checked before anything is written.

use super::id::BootId;
use super::identity::{Attachment, TargetId};
use super::mark::Mark;
use super::saved::SavedMap;
use crate::error::{ImageError, Result};

/// A target as it was found.
pub(super) struct TargetFacts {
    /// What it is known by.
    pub id: TargetId,
    /// Where it is now.
    pub attachment: Attachment,
    /// The mark of the map, if it is there.
    pub mark: Option<Mark>,
    /// Its disk has room for a mark.
    pub can_be_marked: bool,
    /// The current run of the system.
    pub boot: BootId,
}

/// Refuses a target that is not the one of the map, or a map or target that is an older copy.
pub(super) fn check(saved: &SavedMap, name: &str, found: &TargetFacts) -> Result<()> {
    let map = &saved.name;
    let is_file = matches!(saved.header.target, TargetId::File { .. });
    let is_same_run = saved.state.boot.is_same(&found.boot);
    let kind = if is_file { "file" } else { "device" };
    let anew = if is_file { "remove both" } else { "remove the map and give --force" };
    let other = |why: &str| {
        let why = format!(
            "is not the {kind} that {map} belongs to: {why}. To go on, put that one in its place; to begin anew, {anew}"
        );
        Err(ImageError::refused(name, why))
    };
    if let Some(difference) = found.id.difference(&saved.header.target) {
        return other(&difference);
    }
    let is_attached_still =
        is_same_run && found.attachment.sequence != 0 && found.attachment == saved.state.attachment;
    let is_elsewhere = is_same_run && found.attachment.device != saved.state.attachment.device;
    let has_no_mark = saved.state.is_whole || !found.can_be_marked;
    match found.mark {
        Some(mark) => check_age(saved, name, mark, kind),
        // Whole, or killed before it was marked: its inode has to do.
        None if is_file && (saved.state.generation == 0 || has_no_mark) => {
            if is_elsewhere {
                other("it is on another file system")
            } else {
                Ok(())
            }
        }
        None if has_no_mark && (is_attached_still || found.id.is_certainly(&saved.header.target)) => Ok(()),
        None if saved.state.is_whole => Err(ImageError::refused(
            name,
            format!(
                "is perhaps not the device that {map} belongs to: it has no serial number or other name. If it is, \
                 all of the disk is there: remove the map, and use the device as it is"
            ),
        )),
        None => other("it does not hold the mark of this restore"),
    }
}

fn check_age(saved: &SavedMap, name: &str, mark: Mark, kind: &str) -> Result<()> {
    let (map, generation) = (&saved.name, saved.state.generation);
    let is_in_flush = !mark.is_settled && generation.checked_add(1) == Some(mark.generation);
    if mark.generation == generation || is_in_flush {
        return Ok(());
    }
    let why = if mark.generation > generation {
        format!(
            "has got further than {map} says, which is an older copy: what was written since would be lost; \
             put the newer map back"
        )
    } else {
        format!("has not got as far as {map} says: it is an older copy of the {kind}; put the newer one back")
    };
    Err(ImageError::refused(name, why))
}
