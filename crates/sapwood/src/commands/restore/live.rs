//! `sapwood restore --live`: the disk is served from the first moment, and arrives meanwhile.

mod arrival;
mod place;

use arrival::Arrival;
use place::Place;

use crate::args::{Args, Restore};
use crate::commands::{open, split};
use crate::devices::{ArrivingDevice, Below, SnapshotDevice};
use crate::outcome::{exit_code, one_line, with_damage};
use crate::output::{print_json, rate, size};
use crate::purpose::Ended;
use crate::serving::{cache_bytes, Serving};
use crate::signals::EndSignal;
use anyhow::Result;
use export::nbd::Single;
use image::Arriving;
use serde_json::json;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vault::GroupCache;

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
    // Without it what a guest has written could never be completed.
    let (_, holds) = vault.set_held(disk, &entry.id.to_string(), true)?;
    let opened = Arriving::open(&place.paths, entry.size, of.as_bytes(), holds, below);
    if opened.is_err() && holds {
        vault.set_held(disk, &entry.id.to_string(), false)?;
    }
    let arriving = Arc::new(opened?);

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
            if let Err(e) = outcome.as_ref().map_err(one_line) {
                // Said now: the disk may be in use for long.
                eprintln!("sapwood: {name}: {e}");
            }
            is_done.store(true, Ordering::Release);
            outcome
        });
        let no_more_comes = || is_done.load(Ordering::Acquire) || is_waiting.load(Ordering::Acquire);
        let mut ended = serving.wait(&mut end, |clients| {
            awaits &= clients.ever == 0 && served.elapsed() < COME_BACK;
            no_more_comes() && clients.now == 0 && !awaits
        });
        if matches!(ended, Ok(Ended::Command(_))) {
            // What the command began is brought to its end.
            let all = serving.wait(&mut end, |_| no_more_comes());
            ended = if matches!(all, Ok(Ended::Signal)) { all } else { ended };
        }
        stop.store(true, Ordering::Release);
        (arrives.join(), ended)
    });
    let is_in_use = serving.is_in_use();
    serving.stop();
    let flushed = arriving.flush();
    let arrived = arrived.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    // Whatever kept it from arriving is the reason why it cannot be flushed, too.
    if arrived.is_ok() {
        flushed?;
    }
    if arrived.is_ok() && is_in_use && matches!(ended, Ok(Ended::Signal)) {
        eprintln!("sapwood: {name}: was in use; run it again to serve what is in {}", a.target.display());
    } else if arrived.is_ok() {
        place.leave()?;
        if arriving.holds() || holds {
            vault.set_held(disk, &entry.id.to_string(), false)?;
        }
    }
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
    match &arrived {
        Ok(()) => ended.map(|e| e.code()),
        // It was said when it was met.
        Err(e) => Ok(exit_code(e)),
    }
}
