//! `sapwood restore`

mod format;
mod live;
mod machine;

use crate::args::{Args, Restore};
use crate::commands::names::{open, split};
use crate::progress::watch;
use crate::terminal::output::{print_json, rate, size};
use crate::terminal::streams::{check_out, errln, note_done, outln};
use anyhow::Result;
use image::{create_target, open_in_place, TargetOptions};
use serde_json::json;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;
use vault::{SnapshotEntry, VaultError};

pub fn run(args: &Args, a: &Restore) -> Result<ExitCode> {
    if a.live {
        return live::run(args, a);
    }
    if a.serve.socket.is_some() || a.serve.listen.is_some() || a.serve.cache.is_some() {
        let why = "--socket, --listen and --cache are for a disk that is served while it is restored: give --live too";
        return Err(VaultError::Usage(why.into()).into());
    }
    if let Some(dir) = &a.to {
        return machine::run(args, a, dir);
    }
    if !a.snapshot.contains('/') {
        let why = format!(
            "{0}: is not the name of a disk, such as {0}/vda; `restore {0} --to DIR` restores all disks of a machine",
            split(&a.snapshot).0
        );
        return Err(VaultError::Usage(why).into());
    }
    let said = format::said(a.format.as_deref())?;
    let to_stdout = a.target.as_os_str() == "-";
    if to_stdout {
        check_out()?;
    }
    let (disk, spec) = split(&a.snapshot);
    let vault = open(args)?;
    let start = Instant::now();
    let mut chosen = None;
    let changed: Arc<AtomicU64> = Arc::default();
    let target = |snapshot: &SnapshotEntry, data: &[std::ops::Range<u64>]| {
        if a.in_place {
            return open_in_place(&a.target, snapshot.size, changed.clone());
        }
        let format = chosen.insert(format::choose(said, &a.target, snapshot)).format;
        let (overwrite, allow_in_use, mode) = (a.force, a.allow_in_use, a.mode);
        let options = TargetOptions { size: snapshot.size, format, overwrite, allow_in_use, data, mode };
        create_target(&a.target, &options)
    };
    let restored = watch(args.quiet, &a.snapshot, |p| vault.restore_to(disk, spec, target, p));
    let report = restored.map_err(|e| with_what_is_left(&a.snapshot, e))?;
    let (format, word) = chosen.map_or(("raw", None), |c| (c.name(), c.word));
    let seconds = start.elapsed().as_secs_f64();
    let written = if a.in_place { changed.load(Ordering::Relaxed) } else { report.written_bytes };
    let s = &report.snapshot;
    if !to_stdout {
        note_done(format!("{disk}@{} is restored to {}", s.id, a.target.display()));
    }
    if args.json && !to_stdout {
        print_json(&json!({
            "disk": disk,
            "snapshot": s.id.to_string(),
            "target": a.target.to_string_lossy(),
            "format": format,
            "size": s.size,
            "written_bytes": written,
            "read_bytes": report.read_bytes,
            "seconds": seconds,
        }));
    } else if !args.quiet {
        let line = format!(
            "{disk}@{} to {}{}: {} ({} written, {} read), {seconds:.1} s, {}",
            s.id,
            a.target.display(),
            written_as(a, format, word.as_deref()),
            size(s.size),
            size(written),
            size(report.read_bytes),
            rate(s.size, seconds),
        );
        if to_stdout {
            errln!("{line}");
        } else {
            outln!("{line}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what can still be had of a snapshot that is damaged.
fn with_what_is_left(snapshot: &str, e: VaultError) -> anyhow::Error {
    let is_damage = e.is_damage();
    let e = anyhow::Error::from(e);
    if !is_damage {
        return e;
    }
    e.context(format!(
        "{snapshot}: cannot be restored whole; `sapwood repair` may heal it; `sapwood files` and `sapwood nbd` read what is \
         whole, and other snapshots may be"
    ))
}

/// The format of a file, and what there is to say of it. Pipes and devices have none.
fn written_as(a: &Restore, format: &str, word: Option<&str>) -> String {
    match word {
        _ if !a.target.is_file() => String::new(),
        Some(word) => format!(" ({format}, {word})"),
        None => format!(" ({format})"),
    }
}
