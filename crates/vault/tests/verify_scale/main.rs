//! Verification takes as long as what is stored, however many snapshots a disk has; a restore of the oldest one reads the
//! recipes of many at a time.
#![allow(clippy::unwrap_used)]

mod chain;
#[path = "../common/mod.rs"]
mod common;
mod memory_store;

use common::restore;
use memory_store::MemoryStore;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::ObjectStore;
use vault::{Progress, RepairOptions, Vault, VerifyReport, BALANCED};

struct Scale {
    store: Arc<MemoryStore>,
    vault: Vault,
    newest: Vec<u8>,
}

impl Scale {
    fn new(snapshots: u32) -> Scale {
        Scale::changing(snapshots, chain::CHUNKS)
    }

    /// Only so many of its chunks change.
    fn changing(snapshots: u32, chunks: usize) -> Scale {
        let store = Arc::new(MemoryStore::default());
        let vault = Vault::init(store.clone(), &BALANCED).unwrap();
        let newest = chain::create(&store, vault.id(), snapshots, chunks);
        store.take_counts();
        Scale { store, vault, newest }
    }

    /// Verifies. Returns what was found, calls of the store, and bytes read.
    fn verify(&self, data: bool) -> (VerifyReport, u64, u64) {
        let report = self.vault.verify(None, data, &Progress::default()).unwrap();
        let (calls, bytes) = self.store.take_counts();
        (report, calls, bytes)
    }

    /// Processor time of all threads for verifying so often that all disks together have as many snapshots.
    fn time(&self, snapshots: u32, data: bool) -> Duration {
        let before = processor_time();
        (0..MOST / snapshots).for_each(|_| drop(self.verify(data)));
        processor_time() - before
    }
}

