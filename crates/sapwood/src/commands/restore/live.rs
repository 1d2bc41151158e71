//! `sapwood restore --live`: the disk is served from the first moment, while it is restored.

mod arrival;
mod place;

use arrival::Arrival;
use place::Place;

use crate::args::{Args, Restore};
use crate::commands::names::{check_is_disk, held_for, open_to_read, split};
use crate::devices::{read_cache, ArrivingDevice, OpenVault, SnapshotBase, SnapshotDevice};
use crate::progress::show_while;
use crate::serving::{tls_of, Serving};
use crate::system::purpose::End;
use crate::system::signals::EndSignal;
use crate::terminal::outcome::{exit_code, one_line, with_damage};
use crate::terminal::output::{print_json, rate, size};
use crate::terminal::streams::{check_out, errln, outln};
use anyhow::{Context as _, Result};
use export::nbd::Tls;
use export::SingleExport;
use image::{ArrivingDisk, ArrivingOptions};
use serde_json::json;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vault::SnapshotEntry;

/// How long clients of an interrupted restore have to reconnect: QEMU tries at least every 16 seconds.
const COME_BACK: Duration = Duration::from_secs(20);

pub fn run(args: &Args, a: &Restore) -> Result<ExitCode> {
    let end = EndSignal::new()?;
    let restore = LiveRestore::begin(args, a)?;
    let mut serving = restore.serve()?;
    serving.run(&a.command)?;
    let (arrived, ended) = restore.arrive(&mut serving, &end);
    let is_in_use = serving.is_in_use();
    serving.stop();
    restore.leave(&arrived, is_in_use && matches!(ended, Ok(End::Signal)))?;
    restore.outcome(&arrived, ended)
}

/// A snapshot, and the disk that it becomes.
struct LiveRestore<'a> {
    args: &'a Args,
    a: &'a Restore,
    vault: OpenVault,
    disk: &'a str,
    entry: SnapshotEntry,
    /// The snapshot, as `vm/disk@id`.
    name: String,
    snapshot: Arc<SnapshotDevice>,
    tls: Option<Tls>,
    place: Place,
    arriving: Arc<ArrivingDisk>,
    /// Clients of an earlier run know the address, and may reconnect.
    is_awaited: bool,
    /// What the snapshot is held for.
    purpose: String,
    /// This run or an earlier one put a hold on the snapshot for this restore.
    holds: bool,
}

