//! Random work on a simulated disk that is stopped at some call, then loses its processes or its power.
//!
//! The oracle keeps for every object what it may hold: one thing where a call was acknowledged, two where
//! one was cut off. A failing seed is printed; `SEED=<n>` runs that one alone.

#![allow(clippy::unwrap_used)]

mod oracle;

use oracle::{Oracle, Random};
use store::{ObjectStore, Reserve, SimFs, SimStore};

/// Seeds of the random test, and lives (each ending in a stop) that each goes through.
const SEEDS: u64 = 120;
const LIVES: u64 = 30;

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..count).collect(),
    }
}

/// Prints which run failed.
struct Announce(String);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: {}", self.0);
        }
    }
}

#[test]
fn random_work() {
    let mut crashes = 0;
    for seed in seeds(SEEDS) {
        let _announce = Announce(format!("SEED={seed}"));
        let mut random = Random::new(seed);
        let mut fs = SimFs::new(seed);
        SimStore::create_on(fs.clone()).unwrap();
        let mut oracle = Oracle::new();
        for _ in 0..LIVES {
            let stop = 1 + random.below(80);
            fs.stop_after(stop);
            if let (Ok(one), Ok(two)) = (SimStore::open_on(fs.clone()), SimStore::open_on(fs.process())) {
                while !fs.is_stopped() {
                    let store = if random.below(2) == 0 { &one } else { &two };
                    oracle.step(&mut random, store, &fs);
                }
            }
            oracle.forget_holds();
            if random.below(3) == 0 {
                fs = fs.restart();
                oracle.check(&SimStore::open_on(fs.clone()).unwrap());
                continue;
            }
            fs = fs.crash();
            crashes += 1;
            let store = SimStore::open_on(fs.clone()).unwrap();
            oracle.check(&store);
            oracle.settle(&store);
            store.sweep().unwrap();
            assert!(fs.file_names("tmp").is_empty());
        }
    }
    println!("{crashes} crashes");
    assert!(crashes >= 2000 || std::env::var("SEED").is_ok());
}

/// Every call of a fixed piece of work is the last one before the power cut, with many tearings each.
#[test]
fn every_call() {
    let mut points = 0;
    for seed in seeds(25) {
        for n in 1.. {
            let _announce = Announce(format!("SEED={seed}, call {n}"));
            let fs = SimFs::new(seed * 1000 + n);
            let store = SimStore::create_on(fs.clone()).unwrap();
            let mut oracle = Oracle::new();
            fs.stop_after(n);
            oracle.fixed_work(&store, &fs);
            if !fs.is_stopped() {
                break;
            }
            oracle.forget_holds();
            drop(store);
            let fs = fs.crash();
            let store = SimStore::open_on(fs.clone()).unwrap();
            oracle.check(&store);
            store.sweep().unwrap();
            assert!(fs.file_names("tmp").is_empty());
            oracle.settle(&store);
            // What is left works on.
            oracle.fixed_work(&store, &fs);
            oracle.check(&store);
            points += 1;
        }
    }
    println!("{points} crash points");
    assert!(points >= 1000 || std::env::var("SEED").is_ok());
}

/// The same on a disk without a byte and an inode left, where everything is taken from the reserve: a power cut must not
/// leave a file in the reserve that is an object too, or the next one to take it would write into the object.
#[test]
fn every_call_with_the_reserve() {
    let mut points = 0;
    for seed in seeds(6) {
        for n in 1.. {
            let _announce = Announce(format!("SEED={seed}, call {n}"));
            let fs = SimFs::new(seed * 1000 + n);
            let store = SimStore::create_on(fs.clone()).unwrap().using(Reserve::Whole);
            let mut oracle = Oracle::new();
            fs.set_capacity(fs.used_bytes());
            fs.set_inodes(fs.used_inodes());
            fs.stop_after(n);
            oracle.fixed_work(&store, &fs);
            if !fs.is_stopped() {
                break;
            }
            oracle.forget_holds();
            drop(store);
            let fs = fs.crash();
            let store = SimStore::open_on(fs.clone()).unwrap().using(Reserve::Whole);
            oracle.check(&store);
            oracle.settle(&store);
            // Still full: what is left of the reserve serves again, and nothing that is there changes.
            for i in 0..6 {
                fs.set_capacity(fs.used_bytes());
                fs.set_inodes(fs.used_inodes());
                oracle.put_fresh(&store, &fs, &format!("q/{i}"), i);
                oracle.check(&store);
            }
            fs.set_capacity(u64::MAX);
            fs.set_inodes(usize::MAX);
            store.sweep().unwrap();
            assert!(fs.file_names("tmp").is_empty());
            store.fill_reserve().unwrap();
            assert_eq!(fs.file_names("reserve").len(), 60);
            oracle.fixed_work(&store, &fs);
            oracle.check(&store);
            points += 1;
        }
    }
    println!("{points} crash points");
    assert!(points >= 200 || std::env::var("SEED").is_ok());
}

