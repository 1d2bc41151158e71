//! What must be in a vault on which processes work together, and the actions that they take.

mod action;

pub use action::{Action, Task};

use crate::common::{change, fresh, Bench, Ended, DONE, FAILED, REFUSED};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Said of what somebody deletes meanwhile; collection takes a disk away with its last snapshot.
const GONE: [&str; 3] = ["there is no disk", "there is no such snapshot", "has just been deleted"];

/// Name, size at first, and how often it is backed up, of each disk.
const DISKS: [(&str, usize, u32); 4] =
    [("vm/a", 300 << 10, 3), ("vm/b", 1 << 20, 3), ("vm/c", 3 << 20, 2), ("vm/large", 9 << 20, 1)];

/// From so many snapshots on, deletions become frequent.
const SNAPSHOTS_WANTED: usize = 12;

/// How long a process stands still that is made to.
const PAUSE: Duration = Duration::from_millis(100);

/// A snapshot: `vm/disk` and id.
pub type Name = (String, String);

/// A vault, and the content of everything that was acknowledged.
pub struct World {
    pub bench: Bench,
    pub rng: StdRng,
    seed: u64,
    disks: BTreeMap<String, Arc<Vec<u8>>>,
    snapshots: BTreeMap<Name, Arc<Vec<u8>>>,
    /// How processes have ended.
    tally: Tally,
    /// What was done in each round so far.
    rounds: Vec<String>,
}

/// Rounds that are shown before the one that failed.
const ROUNDS_SHOWN: usize = 3;

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = self.rounds.len().saturating_sub(ROUNDS_SHOWN + 1);
            println!("{}", self.rounds[shown..].join("\n"));
            if std::env::var_os("SAPWOOD_KEEP").is_some() {
                self.bench.dir.disable_cleanup(true);
                println!("kept: {}", self.bench.dir.path().display());
            }
        }
    }
}

/// Counts by what was done and how it ended.
pub type Tally = BTreeMap<String, u64>;

