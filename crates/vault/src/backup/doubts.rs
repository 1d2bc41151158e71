//! Sources that are probably not what was meant: a pipe whose writer failed, another disk.

use crate::backup::pipeline::Written;
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
    /// Whether what it has in common with the parent can be told: it is a disk, cut like the parent, and what is
    /// found, and not damaged, is not written again.
    pub is_comparable: bool,
}

/// Refuses what was read if it is not as long as it must be, or probably another disk.
pub(super) fn check(
    disk: &str,
    run: &Written,
    parent: Option<&SnapshotEntry>,
    expected: &Expected,
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
        Some(p) if expected.is_comparable && has_nothing_in_common(run, p) => {
            "the source has nothing in common with the newest snapshot: is it another disk?".into()
        }
        _ => return Ok(()),
    };
    Err(VaultError::Refused(format!("{disk}: {doubt} Nothing was stored; --force stores it")))
}

/// Whether the parent has much data, and nothing of it was found again.
fn has_nothing_in_common(run: &Written, parent: &SnapshotEntry) -> bool {
    let much = |bytes: u64| bytes >= COMMON_BYTES_MIN;
    let data = run.counts.data_bytes;
    much(parent.data_bytes) && !run.counts.has_older && (much(data) || data == 0)
}