/// One test at a time: the others would count as time of this one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all threads of this process have used.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program, in parentheses, may have spaces.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    let ticks = |n: usize| fields[n].parse::<u64>().unwrap();
    Duration::from_secs_f64((ticks(11) + ticks(12)) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Snapshots of the longest disk.
const MOST: u32 = 10_000;
/// Processor time for a snapshot may grow by caches that are missed and trees that are deeper, but not tenfold as where each
/// snapshot is compared with each. It is the only measure here that other programs on the machine have a part in.
const SLOWER_MAX: f64 = 2.0;

/// Every snapshot was traced to the end of its chain: 161,000 calls for a disk with 2,000 snapshots of 64 KiB.
#[test]
fn calls_and_time_grow_with_the_snapshots_and_not_faster() {
    let _alone = alone();
    let (mut per_snapshot, mut times) = (Vec::new(), Vec::new());
    for snapshots in [100, 1000, MOST] {
        let scale = Scale::new(snapshots);
        let (report, calls, bytes) = scale.verify(false);
        assert_eq!(report.damaged, []);
        assert_eq!((report.snapshots, report.containers), (u64::from(snapshots), u64::from(snapshots)));
        println!("{snapshots} snapshots: {calls} calls, {bytes} bytes read");
        per_snapshot.push((calls as f64 / f64::from(snapshots), bytes as f64 / f64::from(snapshots)));
        times.push(scale.time(snapshots, false));
    }
    let (few, many) = (per_snapshot[0], per_snapshot[2]);
    assert!(many.0 < few.0 * 1.1 && many.1 < few.1 * 1.1, "{per_snapshot:?}");
    println!("processor time for {MOST} snapshots: {times:.2?}");
    assert!(times[2] < times[1].mul_f64(SLOWER_MAX), "{times:?}");
}

/// The same with the data, and where something is damaged: the second pass, over the summaries, is linear as well.
#[test]
fn damage_is_told_of_with_as_many_calls() {
    let _alone = alone();
    let (mut per_snapshot, mut times) = (Vec::new(), Vec::new());
    for snapshots in [100, 1000, MOST] {
        let scale = Scale::new(snapshots);
        assert_eq!(restore(&scale.vault, chain::DISK, "latest").unwrap(), scale.newest);
        scale.store.take_counts();
        assert_eq!(scale.verify(true).0.damaged, []);
        scale.damage_data_of_first();
        let (report, calls, _) = scale.verify(true);
        let [damage] = &report.damaged[..] else { panic!("{:?}", report.damaged) };
        // The chunks of the first container are overwritten one by one; the last one goes with snapshot 17.
        let affected: Vec<String> = (1..=16).map(|n| format!("{}@{n:016x}", chain::DISK)).collect();
        assert_eq!(damage.snapshots, affected);
        println!("{snapshots} snapshots, one container damaged: {calls} calls");
        per_snapshot.push(calls as f64 / f64::from(snapshots));
        times.push(scale.time(snapshots, true));
    }
    assert!(per_snapshot[2] < per_snapshot[0] * 1.1, "{per_snapshot:?}");
    println!("processor time for {MOST} snapshots: {times:.2?}");
    assert!(times[2] < times[1].mul_f64(SLOWER_MAX), "{times:?}");
}

/// The recipes of a chain were read one after the other: two requests for each newer snapshot.
#[test]
fn recipes_of_a_chain_are_read_together() {
    let _alone = alone();
    for snapshots in [200, 600] {
        // The last chunk of the oldest snapshot stands in the newest one.
        let scale = Scale::changing(snapshots, chain::CHUNKS - 1);
        scale.store.slow_down(2);
        let oldest = format!("{:016x}", 1);
        assert!(restore(&scale.vault, chain::DISK, &oldest).unwrap() == chain::oldest());
        let (calls, rounds) = (scale.store.take_counts().0, scale.store.rounds());
        println!("{snapshots} snapshots: {calls} calls, recipes were waited for {rounds} times");
        assert!(rounds < u64::from(snapshots) / 2, "{rounds} for {snapshots} snapshots");
    }
}

/// The manifest was read for each snapshot whose recipe is lost: minutes for 32,768 of them.
#[test]
fn repair_reads_no_manifest_for_each_lost_recipe() {
    let _alone = alone();
    let mut per_snapshot = Vec::new();
    for snapshots in [100, 2000] {
        let scale = Scale::new(snapshots);
        scale.lose_recipes();
        let options = RepairOptions { data: true, ..RepairOptions::default() };
        let report = scale.vault.repair(&options, &Progress::default()).unwrap();
        let (calls, bytes) = scale.store.take_counts();
        assert_eq!((report.recipes, report.after.len()), (0, snapshots as usize));
        println!("{snapshots} recipes lost: {calls} calls, {bytes} bytes read");
        per_snapshot.push((calls as f64 / f64::from(snapshots), bytes as f64 / f64::from(snapshots)));
    }
    let (few, many) = (per_snapshot[0], per_snapshot[1]);
    assert!(many.0 < few.0 * 1.1 && many.1 < few.1 * 1.1, "{per_snapshot:?}");
}

impl Scale {
    fn lose_recipes(&self) {
        let mut lost = Vec::new();
        let list = self.store.list("disks/", &mut |e| {
            lost.push(e.name);
            Ok(())
        });
        list.unwrap();
        for name in lost.iter().filter(|n| n.ends_with(".root") || n.ends_with(".pages")) {
            self.store.delete(name).unwrap();
        }
        self.store.take_counts();
    }

    fn damage_data_of_first(&self) {
        let mut first = None;
        self.store
            .list("disks/", &mut |e| {
                first = first.take().or(Some(e.name).filter(|n| n.ends_with("/1-0.1.data")));
                Ok(())
            })
            .unwrap();
        let name = first.unwrap();
        let mut bytes = self.store.read(&name, u64::MAX).unwrap();
        bytes[4096..4096 * 17].fill(0xee);
        self.store.put(&name, &[&bytes]).unwrap();
        self.store.take_counts();
    }
}
