//! `sapwood restore --live`: the disk is served from the first moment, and arrives meanwhile.

use crate::args::{Args, Restore};
use crate::commands::{open, split};
use crate::devices::{ArrivingDevice, Below, SnapshotDevice};
use crate::outcome::with_damage;
use crate::output::{print_json, rate, size};
use crate::purpose::Ended;
use crate::serving::{cache_bytes, Serving};
use crate::signals::EndSignal;
use anyhow::{Context, Result};
use export::nbd::Single;
use export::{Block, BlockDevice};
use image::{Arriving, ArrivingPaths};
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;
use vault::{GroupCache, VaultError};

/// What arrives at a time.
const STEP_BYTES: u64 = 1 << 20;
/// What arrives between two times that it is made durable.
const FLUSH_BYTES: u64 = 256 << 20;

pub fn run(args: &Args, a: &Restore) -> Result<ExitCode> {
    let mut end = EndSignal::new()?;
    let (disk, spec) = split(&a.snapshot);
    let vault = open(args)?;
    let place = Place::of(a)?;
    let snapshot = vault.open_snapshot(disk, spec, &GroupCache::new(cache_bytes(a.serve.cache)))?;
    let entry = snapshot.entry().clone();
    let name = format!("{disk}@{}", entry.id);
    let snapshot = Arc::new(SnapshotDevice::new(snapshot));
    let of = format!("{}/{name}", vault.id());
    let below = Box::new(Below(snapshot.clone()));
    let arriving = Arc::new(Arriving::open(&place.paths, entry.size, of.as_bytes(), below)?);

    let description = format!("the snapshot of {}, being restored", vault::format_time(entry.time));
    let device = Arc::new(ArrivingDevice(arriving.clone()));
    let mut serving = Serving::start(&a.serve, Single { name: name.clone(), description, device })?;
    if args.json {
        print_json(&json!({
            "uri": serving.uri(),
            "disk": disk,
            "snapshot": entry.id.to_string(),
            "target": a.target.to_string_lossy(),
            "size": entry.size,
            "arrived_bytes": arriving.arrived_bytes(),
        }));
    } else if !args.quiet {
        println!("{name}: {}, to be read and written, at {}", size(entry.size), serving.uri());
    }
    serving.run(&a.command)?;

    let (stop, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let arrival = Arrival { arriving: &arriving, snapshot: &snapshot, stop: &stop };
    let (arrived, ended) = std::thread::scope(|scope| {
        let arrives = scope.spawn(|| {
            let start = Instant::now();
            let outcome = arrival.run().and_then(|()| place.complete());
            if outcome.is_ok() && !args.quiet {
                let seconds = start.elapsed().as_secs_f64();
                let target = a.target.display();
                eprintln!("{name}: all of it is in {target}, {seconds:.1} s, {}", rate(entry.size, seconds));
            }
            is_done.store(true, Ordering::Release);
            outcome
        });
        let has_arrived = |clients: usize| is_done.load(Ordering::Acquire) && clients == 0;
        let mut ended = serving.wait(&mut end, has_arrived);
        if matches!(ended, Ok(Ended::Command(_))) {
            // What the command began is brought to its end.
            let all = serving.wait(&mut end, |_| is_done.load(Ordering::Acquire));
            ended = if matches!(all, Ok(Ended::Signal)) { all } else { ended };
        }
        stop.store(true, Ordering::Release);
        (arrives.join(), ended)
    });
    serving.stop();
    arriving.flush()?;
    let damaged =
        snapshot.is_damaged().then(|| format!("{name}: damage was met, {} is not whole", a.target.display()));
    if let Some(line) = damaged {
        return Ok(with_damage(&[line]));
    }
    match arrived {
        Ok(arrived) => arrived.map(|()| ended.map(|e| e.code()))?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// How a snapshot comes to its disk while that is in use.
struct Arrival<'a> {
    arriving: &'a Arriving,
    snapshot: &'a SnapshotDevice,
    stop: &'a AtomicBool,
}

impl Arrival<'_> {
    /// Lets all of it arrive, in the order of the disk. What cannot be read is passed over, and is an error in the end.
    fn run(&self) -> Result<()> {
        let mut failed = None;
        let mut since_flush = 0;
        let mut at = 0;
        let bytes = self.arriving.size();
        while at < bytes {
            if self.stop.load(Ordering::Acquire) {
                return Err(VaultError::Cancelled.into());
            }
            let (range, is_hole) = self.next(at..bytes.min(at + STEP_BYTES))?;
            let step = match is_hole {
                true => self.arriving.fetch_zeros(range.clone()),
                false => self.arriving.fetch(range.clone()),
            };
            if let Err(e) = step {
                eprintln!("sapwood: {e}");
                failed = Some(e);
            }
            since_flush += range.end - range.start;
            at = range.end;
            if since_flush >= FLUSH_BYTES {
                self.arriving.flush()?;
                since_flush = 0;
            }
        }
        self.arriving.flush()?;
        failed.map_or(Ok(()), |e| Err(e.into()))
    }

    /// What comes next: data, a step at most, or a hole of any length.
    fn next(&self, step: Range<u64>) -> Result<(Range<u64>, bool)> {
        let mut found = None;
        let all = step.start..self.arriving.size();
        self.snapshot.extents(all, &mut |extent| {
            found = Some(extent);
            false
        })?;
        let found = found.context("nothing is known of what comes next")?;
        match found.block {
            Block::Data => Ok((step.start..step.end.min(found.range.end), false)),
            Block::Hole | Block::Zeros => Ok((found.range, true)),
        }
    }
}

/// Where a disk arrives, and what it is called once it is whole.
struct Place {
    paths: ArrivingPaths,
    /// The name that a file gets.
    name: Option<PathBuf>,
    overwrite: bool,
}

impl Place {
    fn of(a: &Restore) -> Result<Place> {
        let refused = |why: &str| Err(VaultError::Refused(format!("{}: {why}", a.target.display())).into());
        if a.format != "raw" || a.target.as_os_str() == "-" {
            return Err(VaultError::Usage("--live writes raw files and block devices only".into()).into());
        }
        let is_device = fs::metadata(&a.target).is_ok_and(|m| {
            use std::os::unix::fs::FileTypeExt;
            m.file_type().is_block_device()
        });
        if is_device {
            let Some(map) = a.map.clone() else {
                return Err(VaultError::Usage("--live on a device needs --map FILE".into()).into());
            };
            if !a.force && !map.exists() {
                return refused(
                    "is a block device, whose content would be lost; give --force if that is wanted",
                );
            }
            let paths = ArrivingPaths { target: a.target.clone(), map };
            return Ok(Place { paths, name: None, overwrite: true });
        }
        let target = with_suffix(&a.target, ".sapwood-arriving");
        let map = a.map.clone().unwrap_or_else(|| with_suffix(&a.target, ".sapwood-map"));
        if map.exists() && !target.exists() {
            // It had arrived, and was killed before it had tidied up; or before there was anything.
            fs::remove_file(&map).with_context(|| format!("removing {}", map.display()))?;
        } else if !map.exists() && target.exists() {
            // Killed before there was a map: nothing has arrived.
            fs::remove_file(&target).with_context(|| format!("removing {}", target.display()))?;
        }
        if a.target.exists() && !a.force {
            return refused("exists already; choose another name, or give --force");
        }
        Ok(Place { paths: ArrivingPaths { target, map }, name: Some(a.target.clone()), overwrite: a.force })
    }

    /// The disk is whole and durable: a file gets its name, and the map goes.
    fn complete(&self) -> Result<()> {
        if let Some(name) = &self.name {
            if !self.overwrite && name.exists() {
                let why =
                    format!("{}: exists now; the disk is in {}", name.display(), self.paths.target.display());
                return Err(VaultError::Refused(why).into());
            }
            fs::rename(&self.paths.target, name).with_context(|| format!("naming {}", name.display()))?;
            sync_folder_of(name)?;
        }
        fs::remove_file(&self.paths.map).with_context(|| format!("removing {}", self.paths.map.display()))?;
        sync_folder_of(&self.paths.map)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|f| f.sync_all());
    synced.with_context(|| format!("syncing {}", folder.display()))
}
