//! A vault that the binary has mounted.

use super::{Bench, Child, Ended};
use rustix::process::{Pid, Signal};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// No change takes longer to be seen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}: still not so after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether this machine can mount at all; where it cannot, the test is reported as skipped.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let helper = Command::new("fusermount3").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match device.and(helper) {
        Ok(_) => true,
        Err(e) => {
            testing::skip("/dev/fuse and fusermount3 (fuse3)", e);
            false
        }
    }
}

/// Whether something is mounted on a directory.
pub fn is_mounted(path: &Path) -> bool {
    let above = path.parent().unwrap().metadata().unwrap().dev();
    path.metadata().map_or_else(|e| e.kind() == io::ErrorKind::NotConnected, |m| m.dev() != above)
}

/// A process that has a vault mounted. Dropped, it is killed, and its mount is removed.
pub struct Mounted {
    pub path: PathBuf,
    child: Option<Child>,
}

impl Mounted {
    /// Mounts a vault on a new directory of this name beside it.
    pub fn start(bench: &Bench, name: &str, options: &[&str]) -> Self {
        let path = bench.path(name);
        std::fs::create_dir_all(&path).unwrap();
        let mut args = vec!["mount", path.to_str().unwrap()];
        args.extend(options);
        Self::started(bench.command(&args), path)
    }

    /// Waits for the mount of a command.
    pub fn started(command: Command, path: PathBuf) -> Self {
        let mounted = Mounted { child: Some(Child::start(command, "mount")), path };
        until("mounting", || is_mounted(&mounted.path));
        mounted
    }

    /// The path of a file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The names in a directory, in order.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.file(directory)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.child.as_ref().unwrap().pid()
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        self.child.as_ref().unwrap().signal(signal);
    }

    /// Unmounts it as a user would.
    pub fn unmount(&self) {
        let status = Command::new("fusermount3").arg("-u").arg(&self.path).status().unwrap();
        assert!(status.success(), "fusermount3 -u: {status}");
    }

    /// Waits for the end of the process.
    pub fn wait(mut self) -> Ended {
        self.child.take().unwrap().wait()
    }

    /// Ends it by a signal. Nothing stays mounted.
    pub fn end(self) -> Ended {
        let path = self.path.clone();
        self.signal(Signal::TERM);
        let ended = self.wait();
        assert!(!is_mounted(&path), "{ended}: still mounted");
        ended
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            let mut command = Command::new("fusermount3");
            command.args(["-u", "-q", "-z"]).arg(&self.path);
            drop(command.stderr(Stdio::null()).status());
            drop(child);
        }
    }
}
