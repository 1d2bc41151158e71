//! Processes at work together on one vault, some of them killed: nothing that was acknowledged is lost or different,
//! nobody is told of damage, and nothing is left over.
//!
//! A round starts a few processes at once (backups, deletions, collections, compactions, verifications, restores,
//! reindexing), kills or interrupts some of them, and looks at everything when they have ended. What happens in a
//! round depends on the machine's timing too, so a seed gives the same actions, not the same interleaving.
#![allow(clippy::unwrap_used)]

mod common;
mod oracle;

use common::from_env;
use oracle::{Tally, World};
use std::path::PathBuf;

/// Rounds in all, half of them with each policy; `SAPWOOD_ROUNDS` asks for another number.
const ROUNDS: u64 = 1000;
/// Rounds after which everything is restored.
const COMPARE_ALL: u64 = 50;
/// Rounds after which the vault is collected and verified, emptied, and a new one begun.
const ROUNDS_PER_VAULT: u64 = 100;
/// One vault of so many is on the disk, where processes wait for it; the others are in memory, where more rounds
/// fit into the same time. `SAPWOOD_ON_DISK=1` puts all of them on the disk.
const VAULTS_PER_DISK: u64 = 5;
const MEMORY: &str = "/dev/shm";

#[test]
fn balanced() {
    rounds("balanced", 0);
}

/// Disks share chunks here, and claim them.
#[test]
fn conventional() {
    rounds("conventional", 1_000_000);
}

fn rounds(policy: &str, first: u64) {
    let rounds = from_env("SAPWOOD_ROUNDS", ROUNDS).div_ceil(2);
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
        assert!(
            rounds < ROUNDS_PER_VAULT || tally.contains_key(what),
            "{policy}: no {what} in {rounds} rounds"
        );
    }
}

/// Where a vault is made.
fn place(vault: u64) -> PathBuf {
    let in_memory = vault % VAULTS_PER_DISK != 0 && from_env("SAPWOOD_ON_DISK", 0) == 0;
    match PathBuf::from(MEMORY) {
        memory if in_memory && memory.is_dir() => memory,
        _ => std::env::temp_dir(),
    }
}
