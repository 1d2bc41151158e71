//! A vault for commands that only read it.

use crate::progress::{watch_since, Signals};
use crate::terminal::streams::errln;
use parking_lot::Mutex;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use vault::{Progress, Vault, VaultError};

/// How often what was met is recorded where a vault is served.
const RECORDED_EVERY: Duration = Duration::from_secs(60);
/// What is shown while it is recorded.
const LOOKING: &str = "looking at what is damaged";
/// What is said where it is not.
const UNRECORDED: &str = "sapwood: the damage could not be recorded, backups may refer to it again";

/// A vault that is only read. Dropped, it is told of the damage that was met: later backups store anew what they need of it.
pub struct ReadVault {
    vault: Arc<Vault>,
    quiet: bool,
    recorder: Mutex<Option<Recorder>>,
    /// Whether it was recorded for the last time.
    is_last: AtomicBool,
}

/// A thread that records what was met now and then.
struct Recorder {
    /// Dropped, it ends the thread.
    end: Sender<()>,
    thread: JoinHandle<()>,
    /// Of what it does.
    progress: Arc<Progress>,
}

impl ReadVault {
    pub fn new(vault: Vault, quiet: bool) -> ReadVault {
        ReadVault {
            vault: Arc::new(vault),
            quiet,
            recorder: Mutex::default(),
            is_last: AtomicBool::new(false),
        }
    }

    /// The same, for one that is served: backups that run meanwhile are not to refer to what was met, so it is recorded once a
    /// minute. Where the system has no room for a thread, it is recorded in the end.
    pub fn served(self) -> ReadVault {
        self.recording(RECORDED_EVERY)
    }

    fn recording(self, every: Duration) -> ReadVault {
        let (end, ended) = channel::<()>();
        let (vault, progress) = (self.vault.clone(), Arc::new(Progress::default()));
        let of_thread = progress.clone();
        let work = move || {
            let mut told = String::new();
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                match record(&vault, &of_thread).map_err(|e| e.to_string()) {
                    Err(why) if why != told && !of_thread.is_cancelled() => {
                        errln!("{UNRECORDED}: {why}");
                        told = why;
                    }
                    _ => {}
                }
            }
        };
        if let Ok(thread) = std::thread::Builder::new().name("damage".into()).spawn(work) {
            *self.recorder.lock() = Some(Recorder { end, thread, progress });
        }
        self
    }

    /// Records the damage that was met so far, for the last time. A signal stops it that comes meanwhile.
    pub fn record_damage(&self) {
        if self.is_last.swap(true, Ordering::SeqCst) {
            return;
        }
        let before = Signals::so_far();
        let recorder = self.recorder.lock().take();
        if let Some(Recorder { end, thread, progress }) = recorder {
            drop(end);
            let _ = watch_since(&before, self.quiet, LOOKING, &progress, || thread.join());
        }
        if self.vault.has_met_damage() {
            let progress = Progress::default();
            let recorded =
                watch_since(&before, self.quiet, LOOKING, &progress, || record(&self.vault, &progress));
            match recorded {
                Ok(()) => {}
                Err(VaultError::Cancelled) => {
                    errln!("{UNRECORDED}, until `sapwood verify --data` has looked at it")
                }
                Err(e) => errln!("{UNRECORDED}: {e}"),
            }
        }
    }
}

/// Records the damage that was met, if any was, and if the vault is this user's: what root wrote there would be root's.
fn record(vault: &Vault, progress: &Progress) -> vault::Result<()> {
    if vault.has_met_damage() && is_own(&vault.location()) {
        vault.record_damage_met(progress)?;
    }
    Ok(())
}

/// Whether a directory belongs to the user that this process acts as.
fn is_own(directory: &str) -> bool {
    std::fs::metadata(directory).is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw())
}

impl Deref for ReadVault {
    type Target = Vault;

    fn deref(&self) -> &Vault {
        &self.vault
    }
}

impl Drop for ReadVault {
    fn drop(&mut self) {
        self.record_damage();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::time::Instant;
    use vault::{BackupOptions, ReadCache, BALANCED};

    /// While a vault is served, what is met is known to others before the server ends.
    #[test]
    fn what_a_server_meets_is_recorded_while_it_runs() {
        let dir = tempfile::tempdir_in(testing::memory_dir()).unwrap();
        let (disk, at) = (dir.path().join("disk"), dir.path().join("vault"));
        std::fs::write(&disk, testing::noise(1, 1 << 20)).unwrap();
        let store = || Arc::new(store::LocalStore::open(&at).unwrap());
        let vault = Vault::init(Arc::new(store::LocalStore::create(&at).unwrap()), &BALANCED).unwrap();
        let source = image::open(&disk, &image::SourceOptions::default()).unwrap();
        vault.backup("vm/disk", source, &BackupOptions::default(), &Progress::default()).unwrap();
        drop(vault);
        let mut objects = Vec::new();
        let each = &mut |entry: store::Entry| {
            objects.extend(Some(entry.name).filter(|name| name.ends_with(".data")));
            Ok(())
        };
        store::ObjectStore::list(&*store(), "", each).unwrap();
        let data =
            std::fs::OpenOptions::new().write(true).open(at.join("objects").join(&objects[0])).unwrap();
        data.write_all_at(&[0; 1024], 10_000).unwrap();

        let served = ReadVault::new(Vault::open(store()).unwrap(), true).recording(Duration::from_millis(20));
        let snapshot = served.open_snapshot("vm/disk", "latest", &ReadCache::new(1 << 20)).unwrap();
        assert!(snapshot.read_at(0, &mut vec![0; 1 << 20]).is_err());
        let other = Vault::open(store()).unwrap();
        let is_known = || other.health().unwrap().disks[0].damaged_containers > 0;
        let start = Instant::now();
        while !is_known() {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        drop((snapshot, served));
        assert!(is_known());
    }
}
