//! Resolves names on the command line: the vault, a snapshot, a format.

use crate::args::Args;
use crate::devices::OpenVault;
use crate::jobs::config::Config;
use crate::tags::is_tar;
use crate::terminal::streams::errln;
use anyhow::Result;
use image::Format;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::StoreOptions;
use vault::{SnapshotEntry, SnapshotInfo, Vault, VaultError};

/// The store that was named; else that of the configuration file.
pub fn store_url(args: &Args) -> Result<String> {
    if let Some(store) = &args.store {
        return Ok(store.clone());
    }
    let config = Config::find(args.config.as_deref())?;
    let missing = || {
        VaultError::Usage(
            "which vault? Give --store /path, set SAPWOOD_STORE, or set store in the configuration".into(),
        )
    };
    Ok(config.and_then(|c| c.store).ok_or_else(missing)?)
}

/// How it is opened.
pub fn store_options(args: &Args) -> StoreOptions {
    StoreOptions { lock_wait: Duration::from_secs(args.lock_wait), ..StoreOptions::default() }
}

/// The vault on the store that was named.
pub fn open(args: &Args) -> Result<Vault> {
    open_at(args, &store_url(args)?)
}

/// The same, for a command that only reads it.
pub fn open_to_read(args: &Args) -> Result<OpenVault> {
    Ok(OpenVault::to_read(open(args)?, args.quiet))
}

/// The same, for a command that changes what is in it.
pub fn open_to_change(args: &Args) -> Result<OpenVault> {
    open_at_to_change(args, &store_url(args)?)
}

/// The same of the vault on a store.
pub fn open_at_to_change(args: &Args, url: &str) -> Result<OpenVault> {
    Ok(OpenVault::to_change(open_at(args, url)?, args.quiet))
}

/// The vault on a store.
pub fn open_at(args: &Args, url: &str) -> Result<Vault> {
    let options = store_options(args);
    let store = store::open(url, &options)?;
    let vault = Vault::open(Arc::from(store))?.with_patience(options.lock_wait);
    if let Some(why) = vault.file_fault() {
        errln!("sapwood: {url}: vault.json: {why}; its copy serves, `sapwood repair` puts it again");
    }
    Ok(vault)
}

/// The snapshots of a disk, oldest first; none where there is no such disk.
pub fn snapshots_of(vault: &Vault, disk: &str) -> Result<Vec<SnapshotInfo>> {
    match vault.snapshots(Some(disk)) {
        Err(VaultError::NotFound { .. }) => Ok(Vec::new()),
        other => Ok(other?.snapshots),
    }
}

/// What `--source-format` says.
pub fn source_format(name: Option<&str>) -> Result<Option<Format>> {
    let unknown =
        |name| VaultError::Usage(format!("{name:?} is not a format: raw, qcow2, vmdk, and for backups tar"));
    Ok(name.map(|n| Format::by_name(n).ok_or_else(|| unknown(n))).transpose()?)
}

/// Refuses a tar archive where a disk is needed.
pub fn check_is_disk(disk: &str, snapshot: &SnapshotEntry) -> Result<()> {
    if !is_tar(snapshot) {
        return Ok(());
    }
    let name = format!("{disk}@{}", snapshot.id);
    let why =
        format!("{name}: is a tar archive, not a disk; `sapwood restore {name} - | tar -tv` lists its files");
    Err(VaultError::Refused(why).into())
}

/// What a snapshot is held for: a command that needs it for a file, on this host.
pub fn held_for(command: &str, file: &Path) -> Result<String> {
    Ok(format!("{command} {} on {}", std::path::absolute(file)?.display(), locks::host_name()))
}

/// `vm/disk@SNAP` in two; `latest` where no snapshot is named.
pub fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, "latest"))
}
