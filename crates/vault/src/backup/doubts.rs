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

/// Refuses what was read if it is not as long as it must be, or, unless it `is_sure`, probably another disk.
pub(super) fn check(
    disk: &str,
    run: &Written,
    parent: Option<&SnapshotEntry>,
    expected_bytes: Option<u64>,
    is_sure: bool,
) -> Result<()> {
    let size = run.size;
    if let Some(expected) = expected_bytes.filter(|e| *e != size) {
        let why = format!(
            "{disk}: the source has {size} bytes, not the {expected} that it must have; nothing was stored"
        );
        return Err(VaultError::Refused(why));
    }
    if is_sure {
        return Ok(());
    }
    let doubt = match parent {
        _ if size == 0 => "the source is empty.".into(),
        Some(p) if p.size >= SHRUNK_BYTES_MIN && size < p.size / SHRUNK => {
            format!("the source has {size} bytes, the newest snapshot {}: is it another disk?", p.size)
        }
        Some(p) if has_nothing_in_common(run, p) => {
            "the source has nothing in common with the newest snapshot: is it another disk?".into()
        }
        _ => return Ok(()),
    };
    Err(VaultError::Refused(format!("{disk}: {doubt} Nothing was stored; --force stores it")))
}

/// Whether both have data, and nothing of it was found in the vault.
fn has_nothing_in_common(run: &Written, parent: &SnapshotEntry) -> bool {
    let found = run.counts.data_bytes.saturating_sub(run.counts.new_bytes - run.counts.rewritten_bytes);
    let much = |bytes: u64| bytes >= COMMON_BYTES_MIN;
    much(parent.data_bytes) && found == 0 && (much(run.counts.data_bytes) || run.counts.data_bytes == 0)
}
