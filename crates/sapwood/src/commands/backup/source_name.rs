//! Notices when the files, or the volumes, of two disks were swapped: each snapshot remembers its own in a tag.

use crate::args::Backup;
use crate::tags::{SOURCE_TAG, VOLUME};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use vault::{SnapshotEntry, Vault, VaultError};

/// The file of a source, whatever links lead to it; `None` for devices, exports and pipes, whose names may be given to
/// another disk at any time.
pub fn of(source: &Path) -> Option<String> {
    let path = std::fs::canonicalize(source).ok().filter(|p| p.is_file())?;
    path.to_str().map(str::to_owned)
}

/// A volume of a pool, whatever links lead to the pool. What follows `@` is another time of the same volume.
pub fn of_volume(pool: &Path, name: &str) -> Option<String> {
    let volume = name.split('@').next().filter(|volume| !volume.is_empty())?;
    Some(format!("{VOLUME}{volume} of {}", std::fs::canonicalize(pool).ok()?.to_str()?))
}

/// Refuses a file that another disk was backed up from last, where this disk had another file before. All disks are looked
/// at only if the file has changed.
pub fn check(a: &Backup, vault: &Vault, newest: Option<&SnapshotEntry>, file: Option<&str>) -> Result<()> {
    let Some((file, before)) = file.zip(newest.and_then(remembered)) else { return Ok(()) };
    if a.force || file == before {
        return Ok(());
    }
    let mut last: BTreeMap<String, Option<String>> = BTreeMap::new();
    for s in vault.snapshots(None)?.snapshots.into_iter().filter(|s| s.disk != a.disk) {
        last.insert(s.disk, remembered(&s.entry).map(str::to_owned));
    }
    match last.into_iter().find(|(_, of)| of.as_deref() == Some(file)) {
        None => Ok(()),
        Some((other, _)) => {
            let why = format!(
                "{}: was backed up from {before} before, and {file} is that of {other}: are the two swapped? Nothing \
                 was stored; --force stores it",
                a.disk
            );
            Err(VaultError::Refused(why).into())
        }
    }
}

fn remembered(s: &SnapshotEntry) -> Option<&str> {
    s.tags.iter().find(|(name, _)| name == SOURCE_TAG).map(|(_, file)| file.as_str())
}
