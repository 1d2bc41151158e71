//! Sources that are probably not what was meant: a pipe whose writer failed, another disk.

use crate::backup::pipeline::Written;
use crate::backup::swapped::{OtherDisk, Question};
use crate::base::error::{Result, VaultError};
use format::SnapshotEntry;

/// A disk that has become so many times smaller is doubtful.
const SHRUNK: u64 = 10;
/// Smaller disks may shrink.
const SHRUNK_BYTES_MIN: u64 = 1 << 20;
/// Only disks with so much data have something in common with their next version.
const COMMON_BYTES_MIN: u64 = 16 << 20;

/// What is known of a source before it is read.
pub(super) struct Expected {
    /// Its size, where the user has said it.
    pub bytes: Option<u64>,
    /// Whether the user is sure of it.
    pub is_sure: bool,
    /// Whether it can be compared with the parent: it is a disk, cut like the parent, of which nothing is damaged.
    pub is_comparable: bool,
    /// Whether chunks that are known are not written again, but for few: else it is not told how many are.
    pub keeps_known: bool,
}

impl Expected {
    /// Whether to compare what is read with other disks.
    pub fn is_asked(&self) -> bool {
        self.is_comparable && !self.is_sure
    }
}

/// Refuses what was read if it is not as long as it must be, or probably another disk.
pub(super) fn check(
    disk: &str,
    run: &Written,
    parent: Option<&SnapshotEntry>,
    expected: &Expected,
    question: &Question<'_>,
) -> Result<()> {
    let size = run.size;
    if let Some(expected) = expected.bytes.filter(|e| *e != size) {
        let why = format!(
            "{disk}: the source has {size} bytes, not the {expected} that it must have; nothing was stored"
        );
        return Err(VaultError::Refused(why));
    }
    if expected.is_sure {
        return Ok(());
    }
    let doubt = match parent {
        _ if size == 0 => "the source is empty.".into(),
        Some(p) if p.size >= SHRUNK_BYTES_MIN && size < p.size / SHRUNK => {
            format!("the source has {size} bytes, the newest snapshot {}: is it another disk?", p.size)
        }
        _ => match question.other_disk(run)? {
            Some(other) => swapped(disk, &other),
            None if expected.is_comparable
                && expected.keeps_known
                && parent.is_some_and(|p| has_nothing_in_common(run, p)) =>
            {
                "the source has nothing in common with the newest snapshot: is it another disk?".into()
            }
            None => return Ok(()),
        },
    };
    Err(VaultError::Refused(format!("{disk}: {doubt} Nothing was stored; --force stores it")))
}

/// What is said where the source is probably another disk.
fn swapped(disk: &str, other: &OtherDisk) -> String {
    let (all, read) = other.own;
    let (part, name) = (read * 100 / all.max(1), &other.name);
    format!(
        "the source is probably {name}: it has {part} % of what only {name} had, and hardly anything of what only {disk} \
         had: are the sources of the two swapped?"
    )
}

/// Whether the parent has much data, and nothing of it was found again.
fn has_nothing_in_common(run: &Written, parent: &SnapshotEntry) -> bool {
    let much = |bytes: u64| bytes >= COMMON_BYTES_MIN;
    let data = run.counts.data_bytes;
    much(parent.data_bytes) && !run.counts.has_older && (much(data) || data == 0)
}
