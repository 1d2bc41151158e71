//! A small vault or a file, a command on it, and what must hold after a fault has met the command.

use super::calls::Call;
use super::tracer::{self, Fault, Run};
use crate::common::{random, sapwood, Bench, DAMAGED, DONE};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

/// The exit code of a program that panicked.
const PANICKED: i32 = 101;

/// What is met by faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A later backup of a disk.
    Backup,
    /// The first one of a disk.
    FirstBackup,
    /// Of a snapshot to a new file.
    Restore,
    /// Of the snapshot in the middle.
    Delete,
    /// After a backup that was killed.
    Gc,
    /// Every chunk.
    Verify,
    /// Of a file without a vault, as the three below.
    Mzip,
    Munzip,
    MtarMigrate,
    MtarRestore,
}

impl Command {
    /// Whether it makes one file of another one, and no vault is there.
    fn is_of_files(self) -> bool {
        matches!(self, Command::Mzip | Command::Munzip | Command::MtarMigrate | Command::MtarRestore)
    }
}

/// The vault as it is before the command; each run works on a copy.
pub struct Scene {
    command: Command,
    bench: Bench,
    /// Disk, id and content of the snapshots there are.
    snapshots: Vec<(&'static str, String, Vec<u8>)>,
}

/// What the disk holds at its `version`.
fn content(version: u64) -> Vec<u8> {
    let mut content = random(600_001, 1);
    for at in 0..version as usize {
        content[at * 100_000..][..40_000].copy_from_slice(&random(40_000, 10 + at as u64));
    }
    content
}

/// The same with a byte of every few pages changed: similar, not equal.
fn changed(mut content: Vec<u8>) -> Vec<u8> {
    content.iter_mut().step_by(20_000).for_each(|b| *b ^= 1);
    content
}

impl Scene {
    pub fn new(command: Command) -> Scene {
        if command.is_of_files() {
            return Scene::of_files(command);
        }
        let bench = Bench::new("balanced");
        let mut snapshots = Vec::new();
        for version in 0..3 {
            let source = bench.file("source", &content(version));
            snapshots.push(("vm/a", bench.backup("vm/a", &source), content(version)));
        }
        let other = random(200_000, 2);
        let source = bench.file("source", &other);
        snapshots.push(("vm/b", bench.backup("vm/b", &source), other));
        bench.file("source", &content(3));
        let scene = Scene { command, bench, snapshots };
        if command == Command::Gc {
            // A backup that dies before its commit: after that comes the reverse pass.
            let of_backup = Scene { command: Command::Backup, ..scene };
            let at = of_backup.calls().len() / 3;
            of_backup.run(&of_backup.bench.store, Some((at, Fault::Kill)));
            return Scene { command, ..of_backup };
        }
        scene
    }

    /// With a file that has equal and similar parts, and what is made of it.
    fn of_files(command: Command) -> Scene {
        let bench = Bench::bare();
        fs::create_dir(&bench.store).unwrap();
        let source = bench.file("source", &[content(0), changed(content(2)), changed(content(0))].concat());
        bench.done(&["-q", "mzip", &source]);
        bench.done(&["-q", "mtar", "migrate", &source, &bench.arg("source.mtar")]);
        Scene { command, bench, snapshots: Vec::new() }
    }

    fn args(&self) -> Vec<String> {
        let snapshot = |n: usize| format!("{}@{}", self.snapshots[n].0, self.snapshots[n].1);
        let at = |name: &str| self.bench.arg(name);
        let words = |words: &[&str]| words.iter().map(|w| w.to_string()).collect();
        match self.command {
            Command::Backup => words(&["-q", "backup", "vm/a", &self.bench.arg("source")]),
            Command::FirstBackup => words(&["-q", "backup", "vm/c", &self.bench.arg("source")]),
            Command::Restore => words(&["-q", "restore", &snapshot(1), &self.bench.arg("target")]),
            Command::Delete => words(&["-q", "delete", &snapshot(1)]),
            Command::Gc => words(&["-q", "gc"]),
            Command::Verify => words(&["-q", "verify", "--data"]),
            Command::Mzip => words(&["-q", "mzip", &at("source"), "-o", &at("target")]),
            Command::Munzip => words(&["-q", "munzip", &at("source.mz"), "-o", &at("target")]),
            Command::MtarMigrate => words(&["-q", "mtar", "migrate", &at("source"), &at("target")]),
            Command::MtarRestore => words(&["-q", "mtar", "restore", &at("source.mtar"), &at("target")]),
        }
    }

    fn run(&self, store: &Path, fault: Option<(usize, Fault)>) -> Run {
        tracer::run(sapwood(store, &self.args()), fault)
    }

    /// The command's system calls.
    pub fn calls(&self) -> Vec<Call> {
        let store = self.copy();
        let run = self.run(&store.path().join("vault"), None);
        self.clear();
        assert!(run.status.success(), "{:?} without a fault: {}", self.command, run.stderr);
        run.calls
    }

