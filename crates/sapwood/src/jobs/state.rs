//! The state of jobs: one JSON file a job, written by rename after fsync, and one lock file a job.
//!
//! A run writes the state when it begins and when it ends. A state without an end whose lock is free is that
//! of a run that was killed.

use super::config::Config;
use anyhow::{Context as _, Result};
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use vault::VaultError;

/// What came of a run, or of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All is well.
    Done,
    /// Something failed.
    Failed,
    /// A signal stopped it.
    Interrupted,
}

impl Outcome {
    /// As JSON and the commands of jobs have it.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Failed => "failed",
            Outcome::Interrupted => "interrupted",
        }
    }
}

/// A disk in the last run of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskState {
    /// `vm/disk`; a machine that failed by its name.
    pub disk: String,
    /// What came of its backup.
    pub outcome: Outcome,
    /// The snapshot that was made.
    pub snapshot: Option<String>,
    /// What failed.
    pub why: Option<String>,
}

/// The last run of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobState {
    /// The job.
    pub job: String,
    /// The vault.
    #[serde(default)]
    pub store: String,
    /// The process that ran it.
    pub process: u32,
    /// Seconds since 1970.
    pub started: i64,
    /// Seconds since 1970; `None` while it runs, and if it was killed.
    pub ended: Option<i64>,
    /// `None` while it runs, and if it was killed.
    pub outcome: Option<Outcome>,
    /// What failed, disks included.
    #[serde(default)]
    pub failures: Vec<String>,
    /// In the order of their backups.
    pub disks: Vec<DiskState>,
    /// The start of the last run in which all was well.
    pub last_success: Option<i64>,
}

/// The directory of all states.
pub struct StateDir(PathBuf);

/// The right to run a job.
pub struct JobLock(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

impl StateDir {
    /// The one that the configuration names; else `/var/lib/sapwood`, or below `XDG_STATE_HOME` for users.
    pub fn of(config: &Config) -> Result<StateDir> {
        if let Some(dir) = &config.state_dir {
            return Ok(StateDir(dir.clone()));
        }
        if rustix::process::geteuid().is_root() {
            return Ok(StateDir("/var/lib/sapwood".into()));
        }
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".local/state"));
        let base = absolute("XDG_STATE_HOME").or_else(home);
        let missing = || VaultError::Usage("where is the state of jobs kept? Set state_dir or HOME".into());
        Ok(StateDir(base.ok_or_else(missing)?.join("sapwood")))
    }

    /// What the last run of a job has left; `None` if there was none.
    pub fn read(&self, job: &str) -> Result<Option<JobState>> {
        let path = self.file(job, "json");
        let bytes = match std::fs::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.with_context(|| format!("{}: cannot read", path.display()))?,
        };
        let malformed = || format!("{}: not the state of a job; remove the file", path.display());
        serde_json::from_slice(&bytes).with_context(malformed).map(Some)
    }

    /// Replaces the state of a job. For those who hold its lock.
    pub fn write(&self, state: &JobState) -> Result<()> {
        let path = self.file(&state.job, "json");
        replace(&path, &(serde_json::to_string_pretty(state)? + "\n"))
            .with_context(|| format!("{}: cannot write", path.display()))
    }

    /// Takes the lock of a job; `None` where another process has it.
    pub fn lock(&self, job: &str) -> Result<Option<JobLock>> {
        let dir = self.0.display();
        std::fs::create_dir_all(&self.0).with_context(|| {
            format!(
                "{dir}: cannot make the state directory; state_dir in the configuration names another one"
            )
        })?;
        let path = self.file(job, "lock");
        // A user that can open the file can lock it, and the job would not run.
        let options = File::options().create(true).append(true).mode(0o600).open(&path);
        let file = options.with_context(|| format!("{}: cannot open", path.display()))?;
        let locked =
            locks::try_for_a_moment(|| match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(())),
                Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
                Err(e) => Err(e),
            });
        let locked = locked.with_context(|| format!("{}: cannot lock", path.display()))?;
        Ok(locked.map(|()| JobLock(file)))
    }

    /// Who runs a job now, for a message.
    pub fn holder(&self, job: &str) -> String {
        let file = File::open(self.file(job, "lock"));
        file.map_or("another process".into(), |file| locks::flock_holder(file.as_fd()))
    }

    /// Whether a process runs a job now. Who may not open the lock goes by the state, and whether its process is there.
    pub fn is_running(&self, job: &str) -> bool {
        match File::open(self.file(job, "lock")) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                let running = |s: &JobState| s.ended.is_none() && is_there(s.process);
                self.read(job).ok().flatten().is_some_and(|s| running(&s))
            }
            Err(_) => false,
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// One for tests.
    #[cfg(test)]
    pub fn at(path: &Path) -> StateDir {
        StateDir(path.into())
    }

    fn file(&self, job: &str, extension: &str) -> PathBuf {
        self.0.join(format!("{job}.{extension}"))
    }
}

fn is_there(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

/// Replaces a file by rename, after fsync. Readers see the old text or the new one.
pub fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&temporary, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
