//! A vault on a simulated disk, with a model of what must be in it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use image::{Source, Target};
use rand::rngs::StdRng;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use store::{SimFs, SimStore};
use vault::{
    BackupOptions, Global, Policy, Progress, RetentionRules, Rewrite, SnapId, Vault, VaultError, BALANCED,
    CONVENTIONAL, REVERSE, VM_CENTRIC, VM_CENTRIC_BLOOM,
};

/// A disk in memory, to read.
pub struct Bytes(pub Arc<Vec<u8>>);

impl Source for Bytes {
    fn format(&self) -> &'static str {
        "raw"
    }
    fn size(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        let end = self.0.len() as u64;
        Ok((from < end).then_some(from..end))
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        let from = (offset as usize).min(self.0.len());
        let n = buf.len().min(self.0.len() - from);
        buf[..n].copy_from_slice(&self.0[from..from + n]);
        Ok(n)
    }
}

/// A disk in memory, to write.
#[derive(Clone, Default)]
pub struct Memory(pub Arc<Mutex<Vec<u8>>>);

impl Target for Memory {
    fn in_order(&self) -> bool {
        false
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> image::Result<()> {
        self.0.lock().unwrap()[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }
    fn finish(self: Box<Self>) -> image::Result<()> {
        Ok(())
    }
}

/// Restores a snapshot to memory.
pub fn restore(vault: &Vault, disk: &str, spec: &str) -> Result<Vec<u8>, VaultError> {
    let memory = Memory::default();
    let out = memory.clone();
    let target = move |size: u64, _: &[Range<u64>]| {
        *out.0.lock().unwrap() = vec![0; size as usize];
        Ok(Box::new(out) as Box<dyn Target>)
    };
    vault.restore(disk, spec, target, &Progress::default())?;
    let bytes = std::mem::take(&mut *memory.0.lock().unwrap());
    Ok(bytes)
}

/// Policies with everything small, so that little data makes many objects.
pub const SMALL: [Policy; 6] = [
    BALANCED_SMALL,
    Policy { rewrite_at: Rewrite::Fragmented { read_ratio: 16.0 }, index_at: 3, ..BALANCED_SMALL },
    Policy {
        segment_bytes: 64 << 10,
        group_bytes: 64 << 10,
        container_bytes: 64 << 10,
        index_at: 1,
        ..REVERSE
    },
    Policy {
        segment_bytes: 64 << 10,
        group_bytes: 16 << 10,
        container_bytes: 128 << 10,
        own_index_bytes: 1 << 20,
        global: Global::Chunks { sampled: 0, champions: 4 },
        ..CONVENTIONAL
    },
    Policy {
        segment_bytes: 64 << 10,
        group_bytes: 16 << 10,
        container_bytes: 128 << 10,
        chunking: BALANCED.chunking,
        ..VM_CENTRIC
    },
    Policy {
        segment_bytes: 64 << 10,
        group_bytes: 16 << 10,
        container_bytes: 128 << 10,
        chunking: BALANCED.chunking,
        ..VM_CENTRIC_BLOOM
    },
];

pub const BALANCED_SMALL: Policy = Policy {
    segment_bytes: 64 << 10,
    group_bytes: 16 << 10,
    container_bytes: 128 << 10,
    own_index_bytes: 1 << 20,
    // As many hooks in a small segment as in one of full size.
    global: Global::Chunks { sampled: 1, champions: 4 },
    index_at: 1,
    ..BALANCED
};

type Snapshots = BTreeMap<SnapId, Arc<Vec<u8>>>;

/// The simulated disk, the vault on it, and what was acknowledged.
pub struct World {
    pub fs: SimFs,
    policy: Policy,
    vault: Vault,
    disks: BTreeMap<&'static str, Arc<Vec<u8>>>,
    acknowledged: BTreeMap<String, Snapshots>,
    /// Deletions that were begun and not acknowledged.
    doubtful: Vec<SnapId>,
    /// The content of a backup that was begun and not acknowledged.
    begun: Vec<(String, Arc<Vec<u8>>)>,
    /// What was ever begun.
    past: Vec<Arc<Vec<u8>>>,
    /// Whether a process that was stopped cannot acknowledge anything any more, even if its change took effect.
    pub dies_silently: bool,
}

/// So few that small disks have pages of snapshots.
const RECENT_MAX: usize = 2;

impl World {
    pub fn new(seed: u64, policy: Policy) -> Self {
        let fs = SimFs::new(seed);
        let store = SimStore::create_on(fs.clone()).unwrap();
        let vault = Vault::init(Arc::new(store), &policy).unwrap().with_recent_max(RECENT_MAX);
        let disks = BTreeMap::from([("a/x", Arc::new(Vec::new())), ("b/x", Arc::new(Vec::new()))]);
        let (acknowledged, doubtful, begun, past) = Default::default();
        World { fs, policy, vault, disks, acknowledged, doubtful, begun, past, dies_silently: false }
    }

    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    pub fn content(&self, disk: &str) -> Arc<Vec<u8>> {
        self.disks[disk].clone()
    }

    pub fn used_bytes(&self) -> u64 {
        self.fs.used_bytes()
    }

    /// Changes a disk a little, as a guest would; both disks draw from few different blocks.
    pub fn change(&mut self, disk: &'static str, rng: &mut StdRng) {
        let mut d = self.disks[disk].as_ref().clone();
        if d.is_empty() || rng.random_bool(0.05) {
            d.resize(rng.random_range(1..600 * 1024), 0);
        }
        for _ in 0..rng.random_range(0..20) {
            let at = rng.random_range(0..d.len()) & !4095;
            let end = (at + rng.random_range(1..5usize) * 4096).min(d.len());
            match rng.random_range(0..4) {
                0 => d[at..end].fill(0),
                1 => {
                    let kind = rng.random_range(0..30u64);
                    d[at..end].iter_mut().enumerate().for_each(|(n, b)| *b = ((n as u64 * kind) >> 3) as u8);
                }
                2 => {
                    let from = rng.random_range(0..=d.len() - (end - at)) & !4095;
                    d.copy_within(from..from + (end - at), at);
                }
                _ => rng.fill(&mut d[at..end]),
            }
        }
        self.disks.insert(disk, Arc::new(d));
    }

    /// Makes one disk as another is.
    pub fn copy(&mut self, to: &'static str, from: &'static str) {
        let content = self.content(from);
        self.disks.insert(to, content);
    }

    /// Makes a disk as one was at an earlier backup, whose snapshot may be deleted.
    pub fn go_back(&mut self, disk: &'static str, rng: &mut StdRng) {
        if !self.past.is_empty() {
            let content = self.past[rng.random_range(0..self.past.len())].clone();
            self.disks.insert(disk, content);
        }
    }

    /// How many snapshots of a disk are there.
    pub fn count(&self, disk: &str) -> usize {
        self.acknowledged.get(disk).map_or(0, BTreeMap::len)
    }

    /// A snapshot of each disk, any one, is as it was.
    pub fn check_some(&self, when: &str, rng: &mut StdRng) {
        for (disk, all) in self.acknowledged.iter().filter(|(_, all)| !all.is_empty()) {
            let (id, content) = all.iter().nth(rng.random_range(0..all.len())).unwrap();
            let bytes = restore(&self.vault, disk, &id.to_string())
                .unwrap_or_else(|e| panic!("{when}: {disk}@{id}: {e}"));
            assert!(**content == bytes, "{when}: {disk}@{id} differs");
        }
    }

    /// Fills a disk with what cannot be deduplicated.
    pub fn rewrite(&mut self, disk: &'static str, rng: &mut StdRng) {
        let mut d = self.disks[disk].as_ref().clone();
        rng.fill(&mut d[..]);
        self.disks.insert(disk, Arc::new(d));
    }

    pub fn backup(&mut self, disk: &'static str) -> Result<(), VaultError> {
        let content = self.content(disk);
        self.begun.push((disk.into(), content.clone()));
        self.past.push(content.clone());
        let options = BackupOptions { policy: Some(self.policy), ..BackupOptions::default() };
        let report =
            self.vault.backup(disk, Box::new(Bytes(content.clone())), &options, &Progress::default())?;
        if self.is_silent() {
            return Ok(());
        }
        self.begun.pop();
        self.acknowledged.entry(disk.into()).or_default().insert(report.snapshot.id, content);
        Ok(())
    }

    fn is_silent(&self) -> bool {
        self.dies_silently && self.fs.is_stopped()
    }

    /// Builds a popular set.
    pub fn popular(&self, rng: &mut StdRng) -> Result<(), VaultError> {
        let fraction = rng.random_range(0.01..1.0);
        self.vault.popular_build(fraction, &std::env::temp_dir()).map(drop)
    }

    pub fn is_empty(&self, disk: &str) -> bool {
        self.acknowledged.get(disk).is_none_or(|a| a.is_empty())
    }

    pub fn delete_one(&mut self, disk: &str, rng: &mut StdRng) -> Result<(), VaultError> {
        let Some(all) = self.acknowledged.get_mut(disk).filter(|a| !a.is_empty()) else { return Ok(()) };
        let id = *all.keys().nth(rng.random_range(0..all.len())).unwrap();
        self.doubtful.push(id);
        self.vault.delete(disk, &[&id.to_string()])?;
        if self.dies_silently && self.fs.is_stopped() {
            return Ok(());
        }
        self.doubtful.pop();
        all.remove(&id);
        Ok(())
    }

    /// Deletes all snapshots of a disk but the newest ones.
    pub fn retain(&mut self, disk: &str, last: u32) -> Result<(), VaultError> {
        let Some(all) = self.acknowledged.get_mut(disk).filter(|a| !a.is_empty()) else { return Ok(()) };
        let listed = self.vault.snapshots(Some(disk))?.snapshots;
        let go = listed.len().saturating_sub(last as usize);
        let go: Vec<SnapId> = listed[..go].iter().map(|s| s.entry.id).collect();
        self.doubtful.extend(&go);
        let rules = RetentionRules { last, ..RetentionRules::default() };
        let report = self.vault.retain(disk, &rules, &vault::utc, false)?;
        let deleted: BTreeSet<SnapId> = report.deletion.deleted.iter().map(|s| s.id).collect();
        assert_eq!(deleted, go.iter().copied().collect());
        if self.dies_silently && self.fs.is_stopped() {
            return Ok(());
        }
        self.doubtful.clear();
        go.iter().for_each(|id| drop(all.remove(id)));
        Ok(())
    }

    /// After a stop: the power comes back, or only the processes died.
    pub fn come_back(&mut self, power_cut: bool) {
        self.fs = if power_cut { self.fs.crash() } else { self.fs.restart() };
        let vault = Vault::open(Arc::new(SimStore::open_on(self.fs.clone()).unwrap())).unwrap();
        self.vault = vault.with_recent_max(RECENT_MAX);
    }

    /// Every acknowledged snapshot is there and equal; nothing else is, but for what was under way.
    pub fn check(&mut self, when: &str) {
        let listed = self.vault.snapshots(None).unwrap_or_else(|e| panic!("{when}: {e}")).snapshots;
        for s in &listed {
            let known = self.acknowledged.entry(s.disk.clone()).or_default();
            let bytes = restore(&self.vault, &s.disk, &s.entry.id.to_string())
                .unwrap_or_else(|e| panic!("{when}: {}@{}: {e}", s.disk, s.entry.id));
            match known.get(&s.entry.id) {
                Some(content) => assert!(**content == bytes, "{when}: {}@{} differs", s.disk, s.entry.id),
                None => {
                    let at = self.begun.iter().position(|(d, c)| *d == s.disk && **c == bytes);
                    assert!(at.is_some(), "{when}: {}@{} is nothing that was begun", s.disk, s.entry.id);
                    known.insert(s.entry.id, Arc::new(bytes));
                }
            }
        }
        for (disk, all) in &mut self.acknowledged {
            all.retain(|id, _| {
                let there = listed.iter().any(|s| s.disk == *disk && s.entry.id == *id);
                assert!(there || self.doubtful.contains(id), "{when}: {disk}@{id} is lost");
                there
            });
        }
        self.begun.clear();
        self.doubtful.clear();
    }

    /// `gc` works, the vault is clean afterwards, a second `gc` finds nothing, and a backup works.
    pub fn collect_and_verify(&mut self, when: &str) {
        let first = self.vault.gc(false).unwrap_or_else(|e| panic!("{when}: gc: {e}"));
        assert!(first.skipped.is_empty(), "{when}: gc skipped {:?}", first.skipped);
        let second = self.vault.gc(false).unwrap_or_else(|e| panic!("{when}: gc again: {e}"));
        assert_eq!((second.orphans, second.dead_sessions), (0, 0), "{when}: the first gc left orphans");
        let verified =
            self.vault.verify(None, true, &Progress::default()).unwrap_or_else(|e| panic!("{when}: {e}"));
        assert!(verified.damaged.is_empty(), "{when}: verify: {:?}", verified.damaged);
        self.check(when);
        self.backup("a/x").unwrap_or_else(|e| panic!("{when}: the next backup: {e}"));
        self.check(when);
    }
}
