//! `sapwood restore --live`: the disk is served from the first moment, and arrives meanwhile.

use crate::args::{Args, Restore};
use crate::commands::{open, split};
use crate::devices::{ArrivingDevice, Below, SnapshotDevice};
use crate::outcome::with_damage;
use crate::output::{print_json, rate, size};
use crate::purpose::Ended;
use crate::serving::{cache_bytes, Serving};
use crate::signals::EndSignal;
use anyhow::{bail, Context, Result};
use export::nbd::Single;
use export::{Block, BlockDevice};
use image::{Arriving, ArrivingPaths, ImageError, Pace};
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vault::{GroupCache, VaultError};

/// What arrives at a time.
const STEP_BYTES: u64 = 1 << 20;
/// What arrives between two times that it is made durable.
const FLUSH_BYTES: u64 = 256 << 20;
/// What arrives or does not.
const BLOCK_BYTES: u64 = 4096;
/// How long to wait for room.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long clients of a restore that was interrupted may take to come back: QEMU tries every 16 seconds at least.
const COME_BACK: Duration = Duration::from_secs(20);

pub fn run(args: &Args, a: &Restore) -> Result<ExitCode> {
    let mut end = EndSignal::new()?;
    let (disk, spec) = split(&a.snapshot);
    let vault = open(args)?;
    let place = Place::of(a)?;
    let snapshot = vault.open_snapshot(disk, spec, &GroupCache::new(cache_bytes(a.serve.cache)))?;
    let entry = snapshot.entry().clone();
    let name = format!("{disk}@{}", entry.id);
    // Only where they know the address.
    let mut awaits = place.paths.map.exists() && (a.serve.socket.is_some() || a.serve.listen.is_some());
    let snapshot = Arc::new(SnapshotDevice::new(snapshot));
    let of = format!("{}/{name}{}", vault.id(), place.device());
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
    let served = Instant::now();

    let [stop, is_done, is_waiting] = [const { AtomicBool::new(false) }; 3];
    let arrival = Arrival {
        arriving: &arriving,
        snapshot: &snapshot,
        limit: a.limit,
        stop: &stop,
        is_waiting: &is_waiting,
    };
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
        let no_more_comes = || is_done.load(Ordering::Acquire) || is_waiting.load(Ordering::Acquire);
        let mut ended = serving.wait(&mut end, |clients| {
            awaits &= clients == 0 && served.elapsed() < COME_BACK;
            no_more_comes() && clients == 0 && !awaits
        });
        if matches!(ended, Ok(Ended::Command(_))) {
            // What the command began is brought to its end.
            let all = serving.wait(&mut end, |_| no_more_comes());
            ended = if matches!(all, Ok(Ended::Signal)) { all } else { ended };
        }
        stop.store(true, Ordering::Release);
        (arrives.join(), ended)
    });
    serving.stop();
    arriving.flush()?;
    let arrived = arrived.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if snapshot.is_damaged() {
        let target = a.target.display();
        let line = match &arrived {
            Ok(()) => {
                format!("{name}: damage was met, but what it is of was written anew: {target} is whole")
            }
            Err(_) => format!("{name}: damage was met, {target} is not whole"),
        };
        return Ok(with_damage(&[line]));
    }
    arrived.map(|()| ended.map(|e| e.code()))?
}

/// The damage in a vault that an error tells of, if it is that.
fn is_damage(e: &io::Error) -> bool {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<VaultError>());
    inner.is_some_and(VaultError::is_damage)
}

/// How a snapshot comes to its disk while that is in use.
struct Arrival<'a> {
    arriving: &'a Arriving,
    snapshot: &'a SnapshotDevice,
    /// Bytes a second.
    limit: Option<u64>,
    stop: &'a AtomicBool,
    /// There is no room, and perhaps there will be.
    is_waiting: &'a AtomicBool,
}

/// What comes next.
enum Next {
    /// A step, or less.
    Data(Range<u64>),
    /// A hole of any length.
    Hole(Range<u64>),
    /// A step of which it cannot be told.
    Unknown(Range<u64>),
}