/// Making a store can be cut off anywhere and made again.
#[test]
fn creation() {
    for seed in seeds(2) {
        for n in 1.. {
            let _announce = Announce(format!("SEED={seed}, call {n}"));
            let fs = SimFs::new(seed * 1000 + n);
            fs.stop_after(n);
            let created = SimStore::create_on(fs.clone());
            if !fs.is_stopped() {
                break;
            }
            drop(created);
            let fs = fs.crash();
            SimStore::create_on(fs.clone()).unwrap().put("a", &[b"x"]).unwrap();
            let fs = fs.crash();
            assert_eq!(SimStore::open_on(fs).unwrap().read("a", 1).unwrap(), b"x");
        }
    }
}

/// A swap whose process died before the directory was synced: whoever has loaded the new value may
/// rely on it, so a power cut must not take it back.
#[test]
fn a_loaded_value_stays() {
    let mut seen_new = 0;
    for seed in seeds(40) {
        for n in 1.. {
            let _announce = Announce(format!("SEED={seed}, call {n}"));
            let fs = SimFs::new(seed * 1000 + n);
            let store = SimStore::create_on(fs.clone()).unwrap();
            let tag = store.swap("a/manifest", None, b"old").unwrap();
            fs.stop_after(n);
            let swapped = store.swap("a/manifest", Some(tag), b"new");
            if !fs.is_stopped() {
                swapped.unwrap();
                break;
            }
            let fs = fs.restart();
            let (loaded, _) = SimStore::open_on(fs.clone()).unwrap().load("a/manifest").unwrap().unwrap();
            let fs = fs.crash();
            let (after, _) = SimStore::open_on(fs).unwrap().load("a/manifest").unwrap().unwrap();
            assert_eq!(after, loaded);
            seen_new += u64::from(loaded == b"new");
        }
    }
    assert!(seen_new > 0 || std::env::var("SEED").is_ok());
}

/// Whoever works on a copy of a disk, or on the disk that was copied, does nothing to the other one: not to what was
/// synced, not to what was not, and not to its processes.
#[test]
fn a_copy_of_a_disk_is_a_disk_of_its_own() {
    for seed in seeds(SEEDS) {
        let _announce = Announce(format!("SEED={seed}"));
        let mut random = Random::new(seed);
        let one = SimFs::new(seed);
        let store = SimStore::create_on(one.clone()).unwrap();
        let lease = store.lease("sessions/a", b"me").unwrap();
        let bytes: Vec<u8> = (0..5000).map(|_| random.below(256) as u8).collect();
        store.put("kept", &[&bytes]).unwrap();
        // Written, and not synced yet.
        let mut writer = store.writer("begun").unwrap();
        writer.append(&bytes).unwrap();
        one.stop_after(1 + random.below(3));
        let _ = store.put("stopped", &[&bytes]);
        let other = one.copy();
        assert_eq!((one.op_count(), one.used_bytes()), (other.op_count(), other.used_bytes()));
        // A stop, processes and their locks stay behind.
        let copied = SimStore::open_on(other.clone()).unwrap();
        assert!(!copied.is_leased("sessions/a").unwrap());
        assert_eq!(copied.read("kept", 1 << 20).unwrap(), bytes);

        let before = (one.op_count(), one.used_bytes(), one.used_inodes());
        copied.punch("kept", &[(0, 4096)]).unwrap();
        copied.put("new", &[b"x"]).unwrap();
        let other = other.crash();
        let copied = SimStore::open_on(other.clone()).unwrap();
        copied.delete("kept").unwrap();
        assert_eq!((one.op_count(), one.used_bytes(), one.used_inodes()), before);
        let one = one.restart();
        let store = SimStore::open_on(one.clone()).unwrap();
        assert_eq!(store.read("kept", 1 << 20).unwrap(), bytes);
        assert!(store.read("new", 10).is_err());
        store.punch("kept", &[(0, 4096)]).unwrap();
        store.put("newer", &[b"x"]).unwrap();
        drop(one.crash());
        assert_eq!(copied.read("new", 10).unwrap(), b"x");
        assert!(copied.read("newer", 10).is_err() && copied.read("kept", 10).is_err());
        drop((lease, writer));
    }
}
