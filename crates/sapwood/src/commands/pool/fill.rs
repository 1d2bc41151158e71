//! Volumes that are made of snapshots of a vault, and filled from them.

use super::fill_source::FillSource;
use super::request::Request;
use crate::args::{Args, ShareMode};
use crate::commands::names::{check_is_disk, held_for, open, split};
use anyhow::{Context, Result};
use std::path::Path;
use vault::{Vault, VaultError};

/// What the snapshot is held for.
pub fn purpose(pool: &Path, volume: &str) -> Result<String> {
    // Whatever path a command or a server is given.
    let pool = std::fs::canonicalize(pool).with_context(|| pool.display().to_string())?;
    held_for(&format!("volume {volume} of"), &pool)
}

/// Finds the snapshot, and holds it: without it the volume could never be completed.
pub fn begin(
    args: &Args,
    pool: &Path,
    (name, share): (&str, ShareMode),
    from: &str,
    bytes: Option<u64>,
) -> Result<(Request, Held)> {
    let (disk, spec) = split(from);
    let vault = open(args)?;
    let purpose = purpose(pool, name)?;
    let (entry, holds) = vault.hold_for(disk, spec, &purpose)?;
    let id = entry.id.to_string();
    let held = Held { vault, disk: disk.into(), id: id.clone(), purpose: holds.then_some(purpose) };
    check_is_disk(disk, &entry).or_else(|e| held.end().and(Err(e)))?;
    let bytes = bytes.unwrap_or(entry.size.next_multiple_of(512));
    if bytes < entry.size {
        let why = format!("{disk}@{id}: has {} bytes; a volume of {bytes} is too small for it", entry.size);
        return held.end().and(Err(VaultError::Refused(why).into()));
    }
    let store = std::path::absolute(held.vault.location())?;
    let store = store.to_str().context("the path of the vault is not UTF-8")?.to_owned();
    let source = FillSource { disk: disk.into(), id, store }.text();
    Ok((Request::CreateFilled { name: name.into(), size: bytes, share, source }, held))
}

/// A snapshot that is held for a volume.
pub struct Held {
    vault: Vault,
    disk: String,
    id: String,
    /// Set if the hold was put for it.
    purpose: Option<String>,
}

impl Held {
    /// Ends the hold: no volume was made.
    pub fn end(&self) -> Result<()> {
        match &self.purpose {
            Some(purpose) => Ok(self.vault.end_hold_for(&self.disk, &self.id, purpose)?),
            None => Ok(()),
        }
    }
}
