//! Disks of a running QEMU, and what is left when somebody is killed in between.

use crate::common::qemu::Machine;
use crate::common::relay::{self, Kill};
use crate::common::{from_env, qemu_img, Bench};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

const DISK_BYTES: usize = 48 << 20;

fn write_somewhere(vm: &mut Machine, rng: &mut StdRng) {
    let len = rng.random_range(1..40) * 4096;
    let at = rng.random_range(0..(DISK_BYTES - len) / 4096) * 4096;
    vm.write(at, len, rng.random());
}

/// Rounds of writing and backing up, in which the backup or QEMU is killed at some moment. Every snapshot there is must
/// be what the disk was when its backup began.
fn rounds(format: &str, seed: u64) {
    println!("SAPWOOD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = Bench::new("balanced");
    let image = bench.arg("disk");
    qemu_img(&["create", "-q", "-f", format, &image, &DISK_BYTES.to_string()]);
    let mut vm = Machine::start(&bench, &image, format, vec![0; DISK_BYTES]);
    let sources = ["d0", "vd0"].map(|node| format!("qmp:{}#{node}", bench.arg("qmp.sock")));
    vm.write(0, 20 << 20, 1);
    // Backups that were killed: in all, with a point in time, with a snapshot; and those that went by a bitmap.
    let (mut killed, mut in_between, mut committed, mut told, mut died) = (0, 0, 0, 0, 0);
    let mut snapshots = 0;
    for round in 0..from_env("SAPWOOD_ROUNDS", 28) {
        for _ in 0..rng.random_range(0..4) {
            write_somewhere(&mut vm, &mut rng);
        }
        if round % 8 == 7 {
            // Without a word: what was not flushed is lost, and so are the bitmaps.
            drop(vm);
            qemu_img(&["convert", "-f", format, "-O", "raw", &image, &bench.arg("raw")]);
            vm = Machine::start(&bench, &image, format, std::fs::read(bench.path("raw")).unwrap());
        }
        let source = &sources[rng.random_range(0..2)];
        let mut child = bench
            .command(&["--json", "backup", "vm/vda", source])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let content = vm.content.clone();
        let kill = rng.random_bool(0.6);
        if kill {
            // At any moment, or while there is a point in time.
            let start = Instant::now();
            if rng.random_bool(0.5) {
                while !vm.keeps_a_point() && child.try_wait().unwrap().is_none() {
                    assert!(
                        start.elapsed() < Duration::from_secs(60),
                        "round {round}: no point in time is taken"
                    );
                }
                std::thread::sleep(Duration::from_millis(rng.random_range(0..20)));
            } else {
                std::thread::sleep(Duration::from_millis(rng.random_range(0..250)));
            }
            let signal = if rng.random_bool(0.3) { Signal::TERM } else { Signal::KILL };
            if child.try_wait().unwrap().is_none() {
                kill_process(Pid::from_child(&child), signal).unwrap();
                killed += 1;
            }
        }
        // Or QEMU goes while it is being read from, without a word.
        let machine_dies = !kill && rng.random_bool(0.3);
        if machine_dies {
            let start = Instant::now();
            while !vm.keeps_a_point() && child.try_wait().unwrap().is_none() {
                assert!(
                    start.elapsed() < Duration::from_secs(60),
                    "round {round}: no point in time is taken"
                );
            }
            vm.kill();
            died += 1;
        }
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if machine_dies {
            qemu_img(&["convert", "-f", format, "-O", "raw", &image, &bench.arg("raw")]);
            vm = Machine::start(&bench, &image, format, std::fs::read(bench.path("raw")).unwrap());
            // It may have read everything before; then the snapshot is whole, and is compared below.
            let code = done.status.code();
            assert!(
                matches!(code, Some(0 | 1 | 4)) && !said.contains("panicked"),
                "round {round}: {code:?} {said}"
            );
        }
        in_between += usize::from(kill && vm.keeps_a_point());
        let now = bench.snapshots("vm/vda").len();
        if now > snapshots {
            committed += usize::from(kill && !done.status.success());
            assert!(bench.restored("vm/vda@latest") == content, "round {round}");
        }
        snapshots = now;
        if !kill && !machine_dies {
            assert!(done.status.success(), "round {round}: {said}");
            let report: Value = serde_json::from_slice(&done.stdout).unwrap();
            told += u64::from(report["scan"]["kind"] == "changed");
        }
    }
    let last = bench.json(&["backup", "vm/vda", &sources[0]]);
    assert!(bench.restored("vm/vda@latest") == vm.content, "{last}");
    assert_eq!((vm.bitmaps().len(), vm.leftovers()), (1, vec![]));
    println!(
        "{format}: {killed} backups killed, {in_between} of them with a point in time and {committed} with a snapshot; {told} \
         went by a bitmap; QEMU died {died} times"
    );
    assert!(told > 0 && in_between > 0);
    bench.json(&["verify", "--data"]);
}

#[test]
fn whoever_is_killed_no_backup_of_a_qcow2_disk_is_silently_incomplete() {
    rounds("qcow2", from_env("SAPWOOD_SEED", 7));
}

#[test]
fn whoever_is_killed_no_backup_of_a_raw_disk_is_silently_incomplete() {
    rounds("raw", from_env("SAPWOOD_SEED", 8));
}

/// A backup after one that was killed at any of its commands to QEMU, and after two: the second one at any command while it
/// removes what the first one has left.
#[test]
fn after_a_kill_at_any_command_the_next_backup_is_whole() {
    const BYTES: usize = 1 << 20;
    let bench = Bench::new("balanced");
    let image = bench.arg("disk");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, &BYTES.to_string()]);
    let mut vm = Machine::start(&bench, &image, "qcow2", vec![0; BYTES]);
    let source = format!("qmp:{}#d0", bench.arg("relay.sock"));
    let args = ["backup", "vm/vda", &source];
    let mut writes = 0_usize;
    let mut run = |vm: &mut Machine, kill: Kill| {
        writes += 1;
        vm.write(writes * 5 % 16 * 65536, 4096, writes as u8);
        let done = relay::run(&bench, &args, kill);
        if !done.was_killed {
            let said = String::from_utf8_lossy(&done.output.stderr);
            assert!(done.output.status.success(), "{kill:?}: {said}");
            assert!(bench.restored("vm/vda@latest") == vm.content, "{kill:?}");
            assert_eq!((vm.bitmaps().len(), vm.leftovers()), (1, vec![]), "{kill:?}");
        }
        done
    };
    run(&mut vm, Kill::Never);
    let whole = run(&mut vm, Kill::Never).commands;
    let exported = whole.iter().position(|command| command == "block-export-add").unwrap() + 1;
    let mut kills = 0;
    for how in [Kill::Before, Kill::After] {
        for at in 1..=whole.len() {
            kills += usize::from(run(&mut vm, how(at)).was_killed);
            run(&mut vm, Kill::Never);
        }
        // The second one's list is longer by what it removes.
        for at in 1.. {
            assert!(run(&mut vm, Kill::After(exported)).was_killed);
            let second = run(&mut vm, how(at));
            kills += 1 + usize::from(second.was_killed);
            run(&mut vm, Kill::Never);
            if !second.was_killed || second.commands.last().is_some_and(|last| last == "transaction") {
                break;
            }
        }
    }
    println!("{} commands, {kills} backups killed", whole.len());
    assert!(kills > 2 * whole.len());
    bench.json(&["verify", "--data"]);
}