impl Arrival<'_> {
    /// Lets all of it arrive, in the order of the disk. What is damaged is passed over, and is an error in the end.
    fn run(&self) -> Result<()> {
        let mut damage = None;
        let mut pace = self.limit.map(Pace::new);
        let step_bytes = pace.as_ref().map_or(STEP_BYTES, |p| p.piece_bytes() / BLOCK_BYTES * BLOCK_BYTES);
        let mut since_flush = 0;
        let mut at = 0;
        let bytes = self.arriving.size();
        while at < bytes {
            if self.stop.load(Ordering::Acquire) {
                bail!("stopped; run it again to go on");
            }
            let next = self.next(at..bytes.min(at + step_bytes))?;
            let (Next::Data(range) | Next::Hole(range) | Next::Unknown(range)) = &next;
            let is_free = matches!(next, Next::Hole(_)) || self.arriving.has(range);
            if let Err(e) = self.bring(&next, &mut damage) {
                self.wait_for_room(e)?;
                continue;
            }
            self.is_waiting.store(false, Ordering::Release);
            if let Some(pace) = pace.as_mut().filter(|_| !is_free) {
                pace.pay(range.end - range.start);
            }
            since_flush += range.end - range.start;
            at = range.end;
            if since_flush >= FLUSH_BYTES {
                self.arriving.flush()?;
                since_flush = 0;
            }
        }
        self.arriving.flush()?;
        damage.map_or(Ok(()), |e: ImageError| Err(e.into()))
    }

    fn next(&self, step: Range<u64>) -> Result<Next> {
        let mut found = None;
        let all = step.start..self.arriving.size();
        let looked = self.snapshot.extents(all, &mut |extent| {
            found = Some(extent);
            false
        });
        match looked {
            Err(e) if is_damage(&e) => return Ok(Next::Unknown(step)),
            other => other?,
        }
        let found = found.context("nothing is known of what comes next")?;
        Ok(match found.block {
            Block::Data => Next::Data(step.start..step.end.min(found.range.end)),
            Block::Hole | Block::Zeros => Next::Hole(found.range),
        })
    }

    /// Lets a step arrive, all but what is damaged: that is said, and left in `damage`.
    fn bring(&self, next: &Next, damage: &mut Option<ImageError>) -> image::Result<()> {
        match next {
            Next::Hole(range) => self.arriving.fetch_zeros(range.clone()),
            Next::Data(range) => self.bring_data(range.clone(), BLOCK_BYTES, damage),
            Next::Unknown(range) => self.bring_data(range.clone(), STEP_BYTES, damage),
        }
    }

    /// Takes a range apart where it is damaged, down to pieces of `least` bytes.
    fn bring_data(
        &self,
        range: Range<u64>,
        least: u64,
        damage: &mut Option<ImageError>,
    ) -> image::Result<()> {
        match self.arriving.fetch(range.clone()) {
            Err(ImageError::Io { source, .. }) if is_damage(&source) && range.end - range.start > least => {
                let middle = (range.start + (range.end - range.start) / 2).next_multiple_of(BLOCK_BYTES);
                self.bring_data(range.start..middle, least, damage)?;
                self.bring_data(middle..range.end, least, damage)
            }
            Err(e) if matches!(&e, ImageError::Io { source, .. } if is_damage(source)) => {
                // Many pieces of it have the same damage.
                if damage.as_ref().is_none_or(|before| before.to_string() != e.to_string()) {
                    eprintln!("sapwood: {e}");
                }
                *damage = Some(e);
                Ok(())
            }
            other => other,
        }
    }

    /// Waits a while where there was no room, for as long as the disk is in use: others may make some.
    fn wait_for_room(&self, e: ImageError) -> Result<()> {
        let is_full = matches!(&e, ImageError::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded));
        if !is_full {
            return Err(e.into());
        }
        if !self.is_waiting.swap(true, Ordering::AcqRel) {
            eprintln!("sapwood: {e}; the rest arrives when there is room");
        }
        let start = Instant::now();
        while start.elapsed() < TRY_AGAIN {
            if self.stop.load(Ordering::Acquire) {
                return Err(e.into());
            }
            std::thread::sleep(TRY_AGAIN / 20);
        }
        Ok(())
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
        let paths = ArrivingPaths { target, map };
        Arriving::tidy(&paths)?;
        if a.target.exists() && !a.force {
            return refused("exists already; choose another name, or give --force");
        }
        Ok(Place { paths, name: Some(a.target.clone()), overwrite: a.force })
    }

    /// What the map says of a device: on another one nothing of what it names has arrived.
    fn device(&self) -> String {
        match (&self.name, self.paths.target.canonicalize()) {
            (None, Ok(path)) => format!(" on {}", path.display()),
            _ => String::new(),
        }
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