impl<'a> LiveRestore<'a> {
    /// Begins a restore, or resumes one.
    fn begin(args: &'a Args, a: &'a Restore) -> Result<LiveRestore<'a>> {
        let (disk, spec) = split(&a.snapshot);
        let tls = tls_of(&a.serve)?;
        let vault = open_to_read(args)?.served();
        let place = Place::of(a)?;
        let snapshot = vault.open_snapshot(disk, spec, &read_cache(a.serve.cache))?;
        let entry = snapshot.entry().clone();
        check_is_disk(disk, &entry)?;
        let name = format!("{disk}@{}", entry.id);
        let is_awaited = place.paths.map.exists() && (a.serve.socket.is_some() || a.serve.listen.is_some());
        let snapshot = Arc::new(SnapshotDevice::new(snapshot));
        let of = format!("{}/{name}", vault.id());
        let below = Box::new(SnapshotBase(snapshot.clone()));
        // Without the snapshot, a disk that a guest has written to could never be completed.
        let purpose = held_for("restore --live", &a.target)?;
        let (_, holds) = vault.hold_for(disk, &entry.id.to_string(), &purpose)?;
        let options =
            ArrivingOptions { size: entry.size, of: of.as_bytes(), holds, overwrite: place.overwrite };
        let opened = ArrivingDisk::open(&place.paths, &options, below);
        if opened.is_err() && holds {
            vault.end_hold_for(disk, &entry.id.to_string(), &purpose)?;
        }
        let arriving = Arc::new(opened?);
        let holds = holds || arriving.holds();
        Ok(LiveRestore {
            args,
            a,
            vault,
            disk,
            entry,
            name,
            snapshot,
            tls,
            place,
            arriving,
            is_awaited,
            purpose,
            holds,
        })
    }

    /// Serves the disk, and says where.
    fn serve(&self) -> Result<Serving> {
        let LiveRestore { args, a, entry, name, arriving, .. } = self;
        let description = format!("the snapshot of {}, being restored", vault::format_time(entry.time));
        let (disk, snapshot) = (arriving.clone(), self.snapshot.clone());
        let device = Arc::new(ArrivingDevice { disk, snapshot });
        let serving = Serving::start(
            &a.serve,
            self.tls.clone(),
            SingleExport { name: name.clone(), description, device },
        )?;
        if args.json {
            print_json(&json!({
                "uri": serving.uri(),
                "disk": self.disk,
                "snapshot": entry.id.to_string(),
                "target": a.target.to_string_lossy(),
                "size": entry.size,
                "arrived_bytes": arriving.arrived_bytes(),
            }));
        } else if !args.quiet {
            outln!("{name}: {}, to be read and written, at {}", size(entry.size), serving.uri());
        }
        check_out()?;
        Ok(serving)
    }

    /// Restores the disk while it is served. Returns whether that succeeded, and why serving ended.
    fn arrive(&self, serving: &mut Serving, end: &EndSignal) -> (Result<()>, Result<End>) {
        let [stop, is_done, is_waiting] = [const { AtomicBool::new(false) }; 3];
        let arrival = Arrival {
            arriving: &self.arriving,
            snapshot: &self.snapshot,
            limit: self.a.limit,
            stop: &stop,
            is_waiting: &is_waiting,
        };
        let served = Instant::now();
        let (arrived, ended) = std::thread::scope(|scope| {
            let bring = || {
                let outcome = self.bring(&arrival);
                is_done.store(true, Ordering::Release);
                outcome
            };
            let arrives = std::thread::Builder::new().name("arrival".into()).spawn_scoped(scope, bring);
            // Without the thread nothing is restored: as after any failure, clients are served until they leave.
            is_done.fetch_or(arrives.is_err(), Ordering::Release);
            let no_more_comes = || is_done.load(Ordering::Acquire) || is_waiting.load(Ordering::Acquire);
            let mut ended = serving.wait(end, |clients| {
                let is_awaited = self.is_awaited && clients.ever == 0 && served.elapsed() < COME_BACK;
                no_more_comes() && clients.now == 0 && !is_awaited
            });
            if matches!(ended, Ok(End::Command(_))) {
                // The rest of the disk is restored after the command has ended.
                let all = serving.wait(end, |_| no_more_comes());
                ended = if matches!(all, Ok(End::Signal)) { all } else { ended };
            }
            stop.store(true, Ordering::Release);
            (arrives.map(|arrives| arrives.join()), ended)
        });
        let arrived = arrived
            .context("cannot start a thread")
            .and_then(|arrived| arrived.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (arrived, ended)
    }

    /// Restores all of it, and prints how that went: the disk may be in use for long after that.
    fn bring(&self, arrival: &Arrival) -> Result<()> {
        let (name, target) = (&self.name, self.a.target.display());
        let start = Instant::now();
        // A command that uses the disk, such as a guest's console, has the terminal for itself.
        let quiet = self.args.quiet || !self.a.command.is_empty();
        let far = || (self.arriving.arrived_bytes(), self.entry.size);
        let arrived = show_while(quiet, name, far, || arrival.run());
        let outcome = arrived.and_then(|()| {
            self.arriving.complete()?;
            self.place.complete()
        });
        if outcome.is_ok() && !self.args.quiet {
            let seconds = start.elapsed().as_secs_f64();
            errln!("{name}: all of it is in {target}, {seconds:.1} s, {}", rate(self.entry.size, seconds));
        }
        if let Err(e) = outcome.as_ref().map_err(one_line) {
            errln!("sapwood: {name}: {e}");
        }
        outcome
    }

    /// After the last client has left: makes everything durable, and ends the restore if it is whole and not `is_wanted`
    /// again.
    fn leave(&self, arrived: &Result<()>, is_wanted: bool) -> Result<()> {
        let flushed = self.arriving.flush();
        if arrived.is_err() {
            // The error of the restore is also why it cannot be flushed.
            return Ok(());
        }
        flushed?;
        if is_wanted {
            let (name, target) = (&self.name, self.a.target.display());
            errln!("sapwood: {name}: was in use; run it again to serve what is in {target}");
            return Ok(());
        }
        self.place.leave()?;
        if self.holds {
            self.vault.end_hold_for(self.disk, &self.entry.id.to_string(), &self.purpose)?;
        }
        Ok(())
    }

    fn outcome(&self, arrived: &Result<()>, ended: Result<End>) -> Result<ExitCode> {
        let (name, target) = (&self.name, self.a.target.display());
        match arrived {
            Ok(()) if self.snapshot.is_damaged() => Ok(with_damage(&[format!(
                "{name}: damage was met, but what it is of was written anew: {target} is whole"
            )])),
            Err(_) if self.snapshot.is_damaged() => {
                Ok(with_damage(&[format!("{name}: damage was met, {target} is not whole")]))
            }
            Ok(()) => ended.map(|e| e.code()),
            // It was reported when it was met.
            Err(e) => Ok(exit_code(e)),
        }
    }
}
