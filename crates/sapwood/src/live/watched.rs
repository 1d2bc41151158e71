//! Reads a point in time, and meanwhile checks that old data of the guest does not fill the scratch directory.

use super::point::{DiskFormat, Point};
use anyhow::{Context as _, Result};
use image::{Changes, ImageError, NbdSource, Source};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the room for the guest's old data is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A point in time that is watched while it is read: room for the guest's old data must not run out.
pub struct WatchedPoint {
    point: Arc<Mutex<Box<dyn Point>>>,
    broken: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

/// A disk at a point in time.
pub struct LiveSource {
    export: NbdSource,
    disk: usize,
    point: Arc<Mutex<Box<dyn Point>>>,
    broken: Arc<AtomicBool>,
}

impl WatchedPoint {
    pub fn new(point: Box<dyn Point>) -> Result<Self> {
        let point = Arc::new(Mutex::new(point));
        let (broken, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (p, b, e) = (point.clone(), broken.clone(), ended.clone());
        let watch = move || {
            while !e.load(Ordering::SeqCst) {
                if !lock(&p).check_scratch() {
                    b.store(true, Ordering::SeqCst);
                    return;
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
        };
        let watcher = std::thread::Builder::new().name("watch scratch".into()).spawn(watch);
        let watcher = Some(watcher.context("cannot watch the room for the guest's old data")?);
        Ok(WatchedPoint { point, broken, ended, watcher })
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

    /// See [`Point::commit`].
    pub fn commit(&self, disk: usize) -> Result<()> {
        lock(&self.point).commit(disk)
    }

    /// See [`Point::format`].
    pub fn format(&self, disk: usize) -> DiskFormat {
        lock(&self.point).format(disk)
    }

    /// See [`Point::tags`].
    pub fn tags(&self, disk: usize) -> Vec<(String, String)> {
        lock(&self.point).tags(disk)
    }
}

impl Drop for WatchedPoint {
    /// The point in time is taken down by the thread that drops this, not by the watcher.
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

fn lock(point: &Mutex<Box<dyn Point>>) -> MutexGuard<'_, Box<dyn Point>> {
    point.lock()
}
