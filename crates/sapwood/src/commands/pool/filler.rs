//! Fills the volumes of a pool that is open.

use super::fill::purpose;
use super::fill_source::FillSource;
use crate::devices::{FillDevice, SnapshotDevice};
use crate::terminal::streams::errln;
use anyhow::{Context, Result};
use image::Pace;
use parking_lot::Mutex;
use pool::{FillInfo, FillStep, Filling, Pool};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::StoreOptions;
use vault::{ReadCache, Vault};

/// How often it is looked whether there is something to fill.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long to wait before a vault that cannot be read, or a pool without room, is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// The same, where all that can be read has arrived.
const TRY_DAMAGED_AGAIN: Duration = Duration::from_secs(60);
/// Steps of one volume before it is the turn of the next one.
const STEPS: usize = 16;

/// Why volumes are not being filled, by their names.
pub type FillErrors = Arc<Mutex<BTreeMap<String, String>>>;

/// What is filled, and from what.
struct Job {
    source: FillSource,
    vault: Vault,
    filling: Filling,
}

/// The state of one volume.
struct Turn {
    job: Option<Job>,
    due: Instant,
}

/// Fills volumes, one step after the other.
pub struct Filler {
    pool: Arc<Pool>,
    path: PathBuf,
    cache: Arc<ReadCache>,
    lock_wait: Duration,
    pace: Option<Pace>,
    turns: BTreeMap<String, Turn>,
    errors: FillErrors,
}

impl Filler {
    /// Fills the volumes of the pool at `path`. `cache_bytes` are for decompressed data of vaults; `rate` is in bytes a second.
    pub fn new(
        pool: Arc<Pool>,
        path: &Path,
        cache_bytes: u64,
        lock_wait: Duration,
        rate: Option<u64>,
    ) -> Self {
        Filler {
            pool,
            path: path.to_owned(),
            cache: ReadCache::new(cache_bytes),
            lock_wait,
            pace: rate.map(Pace::new),
            turns: BTreeMap::new(),
            errors: FillErrors::default(),
        }
    }

    /// Why volumes are not being filled now.
    pub fn errors(&self) -> FillErrors {
        Arc::clone(&self.errors)
    }

    /// Goes on with all volumes for a while. Returns whether any of them came on.
    pub fn turn(&mut self, stop: &dyn Fn() -> bool) -> Result<bool> {
        let fills = self.pool.fills()?;
        let is_there = |name: &String| fills.iter().any(|fill| fill.volume == *name);
        self.turns.retain(|name, _| is_there(name));
        self.errors.lock().retain(|name, _| is_there(name));
        let mut came_on = false;
        for fill in fills {
            let name = &fill.volume;
            if stop() {
                break;
            }
            let turn = self.turns.entry(name.clone()).or_insert(Turn { job: None, due: Instant::now() });
            if turn.due > Instant::now() {
                continue;
            }
            let job = turn.job.take();
            match self.go_on(&fill, job, stop) {
                Ok((job, wait)) => {
                    if wait.is_none() {
                        self.errors.lock().remove(name);
                    }
                    came_on |= wait.is_none();
                    let due = Instant::now() + wait.unwrap_or_default();
                    self.turns.insert(name.clone(), Turn { job, due });
                }
                Err(error) => {
                    self.note(name, &format!("{error:#}"));
                    // It is opened anew: what made it fail may be over then.
                    let due = Instant::now() + TRY_AGAIN;
                    self.turns.insert(name.clone(), Turn { job: None, due });
                }
            }
        }
        Ok(came_on)
    }

