//! `sapwood mount`

use crate::args::{Args, Mount};
use crate::commands::names::open_to_read;
use crate::devices::read_cache;
use crate::devices::tree::VaultTree;
use crate::system::mountpoint::{each_once, empty_directory};
use crate::system::purpose::Purpose;
use crate::system::signals::EndSignal;
use crate::terminal::outcome::with_damage;
use crate::terminal::output::{counted, print_json};
use crate::terminal::streams::{check_out, errln, outln};
use anyhow::{Context, Result};
use export::fuse::MountOptions;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use vault::VaultError;

/// Requests at once, at least: most of them wait for the store.
const THREADS_MIN: usize = 4;

pub fn run(args: &Args, a: &Mount) -> Result<ExitCode> {
    let end = EndSignal::new()?;
    let vault = open_to_read(args)?.served();
    let mountpoint = checked(&a.mountpoint, &vault.location())?;
    let tree = Arc::new(VaultTree::new(vault, read_cache(a.cache))?);
    let (disks, snapshots) = tree.count()?;

    let place = mountpoint.display().to_string();
    let options = MountOptions {
        threads: std::thread::available_parallelism().map_or(2, |n| n.get() + 2).max(THREADS_MIN),
        allow_other: a.allow_other,
        on_error: Box::new(each_once()),
        on_end: Box::new(end.trigger()),
    };
    let mount = export::fuse::Mount::start(&mountpoint, tree.clone(), options)
        .with_context(|| format!("mounting on {place}"))?;
    if args.json {
        print_json(&json!({ "mountpoint": place, "disk_count": disks, "snapshot_count": snapshots }));
    } else if !args.quiet {
        outln!("{} of {} at {place}", counted(snapshots, "snapshot"), counted(disks, "disk"));
    }
    check_out()?;
    let purpose = Purpose::start(&a.command, &[("SAPWOOD_MOUNT", mountpoint.as_os_str())]);
    let ended = purpose.and_then(|mut p| p.wait(&end, || false));
    if let Some(warning) = mount.stop().warning() {
        errln!("sapwood: {place}: {warning}");
    }
    tree.record_damage();
    let damaged = tree.damaged();
    if damaged.is_empty() {
        ended.map(|e| e.code())
    } else {
        ended.map(|_| with_damage(&damaged))
    }
}

/// The place to mount on: an empty directory outside the vault.
fn checked(path: &Path, vault: &str) -> Result<PathBuf> {
    let place = empty_directory(path)?;
    if Path::new(vault).canonicalize().is_ok_and(|v| place.starts_with(v)) {
        let why = format!("{}: is in the vault {vault}; mount elsewhere", path.display());
        return Err(VaultError::Refused(why).into());
    }
    Ok(place)
}
