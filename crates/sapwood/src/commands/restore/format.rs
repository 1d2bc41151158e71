//! Which format a restored disk is written in: what the option says, or else what the target's name says, or else what
//! the disk was backed up from.

use crate::commands::backup::SourceFormat;
use image::{Format, TargetFormat};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use vault::{Result, SnapshotEntry, VaultError};

/// A format, and what there is to say of it.
pub struct Chosen {
    pub format: TargetFormat,
    /// Why it is another one than what the disk was backed up from.
    pub word: Option<String>,
}

impl Chosen {
    pub fn name(&self) -> &'static str {
        match self.format {
            TargetFormat::Raw => "raw",
            TargetFormat::Qcow2 => "qcow2",
        }
    }
}

/// What `--format` says.
pub fn said(option: Option<&str>) -> Result<Option<TargetFormat>> {
    match option {
        None => Ok(None),
        // An archive as it is stored; the archive itself is no disk.
        Some("raw" | "mtar" | "tar") => Ok(Some(TargetFormat::Raw)),
        Some("qcow2") => Ok(Some(TargetFormat::Qcow2)),
        Some(f) => Err(VaultError::Usage(format!(
            "{f:?} is not a format to restore to: raw, qcow2; of tar archives tar, mtar"
        ))),
    }
}

/// The format of a target.
pub fn choose(said: Option<TargetFormat>, target: &Path, snapshot: &SnapshotEntry) -> Chosen {
    let is_device = || std::fs::metadata(target).is_ok_and(|m| m.file_type().is_block_device());
    let plain = |format| Chosen { format, word: None };
    if let Some(format) = said {
        return plain(format);
    }
    if target.as_os_str() == "-" || is_device() {
        return plain(TargetFormat::Raw);
    }
    let was = SourceFormat::of_snapshot(snapshot).map(|f| f.format);
    let by_name = match target.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("qcow2" | "qcow") => Some(TargetFormat::Qcow2),
        Some("raw") => Some(TargetFormat::Raw),
        _ => None,
    };
    let kept = match was {
        Some(Format::Qcow2) => TargetFormat::Qcow2,
        _ => TargetFormat::Raw,
    };
    let format = by_name.unwrap_or(kept);
    let word = match was {
        Some(Format::Vmdk) => Some("the source was a VMDK, which cannot be written".to_owned()),
        Some(was) if format != kept => {
            Some(format!("as the target's name says; the source was {}; --format decides", was.name()))
        }
        _ => None,
    };
    Chosen { format, word }
}
