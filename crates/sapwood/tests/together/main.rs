//! Processes at work together on one vault, some of them killed: nothing that was acknowledged is lost or different,
//! nobody is told of damage, and nothing is left over.
//!
//! A round starts a few processes at once (backups, deletions, collections, compactions, verifications, restores,
//! reindexing), kills, interrupts or pauses some of them, and looks at everything when they have ended. What happens in a
//! round depends on the machine's timing too, so a seed gives the same actions, not the same interleaving.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod oracle;

use common::{from_env, random, Bench, Child};
use oracle::{Tally, World};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc;

/// Rounds with the policy `reverse`, and half as many with each of the others; `SAPWOOD_ROUNDS` asks for another number.
const ROUNDS: u64 = 200;
/// Rounds after which everything is restored.
const COMPARE_ALL: u64 = 25;
/// Rounds after which the vault is collected and verified, emptied, and a new one begun.
const ROUNDS_PER_VAULT: u64 = 50;
/// One vault of so many is on the disk, where processes wait for it; the others are in memory, where more rounds
/// fit into the same time. `SAPWOOD_ON_DISK=1` puts all of them on the disk.
const VAULTS_PER_DISK: u64 = 10;

#[test]
fn balanced() {
    rounds("balanced", 0, 2);
}

/// Disks share chunks here, and claim them.
#[test]
fn conventional() {
    rounds("conventional", 1_000_000, 2);
}

/// Disks share segments here, and take from each other what newer snapshots have.
#[test]
fn reverse() {
    rounds("reverse", 2_000_000, 1);
}

fn rounds(policy: &str, first: u64, of: u64) {
    let rounds = from_env("SAPWOOD_ROUNDS", ROUNDS).div_ceil(of);
    let seed = from_env("SAPWOOD_SEED", 1) + first;
    println!("{policy}: {rounds} rounds from seed {seed}");
    let mut tally = Tally::new();
    for vault in 0..rounds.div_ceil(ROUNDS_PER_VAULT) {
        let seed = seed + vault;
        let mut world = World::new(&place(vault), seed, policy);
        for round in 0..ROUNDS_PER_VAULT.min(rounds - vault * ROUNDS_PER_VAULT) {
            world.round(round);
            let when = format!("{policy} seed {seed} round {round}");
            world.compare(&when, round % COMPARE_ALL == COMPARE_ALL - 1);
        }
        world.bench.collect();
        world.bench.verify();
        world.compare(&format!("{policy} seed {seed} after gc"), true);
        for (what, n) in world.end() {
            *tally.entry(what).or_default() += n;
        }
    }
    println!("{policy}: {tally:?}");
    for what in
        ["backup done", "backup ended by signal 9", "delete done", "delete ended by signal 9", "gc done"]
    {
        assert!(rounds < 100 || tally.contains_key(what), "{policy}: no {what} in {rounds} rounds");
    }
}

/// Where a vault is made.
fn place(vault: u64) -> PathBuf {
    let in_memory = vault % VAULTS_PER_DISK != 0 && from_env("SAPWOOD_ON_DISK", 0) == 0;
    if in_memory {
        testing::memory_dir()
    } else {
        std::env::temp_dir()
    }
}

/// A backup that has read `content` through a pipe and waits for more.
fn backup_under_way(bench: &Bench, disk: &str, content: &[u8]) -> (Child, ChildStdin) {
    let args = ["--json", "backup", disk, "-"];
    let mut command = bench.command(&args);
    command.stdin(Stdio::piped());
    let mut child = Child::start(command, &args.join(" "));
    let mut stdin = child.stdin();
    stdin.write_all(content).unwrap();
    (child, stdin)
}

/// More than a backup keeps in its hands: most of it is placed and some of it is written when it waits for more.
const LARGE_BYTES: usize = 80 << 20;

#[test]
fn a_collection_leaves_what_a_running_backup_has_written_and_matched() {
    for policy in ["balanced", "conventional", "reverse"] {
        let bench = Bench::new(policy);
        let mut content = random(LARGE_BYTES, 1);
        let source = bench.file("source", &content);
        bench.backup("vm/disk", &source);
        let other = bench.backup("vm/other", &source);
        // Nothing but the parent of the running backup, and what it has claimed, keeps these chunks.
        content[..1 << 20].copy_from_slice(&random(1 << 20, 2));
        let (child, mut stdin) = backup_under_way(&bench, "vm/disk", &content);
        let deleted = bench.json(&["delete", "vm/disk@latest"]);
        assert_eq!(deleted["waiting_snapshots"], 1, "{deleted}");
        bench.done(&["delete", &format!("vm/other@{other}")]);
        for _ in 0..2 {
            bench.done(&["gc"]);
            bench.done(&["compact", "--threshold", "1"]);
        }
        stdin.write_all(b"the end").unwrap();
        drop(stdin);
        child.wait().expect_done();
        content.extend_from_slice(b"the end");
        bench.verify();
        assert!(bench.restored("vm/disk") == content, "{policy}");
        bench.collect();
        bench.verify();
        assert!(bench.restored("vm/disk") == content, "{policy}: after gc");
    }
}

/// Claims alone: the backup's disk is new, so it has no parent.
#[test]
fn a_collection_leaves_what_a_first_backup_has_matched() {
    let bench = Bench::new("conventional");
    let content = random(LARGE_BYTES, 3);
    bench.backup("vm/old", &bench.file("source", &content));
    let (child, stdin) = backup_under_way(&bench, "vm/new", &content);
    // From now on nothing but what the backup has claimed keeps these chunks.
    bench.done(&["delete", "vm/old@latest"]);
    bench.done(&["gc"]);
    bench.done(&["compact", "--threshold", "1"]);
    drop(stdin);
    let ended = child.wait();
    ended.expect_done();
    assert!(
        ended.json()["new_bytes"].as_u64().unwrap() < content.len() as u64 / 2,
        "nothing was matched: {ended}"
    );
    bench.verify();
    assert!(bench.restored("vm/new") == content);
}

#[test]
fn a_restore_ends_with_what_was_deleted_meanwhile() {
    for policy in ["balanced", "conventional", "reverse"] {
        let bench = Bench::new(policy);
        let content = random(LARGE_BYTES, 4);
        bench.backup("vm/disk", &bench.file("source", &content));
        let args = ["-q", "restore", "vm/disk", "-"];
        let (go, wait) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let child = Child::start_with_reader(bench.command(&args), &args.join(" "), move |stdout| {
            let mut got = vec![0; 4096];
            stdout.read_exact(&mut got).unwrap();
            begun.send(()).unwrap();
            wait.recv().unwrap();
            stdout.read_to_end(&mut got).unwrap();
            got
        });
        begins.recv().unwrap();
        bench.done(&["delete", "vm/disk@latest"]);
        bench.done(&["gc"]);
        bench.done(&["compact", "--threshold", "1"]);
        go.send(()).unwrap();
        let ended = child.wait();
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stdout == content, "{policy}");
        bench.collect();
        assert!(bench.data_objects().is_empty(), "{policy}: what the restore has kept is still there");
    }
}
