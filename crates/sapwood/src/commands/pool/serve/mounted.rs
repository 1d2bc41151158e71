//! The file system of a pool, mounted.

use crate::system::mountpoint::each_once;
use crate::system::signals::EndSignal;
use crate::terminal::streams::errln;
use anyhow::{Context, Result};
use export::files::Files;
use export::fuse::{Mount, MountOptions};
use parking_lot::{Condvar, Mutex};
use pool::FileSystem;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long what is not synced may stay undurable.
const SYNC_EVERY: Duration = Duration::from_secs(5);
/// Requests at once, at least: reads wait for the device, and syncs of many programs are carried out together.
const THREADS_MIN: usize = 16;

/// A mounted file system.
pub struct Mounted {
    mount: Mount,
    files: Arc<FileSystem>,
    ending: Arc<(Mutex<bool>, Condvar)>,
    syncing: JoinHandle<()>,
}

impl Mounted {
    /// Mounts the file system of a pool. `end` comes when somebody unmounts it.
    pub fn start(place: &Path, files: Arc<FileSystem>, allow_other: bool, end: &EndSignal) -> Result<Self> {
        let options = MountOptions {
            threads: std::thread::available_parallelism().map_or(2, |n| n.get() + 2).max(THREADS_MIN),
            allow_other,
            on_error: Box::new(each_once()),
            on_end: Box::new(end.trigger()),
        };
        let mount = Mount::start_files(place, files.clone(), options)
            .with_context(|| format!("mounting on {}", place.display()))?;
        let ending = Arc::<(Mutex<bool>, Condvar)>::default();
        let syncing = {
            let (files, ending) = (Arc::clone(&files), Arc::clone(&ending));
            std::thread::Builder::new()
                .name("files-sync".into())
                .spawn(move || sync_now_and_then(&files, &ending))?
        };
        Ok(Mounted { mount, files, ending, syncing })
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        self.mount.mountpoint()
    }

    /// Unmounts, and makes durable what was done.
    pub fn stop(self) -> Result<()> {
        let place = self.place().display().to_string();
        if let Some(warning) = self.mount.stop().warning() {
            errln!("sapwood: {place}: {warning}");
        }
        *self.ending.0.lock() = true;
        self.ending.1.notify_all();
        // A panic in the thread was printed.
        let _ = self.syncing.join();
        self.files.sync().with_context(|| format!("syncing {place}"))
    }
}

fn sync_now_and_then(files: &FileSystem, (is_ending, wake): &(Mutex<bool>, Condvar)) {
    let on_error = each_once();
    let mut is_ending = is_ending.lock();
    while !*is_ending {
        if wake.wait_for(&mut is_ending, SYNC_EVERY).timed_out() {
            if let Err(error) = files.sync() {
                // The next one may go well: space may have been freed.
                on_error(&error.to_string());
            }
        }
    }
}
