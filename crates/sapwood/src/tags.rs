//! Tags of snapshots: names and values that users give, and those that backups set themselves.

use crate::live::{CHECKPOINT_TAG, IMAGE_TAG};
use vault::{Result, SnapshotEntry, VaultError, COPIED_FROM, HELD_FOR};

/// The format that a source was read as.
pub const SOURCE_FORMAT_TAG: &str = "source-format";

/// As a source's format: a tar archive, which is stored as `mtar migrate` writes it.
pub const TAR: &str = "tar";

/// The file, or the volume, that was backed up.
pub const SOURCE_TAG: &str = "source-file";

/// How a source begins that is a volume of a pool.
pub const VOLUME: &str = "volume:";

/// The snapshot of a pool's volume that was backed up, by its key.
pub const VOLUME_TAG: &str = "volume";

/// The same in all snapshots that a backup of a machine made, and in that of its definition.
pub const INSTANT_TAG: &str = "instant";

/// In the snapshot of a definition: the machine's disks at that instant, separated by commas.
pub const DISKS_TAG: &str = "disks";

/// Tags that users cannot give: what they say decides what the next backup reads.
const RESERVED: [&str; 10] = [
    "consistency",
    CHECKPOINT_TAG,
    IMAGE_TAG,
    SOURCE_FORMAT_TAG,
    SOURCE_TAG,
    VOLUME_TAG,
    INSTANT_TAG,
    DISKS_TAG,
    COPIED_FROM,
    HELD_FOR,
];

/// Whether a snapshot is of a tar archive.
pub fn is_tar(snapshot: &SnapshotEntry) -> bool {
    snapshot.tags.iter().any(|(name, value)| name == SOURCE_FORMAT_TAG && value == TAR)
}

/// Whether backups or commands set a tag themselves.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// `NAME=VALUE` in two.
pub fn parse(text: &str) -> Result<(String, String)> {
    let wrong = |why: String| VaultError::Usage(format!("the tag {text}: {why}"));
    let (name, value) = text.split_once('=').ok_or_else(|| wrong("give it as NAME=VALUE".into()))?;
    check_name(name).map_err(wrong)?;
    Ok((name.into(), value.into()))
}

/// Whether users may give a tag of this name, and take it away.
pub fn check_name(name: &str) -> std::result::Result<(), String> {
    match name {
        "" => Err("has no name".into()),
        name if is_reserved(name) => Err(format!("{name} is what backups say themselves")),
        _ => Ok(()),
    }
}