impl World {
    /// A vault in a directory below `parent`.
    pub fn new(parent: &Path, seed: u64, policy: &str) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let bench = Bench::new_in(parent, policy);
        let disks = DISKS.map(|(disk, bytes, _)| (disk.to_string(), Arc::new(fresh(bytes, &mut rng)))).into();
        World { bench, rng, seed, disks, snapshots: BTreeMap::new(), tally: Tally::new(), rounds: Vec::new() }
    }

    /// Several processes at once, some of them stopped; then everything is looked at.
    pub fn round(&mut self, no: u64) {
        let when = format!("seed {} round {no}", self.seed);
        let tasks = self.tasks(no);
        // Shown if something fails.
        self.rounds.push(format!(
            "round {no}: {}",
            tasks.iter().map(Task::to_string).collect::<Vec<_>>().join("; ")
        ));
        let before = self.snapshots.clone();
        let ended = self.carry_out(tasks);
        self.judge(&when, &ended);
        self.settle(&when, &ended);
        for (task, e) in ended.iter().filter(|(t, e)| t.restores() && e.code() == Some(DONE)) {
            self.compare_target(&when, task, e, &before);
        }
        for (task, _) in &ended {
            let _ = std::fs::remove_file(&task.target);
        }
    }

    fn tasks(&mut self, round: u64) -> Vec<Task> {
        let mut actions: Vec<Action> = Vec::new();
        if self.rng.random_bool(0.1) {
            // A disk that two backups make at once.
            let disk = format!("vm/new{round}");
            self.disks.insert(disk.clone(), Arc::new(fresh(100 << 10, &mut self.rng)));
            self.change(&disk);
            actions.extend([Action::Backup(disk.clone()), Action::Backup(disk)]);
        }
        for _ in 0..self.rng.random_range(2..=5) - actions.len() {
            let action = self.action();
            if let Action::Backup(disk) = &action {
                // Two at once of the same disk: seldom, and never three.
                match actions.iter().filter(|a| **a == action).count() {
                    0 => self.change(disk),
                    1 if self.rng.random_bool(0.5) => {}
                    _ => continue,
                }
            }
            actions.push(action);
        }
        let target = |n| self.bench.path(&format!("target{n}"));
        let targets: Vec<_> = (0..actions.len()).map(target).collect();
        let mut tasks: Vec<Task> = Vec::new();
        for (action, target) in actions.into_iter().zip(targets) {
            let at = self.moment();
            let signals = match self.rng.random_range(0..100) {
                0..25 => vec![(at, Signal::KILL)],
                25..33 => vec![(at, Signal::INT)],
                // Whatever it was about to do, it does after the others.
                33..50 => vec![(at, Signal::STOP), (at + PAUSE, Signal::CONT)],
                _ => Vec::new(),
            };
            tasks.push(Task { action, target, signals });
        }
        tasks
    }

    /// Soon, where disks are fast, or later, where they are not.
    fn moment(&mut self) -> Duration {
        let latest = if self.rng.random_bool(0.5) { 60_000 } else { 15_000 };
        Duration::from_micros(self.rng.random_range(0..latest))
    }

    fn action(&mut self) -> Action {
        let many = self.snapshots.len() > SNAPSHOTS_WANTED;
        match self.rng.random_range(0..100) {
            0..40 => Action::Backup(self.disk()),
            40..64 => match self.some_snapshot() {
                Some(name) if many || self.rng.random_bool(0.5) => Action::Delete(name),
                _ => Action::Backup(self.disk()),
            },
            64..78 => match self.some_snapshot() {
                Some((disk, _)) if self.rng.random_bool(0.3) => Action::RestoreLatest(disk),
                Some(name) => Action::Restore(name),
                None => Action::Backup(self.disk()),
            },
            78..86 => Action::Gc,
            86..91 => Action::Compact(self.rng.random_range(1..60)),
            91..96 => Action::Verify,
            _ => Action::Reindex,
        }
    }

    fn disk(&mut self) -> String {
        let all: u32 = DISKS.iter().map(|d| d.2).sum();
        let mut n = self.rng.random_range(0..all);
        let at = DISKS.iter().position(|d| {
            let hit = n < d.2;
            n = n.wrapping_sub(d.2);
            hit
        });
        DISKS[at.unwrap()].0.to_string()
    }

    fn some_snapshot(&mut self) -> Option<Name> {
        let n = self.snapshots.len();
        (n > 0).then(|| self.rng.random_range(0..n)).and_then(|n| self.snapshots.keys().nth(n).cloned())
    }

    fn change(&mut self, disk: &str) {
        // Now and then it becomes what another one is: clones share whole segments.
        let from = match self.rng.random_range(0..4) {
            0 => self.disk(),
            _ => disk.to_string(),
        };
        let mut content = self.disks[&from].as_ref().clone();
        if from == disk {
            change(&mut content, &mut self.rng);
        }
        self.bench.file(&source_of(disk), &content);
        self.disks.insert(disk.to_string(), Arc::new(content));
    }

    /// Starts all, sends the signals when they are due, and waits for all.
    fn carry_out(&self, tasks: Vec<Task>) -> Vec<(Task, Ended)> {
        let start = Instant::now();
        let children: Vec<_> = tasks.iter().map(|t| t.start(&self.bench)).collect();
        let mut signals: Vec<_> = Vec::new();
        for (task, child) in tasks.iter().zip(&children) {
            signals.extend(task.signals.iter().map(|(at, signal)| (*at, *signal, child)));
        }
        signals.sort_by_key(|(at, ..)| *at);
        for (at, signal, child) in signals {
            std::thread::sleep(at.saturating_sub(start.elapsed()));
            child.signal(signal);
        }
        let ended: Vec<Ended> = children.into_iter().map(|c| c.wait()).collect();
        tasks.into_iter().zip(ended).collect()
    }

    /// Every process has ended in a way that it may.
    fn judge(&mut self, when: &str, ended: &[(Task, Ended)]) {
        for (task, e) in ended {
            *self.tally.entry(format!("{} {}", task.action.kind(), outcome(e))).or_default() += 1;
            let lines = e.stderr.lines().count();
            assert!(lines <= 1 && !e.stderr.contains("panicked"), "{when}: {e}");
            assert!(!e.stderr.contains("damaged"), "{when}: {e}");
            if task.may_end_stopped(e) {
                continue;
            }
            let others = || ended.iter().filter(|(t, _)| !std::ptr::eq(t, task)).map(|(t, _)| &t.action);
            let deleted = |name: &Name| others().any(|a| matches!(a, Action::Delete(n) if n == name));
            let may_fail = match &task.action {
                Action::Backup(_) if others().any(|a| *a == task.action) => {
                    e.code() == Some(REFUSED) && e.stderr.contains("locked by")
                }
                Action::Restore(name) | Action::Delete(name) if deleted(name) => {
                    e.code() == Some(FAILED) && GONE.iter().any(|said| e.stderr.contains(said))
                }
                // All of the disk's snapshots may be going.
                Action::RestoreLatest(disk) => {
                    e.code() == Some(FAILED)
                        && (e.stderr.contains("the disk has 0 snapshots") || e.stderr.contains(GONE[0]))
                        && self.snapshots.keys().filter(|n| n.0 == *disk).all(deleted)
                }
                _ => false,
            };
            assert!(e.code() == Some(DONE) || may_fail, "{when}: {e}");
        }
        for (task, _) in ended.iter().filter(|(t, _)| matches!(t.action, Action::Backup(_))) {
            let of_disk: Vec<_> = ended.iter().filter(|(t, _)| t.action == task.action).collect();
            let undisturbed = of_disk.iter().all(|(t, _)| t.stop().is_none());
            assert!(
                !undisturbed || of_disk.iter().any(|(_, e)| e.code() == Some(DONE)),
                "{when}: all backups of {:?} were refused",
                task.action
            );
        }
    }

    /// What is listed is what was acknowledged, but for what was stopped half way: that is there whole or not at all.
    fn settle(&mut self, when: &str, ended: &[(Task, Ended)]) {
        let (mut doubtful, mut begun) = (BTreeSet::new(), Vec::new());
        for (task, e) in ended {
            match (&task.action, e.code()) {
                (Action::Backup(disk), Some(DONE)) => {
                    let id = e.json()["snapshot"].as_str().unwrap().to_string();
                    self.snapshots.insert((disk.clone(), id), self.disks[disk].clone());
                }
                // Refused: it was not begun.
                (Action::Backup(_), Some(REFUSED)) => {}
                (Action::Backup(disk), _) => begun.push(disk.clone()),
                (Action::Delete(name), _) => {
                    doubtful.insert(name.clone());
                }
                _ => {}
            }
        }
        let listed: BTreeSet<Name> = self.bench.all_snapshots().into_iter().collect();
        for name in &listed {
            if self.snapshots.contains_key(name) {
                continue;
            }
            let (disk, id) = name;
            let at = begun.iter().position(|d| d == disk);
            let at = at.unwrap_or_else(|| panic!("{when}: {disk}@{id} is listed and was never begun"));
            begun.swap_remove(at);
            let content = self.disks[disk.as_str()].clone();
            assert!(
                self.bench.restored(&format!("{disk}@{id}")) == *content,
                "{when}: {disk}@{id} is not whole"
            );
            self.snapshots.insert(name.clone(), content);
        }
        for (task, e) in ended {
            if let (Action::Delete(name), Some(DONE)) = (&task.action, e.code()) {
                assert!(!listed.contains(name), "{when}: {name:?} was deleted and is listed");
            }
        }
        self.snapshots.retain(|name, _| {
            let there = listed.contains(name);
            assert!(there || doubtful.contains(name), "{when}: {name:?} is lost");
            there
        });
    }

    /// What a restore has written at the same time as everything else is what its snapshot was: it may be gone by now.
    fn compare_target(&self, when: &str, task: &Task, e: &Ended, before: &BTreeMap<Name, Arc<Vec<u8>>>) {
        let report = e.json();
        let name = |field: &str| report[field].as_str().unwrap().to_string();
        let name = (name("disk"), name("snapshot"));
        let content = self.snapshots.get(&name).or_else(|| before.get(&name));
        let content = content.unwrap_or_else(|| panic!("{when}: {e}: there was no such snapshot"));
        assert!(std::fs::read(&task.target).unwrap() == **content, "{when}: {e}: gave something else");
    }

    /// Restores some snapshots, or all, and compares them.
    pub fn compare(&mut self, when: &str, all: bool) {
        let names: Vec<Name> = if all {
            self.snapshots.keys().cloned().collect()
        } else {
            self.some_snapshot().into_iter().collect()
        };
        for name in names {
            let got = self.bench.restored(&format!("{}@{}", name.0, name.1));
            assert!(got == *self.snapshots[&name], "{when}: {name:?} differs");
        }
    }

    /// Deletes everything: no container is left. Returns how processes have ended.
    pub fn end(mut self) -> Tally {
        let mut by_disk: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (disk, id) in std::mem::take(&mut self.snapshots).into_keys() {
            by_disk.entry(disk.clone()).or_default().push(format!("{disk}@{id}"));
        }
        for names in by_disk.into_values() {
            let mut args = vec!["delete".to_string()];
            args.extend(names);
            self.bench.done(&args);
        }
        self.bench.collect();
        assert_eq!(
            self.bench.data_objects(),
            Vec::<std::path::PathBuf>::new(),
            "seed {}: data left",
            self.seed
        );
        self.bench.verify();
        std::mem::take(&mut self.tally)
    }
}

fn outcome(e: &Ended) -> String {
    match (e.code(), e.status.signal()) {
        (Some(DONE), _) => "done".into(),
        (Some(code), _) => format!("ended with {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or(0)),
    }
}

/// The file that a disk is backed up from.
pub fn source_of(disk: &str) -> String {
    disk.replace('/', "-")
}
