//! A vault that is open for a command.

use super::damage_met::{record, told, unrecorded, LOOKING};
use crate::progress::{is_stopped, watch_since, Signals};
use crate::terminal::streams::errln;
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use vault::{Progress, RecordedDamage, Vault};

/// How often what was met is recorded where a vault is served.
const RECORDED_EVERY: Duration = Duration::from_secs(60);

/// A vault of a command. Dropped, it is told of the damage that was met: later backups store anew what they need of it.
pub struct OpenVault {
    vault: Arc<Vault>,
    quiet: bool,
    /// Whether damage is said here: what only reads fails with it.
    tells: bool,
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

impl OpenVault {
    /// One that is only read.
    pub fn to_read(vault: Vault, quiet: bool) -> OpenVault {
        OpenVault::new(vault, quiet, false)
    }

    /// One that is changed. What changes it may pass over damage.
    pub fn to_change(vault: Vault, quiet: bool) -> OpenVault {
        OpenVault::new(vault, quiet, true)
    }

    fn new(vault: Vault, quiet: bool, tells: bool) -> OpenVault {
        OpenVault {
            vault: Arc::new(vault),
            quiet,
            tells,
            recorder: Mutex::default(),
            is_last: AtomicBool::new(false),
        }
    }

    /// The same, for one that is served: backups that run meanwhile are not to refer to what was met, so it is recorded once a
    /// minute. Where the system has no room for a thread, it is recorded in the end.
    pub fn served(self) -> OpenVault {
        self.recording(RECORDED_EVERY)
    }

    fn recording(self, every: Duration) -> OpenVault {
        let (end, ended) = channel::<()>();
        let (vault, progress) = (self.vault.clone(), Arc::new(Progress::default()));
        let of_thread = progress.clone();
        let work = move || {
            let mut said = String::new();
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                match unrecorded(&record(&vault, false, &of_thread)) {
                    Some(why) if why != said && !of_thread.is_cancelled() => {
                        errln!("sapwood: {why}");
                        said = why;
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

    /// Records the damage that was met so far, for the last time, and says what is to be said.
    pub fn record_damage(&self) {
        let recorded = self.record_last();
        let found = told(&recorded).filter(|_| self.tells);
        for why in found.into_iter().chain(unrecorded(&recorded)) {
            errln!("sapwood: {why}");
        }
    }

    /// The same, for a command that says itself what is to be said.
    pub fn damage_recorded(&self) -> Option<String> {
        let recorded = self.record_last();
        let all: Vec<String> = told(&recorded).into_iter().chain(unrecorded(&recorded)).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// A signal stops it that comes meanwhile.
    fn record_last(&self) -> RecordedDamage {
        if self.is_last.swap(true, Ordering::SeqCst) {
            return RecordedDamage::default();
        }
        let before = Signals::so_far();
        let recorder = self.recorder.lock().take();
        if let Some(Recorder { end, thread, progress }) = recorder {
            drop(end);
            let _ = watch_since(&before, self.quiet, LOOKING, &progress, || thread.join());
        }
        // Who stops what changes a vault wants it to end; servers end by a signal.
        if !self.vault.has_met_damage() || self.tells && is_stopped() {
            return RecordedDamage::default();
        }
        let progress = Progress::default();
        watch_since(&before, self.quiet, LOOKING, &progress, || record(&self.vault, true, &progress))
    }
}

impl Deref for OpenVault {
    type Target = Vault;

    fn deref(&self) -> &Vault {
        &self.vault
    }
}

impl Drop for OpenVault {
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

        let served =
            OpenVault::to_read(Vault::open(store()).unwrap(), true).recording(Duration::from_millis(20));
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
