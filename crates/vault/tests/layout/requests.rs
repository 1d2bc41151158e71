//! What operations ask of the store: hardly more with many snapshots of a disk than with few.

use crate::between::Between;
use crate::common::{backup, rng, seed};
use rand::rngs::StdRng;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{SimFs, SimStore};
use vault::{Policy, Vault, BALANCED};

const DISK: &str = "vm/vda";
const FEW: usize = 12;
/// So that the container table has several pages.
const MANY: usize = 600;
/// Operations of a kind. Their mean counts; names are looked at of one that has little to do beside: every fourth backup extends the
/// reference index, and others join hooks.
const TIMES: usize = 12;

const SMALL: Policy = Policy { segment_bytes: 64 << 10, group_bytes: 16 << 10, ..BALANCED };

/// A disk with so many snapshots, of each of which four blocks are new.
struct World {
    fs: SimFs,
    rng: StdRng,
    bytes: Vec<u8>,
}

impl World {
    fn new(snapshots: usize) -> World {
        let fs = SimFs::new(1);
        Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &SMALL).unwrap();
        let mut rng = rng(seed("what_operations_ask_hardly_grows_with_snapshots"));
        let mut bytes = vec![0; 1 << 20];
        rng.fill(&mut bytes[..]);
        let mut world = World { fs, rng, bytes };
        for _ in 0..snapshots {
            world.back_up();
        }
        world
    }

    /// The names of the objects that a process reads which does this.
    fn reads_of(&self, what: impl FnOnce(&Vault)) -> Vec<String> {
        let store = Between::counting(SimStore::open_on(self.fs.process()).unwrap());
        let reads = store.reads();
        what(&Vault::open(Arc::new(store)).unwrap());
        let reads = std::mem::take(&mut *reads.lock().unwrap());
        reads
    }

    fn back_up(&mut self) -> Vec<String> {
        for _ in 0..4 {
            let at = self.rng.random_range(0..self.bytes.len() / 4096) * 4096;
            self.rng.fill(&mut self.bytes[at..at + 4096]);
        }
        self.reads_of(|vault| {
            backup(vault, DISK, &self.bytes, SMALL).unwrap();
        })
    }

    fn delete(&self, choose: impl Fn(usize) -> usize) -> Vec<String> {
        let all = Vault::open(Arc::new(SimStore::open_on(self.fs.process()).unwrap())).unwrap();
        let all = all.snapshots(Some(DISK)).unwrap().snapshots;
        let id = all[choose(all.len())].entry.id.to_string();
        self.reads_of(|vault| drop(vault.delete(DISK, &[&id]).unwrap()))
    }

    /// What backups and deletions from the middle read, those first that read least.
    fn measure(&mut self) -> [Vec<Vec<String>>; 2] {
        let (mut backups, mut deletions) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            backups.push(self.back_up());
            deletions.push(self.delete(|snapshots| snapshots / 2));
        }
        [backups, deletions].map(|mut all| {
            all.sort_by_key(Vec::len);
            all
        })
    }
}

#[test]
fn what_operations_ask_hardly_grows_with_snapshots() {
    let (mut few, mut many) = (World::new(FEW), World::new(MANY));
    for ((what, few), many) in ["backup", "deletion"].into_iter().zip(few.measure()).zip(many.measure()) {
        let mean = |all: &[Vec<String>]| all.iter().map(Vec::len).sum::<usize>() as f64 / TIMES as f64;
        let (of_few, of_many) = (mean(&few), mean(&many));
        println!("{what}: {of_few:.1} reads with {FEW} snapshots, {of_many:.1} with {MANY}");
        assert!(of_many / of_few < 1.3, "{what}: {of_few:.1} and {of_many:.1} reads\n{few:#?}\n{many:#?}");
        let many = &many[TIMES / 4];
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for page in many.iter().filter(|name| name.contains("/pages/")) {
            *times.entry(page).or_default() += 1;
        }
        assert!(times.values().all(|times| *times == 1), "{what}: {times:?}");
        assert!(times.len() <= 6, "{what}: {times:?}");
        // A reverse pass asks the reference index of older snapshots.
        let asks_older = many.iter().any(|name| name.contains("/snapshots/"));
        assert!(what == "deletion" || !asks_older, "{what}: {many:#?}");
    }
}