    fn copy(&self) -> tempfile::TempDir {
        let dir = tempfile::tempdir_in(testing::memory_dir()).unwrap();
        copy_dir(&self.bench.store, &dir.path().join("vault"));
        dir
    }

    fn clear(&self) {
        let _ = fs::remove_file(self.bench.path("target"));
    }

    /// Lets a fault meet the call of this number, and looks at what comes of it.
    pub fn meet(&self, no: usize, fault: Fault) {
        self.clear();
        let copy = self.copy();
        let store = copy.path().join("vault");
        let run = self.run(&store, Some((no, fault)));
        let hit = run.hit.as_ref().map_or("nothing".into(), |call| call.to_string());
        let story =
            format!("{:?}: call {no}, {hit}: {fault}: {}; stderr {:?}", self.command, run.status, run.stderr);
        println!("{story}");
        let code = run.status.code();
        let by_runtime =
            run.status.signal() == Some(libc::SIGABRT) && run.hit.as_ref().is_some_and(Call::is_memory);
        let panicked = code.is_none_or(|c| c == PANICKED) || run.stderr.contains("panicked");
        assert!(!panicked || by_runtime, "{story}");
        if run.hit.as_ref().is_some_and(Call::transfers) && fault == Fault::Short {
            assert_eq!(code, Some(DONE), "half of the bytes is no failure: {story}");
        }
        if self.command == Command::Verify && run.hit.as_ref().is_some_and(Call::changes_files) {
            assert_eq!(code, Some(DONE), "reading needs no writing: {story}");
        }
        if code == Some(DAMAGED) {
            assert_eq!(fault, Fault::Error(libc::EIO), "what is whole is called damaged: {story}");
        }
        if self.command.is_of_files() {
            let unlinks = run.hit.as_ref().is_some_and(|call| call.name() == Some("unlinkat"));
            return self.check_files(code == Some(DONE), fault == Fault::Kill || unlinks, &story);
        }
        self.check(&Bench { dir: copy, store, env: Vec::new() }, code == Some(DONE), &story);
    }

    /// There is all of the result or nothing of it, and the source is as it was.
    fn check_files(&self, done: bool, may_be_left: bool, story: &str) {
        let (bench, source) = (&self.bench, fs::read(self.bench.path("source")).unwrap());
        assert!(source == [content(0), changed(content(2)), changed(content(0))].concat(), "{story}");
        let target = bench.arg("target");
        if !Path::new(&target).exists() {
            assert!(!done, "it says that it is done: {story}");
        } else {
            let back = match self.command {
                Command::Mzip => bench.run(&["-q", "munzip", &target, "-c"]).stdout,
                Command::MtarMigrate => bench.run(&["-q", "mtar", "restore", &target, "-"]).stdout,
                _ => fs::read(&target).unwrap(),
            };
            assert!(back == source, "half a result has its name: {story}");
        }
        for entry in bench.dir.path().read_dir().unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.starts_with(".sapwood") {
                assert!(may_be_left, "{name} is left: {story}");
                fs::remove_file(bench.path(&name)).unwrap();
            }
        }
    }

    /// What must hold, whether the command has said that it is `done` or not.
    fn check(&self, bench: &Bench, done: bool, story: &str) {
        // Of what a reader saw through a fault, nothing stays: a whole vault verifies as one.
        let verified = bench.run(&["-q", "verify", "--data"]);
        assert_eq!(verified.code(), Some(DONE), "{verified}, after {story}");
        let listed = bench.all_snapshots();
        for (n, (disk, id, content)) in self.snapshots.iter().enumerate() {
            let is_there = listed.contains(&(disk.to_string(), id.clone()));
            let deleted = self.command == Command::Delete && n == 1;
            assert!(is_there || deleted, "{disk}@{id} is lost, after {story}");
            assert!(!(is_there && deleted && done), "{disk}@{id} was not deleted: {story}");
            if is_there {
                assert!(bench.restored(&format!("{disk}@{id}")) == *content, "{disk}@{id}, after {story}");
            }
        }
        let known = |id: &String| self.snapshots.iter().any(|s| s.1 == *id);
        let new: Vec<_> = listed.iter().filter(|(_, id)| !known(id)).collect();
        match self.command {
            Command::Backup | Command::FirstBackup => {
                assert!(new.len() <= 1 && (!done || new.len() == 1), "{new:?}: {story}");
                for (disk, id) in new {
                    assert!(bench.restored(&format!("{disk}@{id}")) == content(3), "{disk}@{id}: {story}");
                }
            }
            _ => assert!(new.is_empty(), "{new:?}: {story}"),
        }
        if self.command == Command::Restore {
            match fs::read(self.bench.path("target")) {
                Ok(bytes) => assert!(bytes == self.snapshots[1].2, "half a disk has its name: {story}"),
                Err(_) => assert!(!done, "{story}"),
            }
        }
        // And it goes on.
        let source = bench.file("source", &content(4));
        let id = bench.backup("vm/a", &source);
        bench.collect();
        assert!(bench.restored(&format!("vm/a@{id}")) == content(4), "the next backup, after {story}");
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target)
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}
