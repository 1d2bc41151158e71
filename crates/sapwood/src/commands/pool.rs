//! `sapwood pool` and `sapwood volume`

mod check;
mod control;
mod file_system;
mod fill;
mod fill_source;
mod filler;
mod open;
pub mod own_snapshot;
mod request;
mod scrub;
mod serve;
pub mod snapshot;
pub mod volume;
mod wait;

use crate::args::{Args, PoolWhat, ShareMode};
use crate::terminal::output::{percent, print_json, size};
use crate::terminal::streams::outln;
use ::pool::{Device, FileDevice, Pool, PoolError};
use anyhow::{Context, Result};
use open::cannot_open;
use request::Request;
use serde_json::json;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;
use vault::VaultError;

/// The start of a device, which tells whether something is on it.
const PROBE_BYTES: usize = 1 << 20;

pub fn run(args: &Args, what: &PoolWhat) -> Result<ExitCode> {
    match what {
        PoolWhat::Create { path, size, force } => create(args, path, *size, *force),
        PoolWhat::Serve(a) => serve::run(args, a),
        PoolWhat::Check { path, data, repair, limit } => check::run(args, path, *data, *repair, *limit),
        PoolWhat::Stats { path } => stats(args, path),
    }
}

fn create(args: &Args, path: &Path, bytes: Option<u64>, force: bool) -> Result<ExitCode> {
    let is_device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    let device = match (is_device, bytes) {
        (true, Some(_)) => {
            let why = format!("{}: a block device is taken whole: leave --size out", path.display());
            return Err(VaultError::Usage(why).into());
        }
        (true, None) => FileDevice::open_to_replace(path).map_err(|e| cannot_open(path, e))?,
        (false, None) => {
            let why = format!("{}: how large? Give --size, such as --size 100GiB", path.display());
            return Err(VaultError::Usage(why).into());
        }
        (false, Some(bytes)) => create_file(path, bytes)?,
    };
    if is_device && !force {
        check_empty(&device, path)?;
    }
    if let Err(error) = Pool::create(&device) {
        if !is_device {
            // A file that is no pool is of no use.
            let _ = std::fs::remove_file(path);
        }
        return Err(error.into());
    }
    let bytes = device.size();
    if args.json {
        print_json(&json!({ "pool": path, "size": bytes }));
    } else if !args.quiet {
        let shown = path.display();
        outln!("{shown}: a pool of {}", size(bytes));
        outln!("next: sapwood volume --pool {shown} create NAME --size 20GiB");
        outln!("      sapwood pool serve {shown} --nbd /run/pool.socket");
    }
    Ok(ExitCode::SUCCESS)
}

fn create_file(path: &Path, bytes: u64) -> Result<FileDevice> {
    let shown = path.display();
    FileDevice::create(path, bytes).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            let why = format!("{shown}: exists; a pool is made in a new file, or on a block device");
            PoolError::Refused(why).into()
        }
        _ => anyhow::Error::new(e).context(format!("{shown}: cannot make it")),
    })
}

fn check_empty(device: &FileDevice, path: &Path) -> Result<()> {
    let mut start = vec![0; PROBE_BYTES.min(device.size() as usize)];
    device.read_at(&mut start, 0).with_context(|| path.display().to_string())?;
    if start.iter().any(|byte| *byte != 0) {
        let why = format!(
            "{}: there is data on this device; --force makes a pool of it, and the data is lost",
            path.display()
        );
        return Err(PoolError::Refused(why).into());
    }
    Ok(())
}

fn stats(args: &Args, path: &Path) -> Result<ExitCode> {
    let stats = control::ask(path, &Request::Stats)?;
    if args.json {
        print_json(&stats);
        return Ok(ExitCode::SUCCESS);
    }
    let number = |name: &str| stats[name].as_u64().unwrap_or(0);
    let (mapped, stored) = (number("mapped_bytes"), number("stored_bytes"));
    outln!("space           {} of {} free", size(number("free_bytes")), size(number("data_bytes")));
    outln!("written         {} by all volumes and snapshots", size(mapped));
    outln!("stored          {} ({} of it)", size(stored), percent(stored, mapped));
    let modes: Vec<String> = [ShareMode::Inline, ShareMode::Background, ShareMode::Off]
        .into_iter()
        .filter_map(|mode| {
            let volumes = stats["modes"][mode.name()].as_u64().filter(|n| *n > 0)?;
            Some(format!("{volumes} {}", mode.name()))
        })
        .collect();
    outln!("volumes         {}", if modes.is_empty() { "none".into() } else { modes.join(", ") });
    outln!(
        "unshared        {} were written without looking for equal blocks",
        size(number("unshared_bytes"))
    );
    match stats["scan_rate"].as_u64() {
        Some(rate) => outln!(
            "background      {} a second at most, every {} s; {} scans hashed {}, of which others had {}",
            size(rate),
            number("scan_pause"),
            number("scans"),
            size(number("hashed_bytes")),
            size(number("shared_bytes"))
        ),
        None => outln!("background      blocks are shared while the pool is served"),
    }
    outln!(
        "index           {} in memory, {} fingerprints",
        size(number("filter_bytes")),
        number("filter_entries")
    );
    Ok(ExitCode::SUCCESS)
}