    /// Fills one volume for a while. Returns how long to wait, if nothing can be done now.
    fn go_on(
        &mut self,
        fill: &FillInfo,
        job: Option<Job>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Option<Job>, Option<Duration>)> {
        let name = &fill.volume;
        let mut job = match job {
            Some(job) => job,
            None => match self.open(fill) {
                Ok(job) => job,
                Err(error) => {
                    // Those who read what has not arrived wait no longer.
                    self.pool.fail_origin(name, &format!("{error:#}"))?;
                    return Err(error);
                }
            },
        };
        for _ in 0..STEPS {
            if stop() {
                break;
            }
            match job.filling.step()? {
                FillStep::Going { read, .. } => {
                    if let Some(pace) = self.pace.as_mut().filter(|_| read > 0) {
                        pace.pay(read);
                    }
                }
                FillStep::Arrived => {
                    // The hold first: when the pool has forgotten what it was filled from, nobody ends it.
                    self.end_hold(name, &job)?;
                    self.pool.end_fill(name)?;
                    return Ok((None, None));
                }
                FillStep::Incomplete => {
                    let why = job.filling.damage().map(ToString::to_string).unwrap_or_default();
                    self.note(name, &format!("{why}; the rest of it has arrived"));
                    return Ok((Some(job), Some(TRY_DAMAGED_AGAIN)));
                }
                FillStep::Gone => return Ok((None, None)),
            }
        }
        Ok((Some(job), None))
    }

    fn open(&self, fill: &FillInfo) -> Result<Job> {
        let source = parse(fill)?;
        let vault = open_vault(&source, self.lock_wait)?;
        // An earlier volume of the same snapshot may have ended its hold.
        vault.hold_for(&source.disk, &source.id, &purpose(&self.path, &fill.volume)?)?;
        let snapshot = vault.open_snapshot(&source.disk, &source.id, &self.cache)?;
        let device = FillDevice(Arc::new(SnapshotDevice::new(snapshot)));
        self.pool.set_origin(&fill.volume, Arc::new(device))?;
        Ok(Job { source, vault, filling: self.pool.filling(&fill.volume)? })
    }

    /// Ends the hold on the snapshot, unless another volume needs it.
    fn end_hold(&self, volume: &str, job: &Job) -> Result<()> {
        let Job { source, vault, .. } = job;
        vault.end_hold_for(&source.disk, &source.id, &purpose(&self.path, volume)?)?;
        let is_of = |fill: &FillInfo| fill.volume != volume && fill.source == source.text();
        if let Some(other) = self.pool.fills()?.into_iter().find(is_of) {
            vault.hold_for(&source.disk, &source.id, &purpose(&self.path, &other.volume)?)?;
        }
        Ok(())
    }

    /// Says why a volume is not being filled, once.
    fn note(&self, volume: &str, why: &str) {
        let before = self.errors.lock().insert(volume.to_owned(), why.to_owned());
        if before.as_deref() != Some(why) {
            errln!("sapwood: {volume} is not filled: {why}");
        }
    }
}

fn parse(fill: &FillInfo) -> Result<FillSource> {
    FillSource::parse(&fill.source).with_context(|| format!("{:?} is not a snapshot of a vault", fill.source))
}

fn open_vault(source: &FillSource, lock_wait: Duration) -> Result<Vault> {
    let options = StoreOptions { lock_wait, ..StoreOptions::default() };
    let store = store::open(&source.store, &options)?;
    Ok(Vault::open(Arc::from(store))?.with_patience(lock_wait))
}

/// Ends the hold for a volume that was deleted before all of it had arrived.
pub fn end_hold_of_deleted(path: &Path, fill: &FillInfo) -> Result<()> {
    let source = parse(fill)?;
    let vault = open_vault(&source, Duration::ZERO)?;
    Ok(vault.end_hold_for(&source.disk, &source.id, &purpose(path, &fill.volume)?)?)
}

/// A thread that fills volumes as long as a pool is served.
pub struct FillThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl FillThread {
    /// Starts it.
    pub fn start(mut filler: Filler) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("fill".into()).spawn(move || {
            let stop = || is_stopped.load(Ordering::SeqCst);
            while !stop() {
                match filler.turn(&stop) {
                    Ok(true) => {}
                    Ok(false) => std::thread::park_timeout(LOOK_EVERY),
                    Err(error) => {
                        errln!("sapwood: {error:#}");
                        return;
                    }
                }
            }
        })?;
        Ok(FillThread { stop, thread })
    }

    /// Waits until the step under way has ended.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        // A panic in the thread was printed.
        let _ = self.thread.join();
    }
}
