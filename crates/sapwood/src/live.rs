//! Backups of the disks of a running QEMU: `qmp:SOCKET#NODE`, and `qmp:SOCKET` for all of them at one instant.
//!
//! 1. What an earlier backup left that was killed is cleared away ([`leftovers`], [`bitmaps::settle`]).
//! 2. In one QEMU transaction: the next bitmap begins, a fleecing job keeps what the guest overwrites from then on, and
//!    the old bitmap stops. That is the point in time ([`point`]).
//! 3. The fleecing node is exported over NBD with the old bitmap; the backup reads what the bitmap names.
//! 4. Only when the snapshot is committed is the old bitmap removed. If it is not, the two are merged again.
//!
//! A bitmap is called `sapwood-VAULT-SNAPSHOT`: it tells what changed since that snapshot, and counts only while that
//! is the newest one. Whatever is not as it should be ends in a full scan, and that is said.

mod agent;
mod bitmaps;
mod leftovers;
mod node;
mod point;
mod qmp;
mod scratch;

pub use agent::is_guest_frozen;
pub use point::{PointInTime, Wanted};

use anyhow::Result;
use image::{Changes, ImageError, NbdSource, Source};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long QEMU may take for what should be done at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the room for the guest's old data is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What `qmp:SOCKET#NODE` names: a disk of a running QEMU; `qmp:SOCKET`, all of them.
#[derive(Clone, Debug)]
pub struct LiveSourceName {
    pub socket: PathBuf,
    /// A block node, or the id or QOM path of a device.
    pub node: Option<String>,
}

impl LiveSourceName {
    /// Understands a source; `None` where it is nothing of the kind.
    pub fn parse(source: &Path) -> Option<Result<Self>> {
        let rest = source.to_str()?.strip_prefix("qmp:")?;
        let (socket, node) = match rest.rsplit_once('#') {
            Some((socket, node)) => (socket, Some(node)),
            None => (rest, None),
        };
        if socket.is_empty() || node.is_some_and(str::is_empty) {
            let why = format!("{}: write qmp:SOCKET#NODE, or qmp:SOCKET for all disks", source.display());
            return Some(Err(vault::VaultError::Usage(why).into()));
        }
        Some(Ok(LiveSourceName { socket: socket.into(), node: node.map(str::to_owned) }))
    }
}

/// Ids of the devices of a running QEMU that have disks which the guest may write to.
pub fn disks_of(socket: &Path) -> Result<Vec<String>> {
    node::writable_disks(&mut qmp::Qmp::connect(socket)?)
}

/// What a backup of a live disk is told.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Where the guest's old data is kept while the backup runs.
    pub scratch: PathBuf,
    /// The guest agent's socket.
    pub agent: Option<PathBuf>,
}

/// A point in time that is watched while it is read: room for the guest's old data must not run out.
pub struct Watched {
    point: Arc<Mutex<PointInTime>>,
    broken: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

/// A disk at a point in time.
pub struct LiveSource {
    export: NbdSource,
    disk: usize,
    point: Arc<Mutex<PointInTime>>,
    broken: Arc<AtomicBool>,
}

impl Watched {
    pub fn new(point: PointInTime) -> Self {
        let point = Arc::new(Mutex::new(point));
        let (broken, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (p, b, e) = (point.clone(), broken.clone(), ended.clone());
        let watcher = std::thread::spawn(move || {
            while !e.load(Ordering::SeqCst) {
                if !lock(&p).check_scratch() {
                    b.store(true, Ordering::SeqCst);
                    return;
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
        });
        Watched { point, broken, ended, watcher: Some(watcher) }
    }

    /// Opens a disk of it, and what changed there since the newest snapshot.
    pub fn source(&self, disk: usize) -> Result<(LiveSource, std::result::Result<Changes, String>)> {
        let point = lock(&self.point);
        let bitmap = point.changes(disk);
        let mut export = NbdSource::connect(&point.uri(disk), bitmap.ok())?;
        let changes = match bitmap {
            Ok(_) => Ok(export.changes()?),
            Err(why) => Err(why.to_owned()),
        };
        let source = LiveSource { export, disk, point: self.point.clone(), broken: self.broken.clone() };
        Ok((source, changes))
    }

    /// See [`PointInTime::commit`].
    pub fn commit(&self, disk: usize) -> Result<()> {
        lock(&self.point).commit(disk)
    }
}

impl Drop for Watched {
    /// The point in time is taken down by whoever drops this, not by the watcher.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            let _ = watcher.join();
        }
    }
}

impl LiveSource {
    fn refused(e: &anyhow::Error) -> ImageError {
        ImageError::Refused { path: "QEMU".into(), why: format!("{e:#}") }
    }
}

impl Source for LiveSource {
    fn format(&self) -> &'static str {
        "qemu"
    }

    fn size(&self) -> Option<u64> {
        self.export.size()
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.export.next_data(from)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        if self.broken.load(Ordering::SeqCst) {
            self.finish()?;
        }
        // Where the point in time was given up meanwhile, that is the reason.
        self.export.read_at(offset, buf).map_err(|e| self.finish().err().unwrap_or(e))
    }

    fn finish(&mut self) -> image::Result<()> {
        lock(&self.point).check(self.disk).map_err(|e| Self::refused(&e))
    }
}

fn lock(point: &Mutex<PointInTime>) -> MutexGuard<'_, PointInTime> {
    point.lock().unwrap_or_else(PoisonError::into_inner)
}
