//! A fault at any system call: an error, or a read or write of half the bytes. Whatever call it meets, no command says
//! that it has done what it has not, none panics, and nothing that was there before is lost.
//!
//! `SAPWOOD_FAULTS` says how many calls of each command are met, `SAPWOOD_SEED` which; `all` is every call with every
//! fault, the name of a call all calls of that name.
//! A fault that did harm is met again by `SAPWOOD_FAULT=NUMBER:ERROR` (`SAPWOOD_FAULT=123:5`; `short` for half the bytes).
#![allow(clippy::unwrap_used)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod scene;
mod tracer;

use common::from_env;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use scene::{Command, Scene};
use std::panic::{catch_unwind, AssertUnwindSafe};
use tracer::Fault;

/// Faults of each command in an ordinary run of the tests.
const FAULTS: usize = 20;

/// Which ones. Always the same: a change is tested by what it changes, not by luck.
const SEED: u64 = 13;

#[test]
fn backup() {
    sweep(Command::Backup);
}

#[test]
fn first_backup() {
    sweep(Command::FirstBackup);
}

#[test]
fn restore() {
    sweep(Command::Restore);
}

#[test]
fn delete() {
    sweep(Command::Delete);
}

#[test]
fn gc() {
    sweep(Command::Gc);
}

#[test]
fn verify() {
    sweep(Command::Verify);
}

#[test]
fn mzip() {
    sweep(Command::Mzip);
}

#[test]
fn munzip() {
    sweep(Command::Munzip);
}

#[test]
fn mtar_migrate() {
    sweep(Command::MtarMigrate);
}

#[test]
fn mtar_restore() {
    sweep(Command::MtarRestore);
}

/// Lets faults meet the calls of a command, one a run.
fn sweep(command: Command) {
    let scene = Scene::new(command);
    let calls = scene.calls();
    let seed = from_env("SAPWOOD_SEED", SEED);
    println!("{command:?}: {} calls; SAPWOOD_SEED={seed}", calls.len());
    assert!(calls.len() > 20, "too few calls were seen: {}", calls.len());
    if let Ok(named) = std::env::var("SAPWOOD_FAULT") {
        let (no, fault) = named.split_once(':').unwrap();
        let fault = fault.parse().map_or(Fault::Short, Fault::Error);
        return scene.meet(no.parse().unwrap(), fault);
    }
    let all = calls.iter().enumerate().flat_map(|(no, call)| call.faults().into_iter().map(move |f| (no, f)));
    let mut random = StdRng::seed_from_u64(seed);
    let chosen: Vec<(usize, Fault)> = match std::env::var("SAPWOOD_FAULTS").as_deref() {
        Ok("all") => all.collect(),
        Ok(wanted) => match wanted.parse() {
            Ok(number) => all.sample(&mut random, number),
            Err(_) => all.filter(|(no, _)| calls[*no].name() == Some(wanted)).collect(),
        },
        // Kinds of calls count alike: reads and writes are most of the calls, and not most of the code.
        Err(_) => {
            let mut kinds: std::collections::BTreeMap<i64, Vec<usize>> = Default::default();
            calls.iter().enumerate().for_each(|(no, call)| kinds.entry(call.number()).or_default().push(no));
            let kinds: Vec<Vec<usize>> = kinds.into_values().collect();
            let pick = |_| {
                let kind = &kinds[random.random_range(0..kinds.len())];
                let no = kind[random.random_range(0..kind.len())];
                let faults = calls[no].faults();
                (no, faults[random.random_range(0..faults.len())])
            };
            (0..FAULTS).map(pick).collect()
        }
    };
    // All of them, whatever comes of one: a soak run is long.
    let meet =
        |&(no, fault): &(usize, Fault)| catch_unwind(AssertUnwindSafe(|| scene.meet(no, fault))).is_err();
    let harmful: Vec<(usize, Fault)> = chosen.into_iter().filter(meet).collect();
    assert!(harmful.is_empty(), "{command:?}, SAPWOOD_SEED={seed}: {harmful:?}");
}
