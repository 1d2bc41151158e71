//! `sapwood restore`

mod format;
mod live;
mod machine;
mod tar;

use crate::args::{Args, Restore};
use crate::commands::names::{open_to_read, split};
use crate::progress::watch;
use crate::tags::TAR;
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
    let vault = open_to_read(args)?;
    let start = Instant::now();
    let found = vault.find(disk, spec).map_err(|e| with_what_is_left(&a.snapshot, e.into()))?;
    if tar::is_wanted(a, disk, &found)? {
        let restored = tar::restore(args.quiet, a, &vault, (disk, &found), &a.target);
        let name = format!("{disk}@{}", found.id);
        let tar_bytes = restored.map_err(|e| with_what_is_left(&name, e))?.tar_bytes;
        let seconds = start.elapsed().as_secs_f64();
        Done {
            disk,
            snapshot: &found,
            format: TAR,
            word: None,
            written_bytes: tar_bytes,
            read_bytes: None,
            seconds,
        }
        .show(args, a);
        return Ok(ExitCode::SUCCESS);
    }
    // As it was asked for, not what was found: that may be deleted by now, and `latest` is another one then.
    let mut chosen = None;
    let mut id = found.id;
    let changed: Arc<AtomicU64> = Arc::default();
    let target = |snapshot: &SnapshotEntry, data: &[std::ops::Range<u64>]| {
        id = snapshot.id;
        if a.in_place {
            return open_in_place(&a.target, snapshot.size, changed.clone());
        }
        let format = chosen.insert(format::choose(said, &a.target, snapshot)).format;
        let (overwrite, allow_in_use, mode) = (a.force, a.allow_in_use, a.mode);
        let options = TargetOptions { size: snapshot.size, format, overwrite, allow_in_use, data, mode };
        create_target(&a.target, &options)
    };
    let restored = watch(args.quiet, &a.snapshot, |p| vault.restore_to(disk, spec, target, p));
    if restored.is_err() && changed.load(Ordering::Relaxed) > 0 {
        errln!(
            "sapwood: {}: is a mixture of what it was and of the snapshot: run this again, or restore another snapshot",
            a.target.display()
        );
    }
    let report = restored.map_err(|e| with_what_is_left(&format!("{disk}@{id}"), e.into()))?;
    let (format, word) = chosen.map_or(("raw", None), |c| (c.name(), c.word));
    let seconds = start.elapsed().as_secs_f64();
    let written = if a.in_place { changed.load(Ordering::Relaxed) } else { report.written_bytes };
    let (snapshot, read_bytes) = (&report.snapshot, Some(report.read_bytes));
    Done { disk, snapshot, format, word, written_bytes: written, read_bytes, seconds }.show(args, a);
    Ok(ExitCode::SUCCESS)
}

/// What a restore did.
struct Done<'a> {
    disk: &'a str,
    snapshot: &'a SnapshotEntry,
    format: &'static str,
    /// What there is to say of the format.
    word: Option<String>,
    written_bytes: u64,
    /// From the vault, if that was counted.
    read_bytes: Option<u64>,
    seconds: f64,
}

impl Done<'_> {
    fn show(&self, args: &Args, a: &Restore) {
        let (disk, s, seconds) = (self.disk, self.snapshot, self.seconds);
        let to_stdout = a.target.as_os_str() == "-";
        if !to_stdout {
            note_done(format!("{disk}@{} is restored to {}", s.id, a.target.display()));
        }
        if args.json && !to_stdout {
            print_json(&json!({
                "disk": disk,
                "snapshot": s.id.to_string(),
                "target": a.target.to_string_lossy(),
                "format": self.format,
                "size": s.size,
                "written_bytes": self.written_bytes,
                "read_bytes": self.read_bytes,
                "seconds": seconds,
            }));
        } else if !args.quiet {
            let read = self.read_bytes.map(|bytes| format!(", {} read", size(bytes))).unwrap_or_default();
            let line = format!(
                "{disk}@{} to {}{}: {} ({} written{read}), {seconds:.1} s, {}",
                s.id,
                a.target.display(),
                written_as(a, self.format, self.word.as_deref()),
                size(s.size),
                size(self.written_bytes),
                rate(s.size, seconds),
            );
            if to_stdout {
                errln!("{line}");
            } else {
                outln!("{line}");
            }
        }
    }
}

/// Says what can still be had of a snapshot that is damaged: `DISK@ID`, or what the user named where the id is not known.
fn with_what_is_left(snapshot: &str, e: anyhow::Error) -> anyhow::Error {
    if !e.downcast_ref::<VaultError>().is_some_and(VaultError::is_damage) {
        return e;
    }
    e.context(format!(
        "{snapshot}: cannot be restored whole; `sapwood files` and `sapwood nbd` read what is whole, and other \
         snapshots may be"
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
