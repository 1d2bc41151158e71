//! One file for each command.

mod availability;
mod backup;
mod delete;
mod diff;
mod files;
mod gc;
mod hold;
mod init;
mod map;
mod mount;
mod nbd;
mod popular;
mod reindex;
mod restore;
mod snapshots;
mod stats;
mod study;
mod verify;

use crate::args::{Args, Command};
use anyhow::Result;
use image::Format;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::StoreOptions;
use vault::{Vault, VaultError};

/// Runs a command.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Init { policy, one_host } => init::run(args, policy, *one_host),
        Command::Backup(a) => backup::run(args, a),
        Command::Snapshots { disk } => snapshots::run(args, disk.as_deref()),
        Command::Restore(a) => restore::run(args, a),
        Command::Delete { snapshots } => delete::run(args, snapshots),
        Command::Diff(a) => diff::run(args, a),
        Command::Files(a) => files::run(args, a),
        Command::Gc { dry_run } => gc::collect(args, *dry_run),
        Command::Compact { disk, threshold } => gc::compact(args, disk.as_deref(), *threshold),
        Command::Reindex => reindex::run(args),
        Command::Stats { availability: true, cluster, .. } => availability::run(args, cluster),
        Command::Stats { disk, .. } => stats::run(args, disk.as_deref()),
        Command::Hold { snapshot } => hold::run(args, snapshot, true),
        Command::Release { snapshot } => hold::run(args, snapshot, false),
        Command::Map { snapshot } => map::run(args, snapshot),
        Command::Nbd(a) => nbd::run(args, a),
        Command::Mount(a) => mount::run(args, a),
        Command::Popular { what } => popular::run(args, what),
        Command::Study { paths, chunk, source_format } => {
            study::run(args, paths, chunk, source_format.as_deref())
        }
        Command::Verify { name, data } => verify::run(args, name.as_deref(), *data),
    }
}

/// The store that was named.
fn store_url(args: &Args) -> Result<&str> {
    let missing = || VaultError::Usage("which vault? Give --store /path or set SAPWOOD_STORE".into());
    Ok(args.store.as_deref().ok_or_else(missing)?)
}

/// How it is opened.
fn store_options(args: &Args) -> StoreOptions {
    StoreOptions { lock_wait: Duration::from_secs(args.lock_wait), ..StoreOptions::default() }
}

/// The vault on the store that was named.
fn open(args: &Args) -> Result<Vault> {
    let options = store_options(args);
    let store = store::open(store_url(args)?, &options)?;
    Ok(Vault::open(Arc::from(store))?.with_patience(options.lock_wait))
}

/// Where large temporary files go: not where memory may be what holds them.
pub fn scratch(named: Option<&Path>) -> PathBuf {
    let chosen = named.map(Path::to_owned).or_else(|| std::env::var_os("TMPDIR").map(PathBuf::from));
    chosen.unwrap_or_else(|| "/var/tmp".into())
}

/// What `--source-format` says.
fn source_format(name: Option<&str>) -> Result<Option<Format>> {
    let unknown = |name| VaultError::Usage(format!("{name:?} is no format: raw, qcow2, vmdk"));
    Ok(name.map(|n| Format::by_name(n).ok_or_else(|| unknown(n))).transpose()?)
}

/// `vm/disk@SNAP` in two; `latest` where no snapshot is named.
fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, "latest"))
}
