//! What all tests of the binary share: running it, and disks to give it.
#![allow(dead_code, unused_imports)]

mod child;
pub mod commands;
mod disks;
pub mod guest_agent;
pub mod libvirt;
mod machine;
pub mod mounted;
pub mod nbd;
mod peak;
pub mod qemu;
pub mod relay;

pub use child::{Child, Ended};
pub use disks::{change, fresh, random, Scattered};
pub use machine::{qemu_img, qemu_io, LoopDevice, Mount};
pub use peak::peak;

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Exit codes of the command line.
pub const DONE: i32 = 0;
pub const FAILED: i32 = 1;
pub const USAGE: i32 = 2;
pub const DAMAGED: i32 = 3;
pub const REFUSED: i32 = 4;
pub const INTERRUPTED: i32 = 130;

/// A number from the environment.
pub fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(otherwise)
}

/// A vault in a temporary directory, and room for files beside it.
pub struct Bench {
    pub dir: TempDir,
    pub store: PathBuf,
    /// What the binary's environment has more than ours.
    pub env: Vec<(OsString, OsString)>,
}

impl Bench {
    /// With a vault of a policy.
    pub fn new(policy: &str) -> Self {
        Self::new_in(&std::env::temp_dir(), policy)
    }

    /// With a vault of a policy, below a directory.
    pub fn new_in(parent: &Path, policy: &str) -> Self {
        let bench = Self::bare_in(parent);
        bench.done(&["init", "--policy", policy]);
        bench
    }

    /// Without a vault.
    pub fn bare() -> Self {
        Self::bare_in(&std::env::temp_dir())
    }

    /// The same, below a directory.
    pub fn bare_in(parent: &Path) -> Self {
        let dir = tempfile::tempdir_in(parent).unwrap();
        let store = dir.path().join("vault");
        Bench { dir, store, env: Vec::new() }
    }

    /// A path beside the vault.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path beside the vault, as an argument.
    pub fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    /// Writes a file beside the vault. Returns its path as an argument.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.arg(name)
    }

    /// The binary on this vault.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = sapwood(&self.store, args);
        command.envs(self.env.iter().cloned());
        command
    }

    /// Runs it to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ended {
        Child::start(self.command(args), &line_of(args)).wait()
    }

    /// Runs it, and it must succeed without a word on standard error.
    pub fn done<S: AsRef<OsStr>>(&self, args: &[S]) -> Ended {
        let ended = self.run(args);
        ended.expect_done();
        ended
    }

    /// Runs it with `--json`. It must succeed, and its output is exactly one object.
    pub fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Value {
        let mut all = vec![OsStr::new("--json")];
        all.extend(args.iter().map(AsRef::as_ref));
        self.done(&all).json()
    }

    /// Runs it. It must fail with `code` and one line on standard error that says all of `said`.
    pub fn fails<S: AsRef<OsStr>>(&self, args: &[S], code: i32, said: &[&str]) -> Ended {
        let ended = self.run(args);
        ended.expect_failure(code, said);
        ended
    }

    /// Backs a disk up, whatever has become of it. Returns the snapshot's id.
    pub fn backup(&self, disk: &str, source: &str) -> String {
        self.json(&["backup", disk, source, "--force"])["snapshot"].as_str().unwrap().to_string()
    }

    /// A snapshot's bytes, through a pipe.
    pub fn restored(&self, snapshot: &str) -> Vec<u8> {
        let ended = self.run(&["-q", "restore", snapshot, "-"]);
        assert_eq!(ended.code(), Some(DONE), "{ended}");
        ended.stdout
    }

    /// Ids of all snapshots of a disk, oldest first; none where there is no such disk.
    pub fn snapshots(&self, disk: &str) -> Vec<String> {
        self.all_snapshots().into_iter().filter(|(of, _)| of == disk).map(|(_, id)| id).collect()
    }

    /// Disk and id of all snapshots.
    pub fn all_snapshots(&self) -> Vec<(String, String)> {
        self.list(&["snapshots"])
    }

    fn list(&self, args: &[&str]) -> Vec<(String, String)> {
        let listed = self.json(args);
        let text = |v: &Value| v.as_str().unwrap().to_string();
        let all = listed["snapshots"].as_array().unwrap();
        all.iter().map(|s| (text(&s["disk"]), text(&s["snapshot"]))).collect()
    }

    /// How many objects there are, but for the names, manifests and commit records of disks, and what verifications leave: a command that failed leaves as many as
    /// there were, and perhaps an empty disk.
    pub fn objects(&self) -> usize {
        let mut files = files_below(&self.store.join("objects"));
        files.retain(|f| {
            let is_record = f.parent().is_some_and(|dir| dir.ends_with("commits"));
            f.file_name() != Some(OsStr::new("manifest"))
                && !f.ends_with("objects/verifications")
                && !is_record
                && !f.starts_with(self.store.join("objects/names"))
        });
        files.len()
    }

    /// Nothing is damaged, with every chunk read.
    pub fn verify(&self) {
        self.done(&["-q", "verify", "--data"]);
    }

    /// Collects twice: the second time there is nothing left to find.
    pub fn collect(&self) {
        self.done(&["gc"]);
        let again = self.json(&["gc"]);
        for field in ["orphans", "dead_sessions", "waiting_snapshots"] {
            assert_eq!(again[field], 0, "{field} after gc: {again}");
        }
        for dir in ["tmp", "objects/sessions", "objects/readers", "objects/claims", "objects/retiring"] {
            assert_eq!(files_below(&self.store.join(dir)), Vec::<PathBuf>::new(), "left in {dir} after gc");
        }
    }

    /// The containers' data objects.
    pub fn data_objects(&self) -> Vec<PathBuf> {
        let mut files = files_below(&self.store.join("objects"));
        files.retain(|f| f.extension() == Some(OsStr::new("data")));
        files
    }
}

/// The binary on a store; `SAPWOOD_BINARY` tests another one than that of this build.
pub fn sapwood<S: AsRef<OsStr>>(store: &Path, args: &[S]) -> Command {
    let built = env!("CARGO_BIN_EXE_sapwood");
    let mut command = Command::new(std::env::var_os("SAPWOOD_BINARY").unwrap_or(built.into()));
    command.env("SAPWOOD_STORE", store).args(args).stdin(Stdio::null());
    command
}

/// Arguments as one line, for messages.
pub fn line_of<S: AsRef<OsStr>>(args: &[S]) -> String {
    args.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// All files below a directory; none where it is missing.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files
}
