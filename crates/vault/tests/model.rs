//! Ten thousand random steps against a naive model: backups of two disks that share much, deletions, reverse passes,
//! collections, compactions, new indexes, popular sets. Every step leaves every snapshot as it was.

mod sim;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sim::{World, SMALL};
use vault::Progress;

/// Steps in all, a fifth of them with each policy; `SAPWOOD_STEPS` asks for another number.
const STEPS: u64 = 5000;
/// Steps with one vault.
const STEPS_PER_VAULT: u64 = 125;
/// Snapshots of a disk; from there on deletions are as likely as backups.
const SNAPSHOTS: usize = 12;

#[test]
fn every_step_leaves_every_snapshot_as_it_was() {
    let from_env = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let steps = from_env("SAPWOOD_STEPS").unwrap_or(STEPS);
    let seed = from_env("SAPWOOD_SEED").unwrap_or(1);
    println!("{steps} steps from seed {seed}");
    let vaults = steps.div_ceil(STEPS_PER_VAULT);
    for vault in 0..vaults {
        run(seed + vault, (steps - vault * STEPS_PER_VAULT).min(STEPS_PER_VAULT), vault as usize);
    }
}

fn run(seed: u64, steps: u64, vault: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(seed, SMALL[vault % SMALL.len()]);
    for step in 0..steps {
        let when = format!("policy {}, seed {seed}, step {step}", vault % SMALL.len());
        let disk = ["a/x", "b/x"][rng.random_range(0..2)];
        let crowded = world.count(disk) > SNAPSHOTS;
        let done = match rng.random_range(0..20) {
            0..=9 if !crowded => {
                world.change(disk, &mut rng);
                world.backup(disk)
            }
            // What one disk has becomes the other's: whole segments are shared, and data moves.
            10 => {
                world.copy(disk, if disk == "a/x" { "b/x" } else { "a/x" });
                world.backup(disk)
            }
            0..=14 => world.delete_one(disk, &mut rng),
            15 => world.retain(disk, rng.random_range(4..12)),
            16 if rng.random_bool(0.5) => world.vault().compact(None, rng.random_range(0.01..1.0)).map(drop),
            16 => {
                world.vault().recompress(None, rng.random_range(1..8), None, &Progress::default()).map(drop)
            }
            17 => world.vault().reindex().map(drop),
            18 => world.popular(&mut rng),
            _ => world.vault().gc(false).map(drop),
        };
        done.unwrap_or_else(|e| panic!("{when}: {e}"));
        world.check_some(&when, &mut rng);
        if rng.random_range(0..25) == 0 {
            world.check(&when);
        }
    }
    world.check(&format!("policy {}, seed {seed}, end", vault % SMALL.len()));
    world.collect_and_verify(&format!("policy {}, seed {seed}, end", vault % SMALL.len()));
}
