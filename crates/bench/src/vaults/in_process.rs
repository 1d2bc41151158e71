//! A vault in this process, through its library: what an experiment has to see is more than the program prints.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{ensure, Context as _, Result};
use image::{create_target, Target, TargetFormat, TargetOptions};
use serde::Serialize;
use store::{LocalStore, ObjectStore};
use vault::{BackupOptions, BackupReport, CodecChoice, Policy, Progress, Scan, Since, Vault};

use crate::files::{self, BLOCK_BYTES};
use crate::layout::extents::{extents, within, Extent};
use crate::layout::seek_model::{Service, ST1000DM003};
use crate::vaults::counting_store::CountingStore;
use crate::workload::Version;

/// A vault with one policy.
pub struct LocalVault {
    vault: Vault,
    dir: PathBuf,
    options: BackupOptions,
}

/// What one backup cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BackupCost {
    /// All of it, with a sync of the file system at its end.
    pub seconds: f64,
    /// The reverse pass in it.
    pub reverse_seconds: f64,
    /// Bytes that were not known before.
    pub new_bytes: u64,
    /// Bytes that were known and written again.
    pub rewritten_bytes: u64,
    /// Containers that the pass wrote again.
    pub compacted: u64,
}

/// Space of a vault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// Containers' data, without holes.
    pub data_bytes: u64,
    /// Everything else.
    pub metadata_bytes: u64,
}

impl Stored {
    /// Both.
    pub fn total_bytes(&self) -> u64 {
        self.data_bytes + self.metadata_bytes
    }
}

/// How scattered a snapshot is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scatter {
    /// Runs of chunks that lie together.
    pub runs: u64,
    /// Groups it needs.
    pub groups: u64,
    /// Bytes of these groups for each byte of the disk that is not zero.
    pub fetched_per_wanted: f64,
}

/// What a restore costs on a disk with a moving head, by the order of its reads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Modelled {
    /// As they are planned, by container.
    pub as_planned: Service,
    /// By address on the disk, as a restore to a pipe makes them.
    pub by_address: Service,
}

impl LocalVault {
    /// Makes an empty vault in the directory `dir`, which is made anew; `codec` in place of the policy's.
    pub fn create(dir: &Path, policy: Policy, codec: Option<CodecChoice>) -> Result<Self> {
        let dir = files::fresh_dir(dir)?;
        let store = LocalStore::create(&dir)?;
        Self::on(Arc::new(store), dir, policy, codec)
    }

    /// The same, but data is counted and not kept: nothing can be restored.
    pub fn counting(dir: &Path, policy: Policy, codec: Option<CodecChoice>) -> Result<Self> {
        ensure!(!policy.reverse, "a policy that removes data reads it, too");
        let dir = files::fresh_dir(dir)?;
        let store = CountingStore::new(LocalStore::create(&dir)?);
        Self::on(Arc::new(store), dir, policy, codec)
    }

    /// The vault in the directory `dir`, with the policy that it has.
    pub fn open(dir: &Path) -> Result<Self> {
        let vault = Vault::open(Arc::new(LocalStore::open(dir)?))?;
        Ok(Self { vault, dir: dir.to_owned(), options: BackupOptions::default() })
    }

    /// Goes on with the vault in the directory `dir`: what is there stays, new data is counted and not kept.
    pub fn counting_on(dir: &Path, policy: Policy) -> Result<Self> {
        ensure!(!policy.reverse, "a policy that removes data reads it, too");
        let store = CountingStore::new(LocalStore::open(dir)?);
        let options = BackupOptions { policy: Some(policy), ..BackupOptions::default() };
        Ok(Self { vault: Vault::open(Arc::new(store))?, dir: dir.to_owned(), options })
    }

    fn on(
        store: Arc<dyn ObjectStore>,
        dir: PathBuf,
        policy: Policy,
        codec: Option<CodecChoice>,
    ) -> Result<Self> {
        let options = BackupOptions { policy: Some(policy), codec, ..BackupOptions::default() };
        Ok(Self { vault: Vault::init(store, &policy)?, dir, options })
    }

    /// Where its files lie.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The vault itself.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Stores a version of which it is known what has changed since the newest snapshot.
    pub fn backup_since(&self, version: &Version, since: Option<Since>) -> Result<BackupReport> {
        let is_listed = since.is_some();
        let options = BackupOptions { since, ..self.options.clone() };
        let report = self
            .vault
            .backup(&version.disk, version.source(), &options, &Progress::default())
            .with_context(|| format!("backup of {}", version.disk))?;
        ensure!(
            report.reverse.held_up.is_none(),
            "the reverse pass was held up: {:?}",
            report.reverse.held_up
        );
        let read = matches!(report.scan, Scan::Changed { .. });
        ensure!(read == is_listed, "the list of changes did not count: {:?}", report.scan);
        Ok(report)
    }

    /// Stores a version. Returns the snapshot's id and the cost.
    pub fn backup(&self, version: &Version) -> Result<(String, BackupCost)> {
        self.backup_source(&version.disk, version.source())
            .with_context(|| format!("backup of {}", version.disk))
    }

    /// Stores any disk.
    pub fn backup_source(&self, disk: &str, source: Box<dyn image::Source>) -> Result<(String, BackupCost)> {
        let start = Instant::now();
        let BackupReport { snapshot, rewritten_bytes, reverse, reverse_seconds, .. } =
            self.vault.backup(disk, source, &self.options, &Progress::default())?;
        files::sync_file_system(&self.dir)?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(reverse.held_up.is_none(), "the reverse pass was held up: {:?}", reverse.held_up);
        let (new_bytes, compacted) = (snapshot.new_bytes, reverse.compacted);
        let cost = BackupCost { seconds, reverse_seconds, new_bytes, rewritten_bytes, compacted };
        Ok((snapshot.id.to_string(), cost))
    }

    /// Restores a snapshot to the new file `path`. Returns the seconds until it is on the disk.
    pub fn restore(&self, disk: &str, snapshot: &str, path: &Path) -> Result<f64> {
        let start = Instant::now();
        let target = |size, data: &[std::ops::Range<u64>]| {
            let format = TargetFormat::Raw;
            create_target(path, &TargetOptions { size, format, data, ..TargetOptions::default() })
        };
        self.vault.restore(disk, snapshot, target, &Progress::default())?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Restores a snapshot to nowhere. Returns the seconds it takes.
    pub fn read(&self, disk: &str, snapshot: &str) -> Result<f64> {
        let start = Instant::now();
        self.vault.restore(disk, snapshot, |_, _| Ok(Box::new(Nowhere)), &Progress::default())?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Restores a snapshot and compares it with the version it was made of.
    pub fn require_equal(&self, version: &Version, snapshot: &str) -> Result<()> {
        let counts = Arc::new(Counts::default());
        let target = Comparing { version: version.clone(), counts: Arc::clone(&counts) };
        self.vault.restore(&version.disk, snapshot, |_, _| Ok(Box::new(target)), &Progress::default())?;
        let (nonzero, different) =
            (counts.nonzero_bytes.load(Ordering::Relaxed), counts.different_bytes.load(Ordering::Relaxed));
        ensure!(
            different == 0 && nonzero == version.nonzero_bytes,
            "{}@{snapshot}: {different} bytes are in blocks that differ, {nonzero} in blocks that are not zero; \
             there were {}",
            version.disk,
            version.nonzero_bytes
        );
        Ok(())
    }

    /// Seconds that planning a restore takes, with tracing all references.
    pub fn plan_seconds(&self, disk: &str, snapshot: &str) -> Result<f64> {
        let start = Instant::now();
        self.vault.reads(disk, snapshot, false)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// What a restore costs on the modelled disk; `None` where the file system does not tell where its files lie.
    pub fn modelled(&self, disk: &str, snapshot: &str) -> Result<Option<Modelled>> {
        let mut layout = Layout::new(&self.dir);
        let mut serve = |by_address| -> Result<Option<Service>> {
            let reads = self.vault.reads(disk, snapshot, by_address)?;
            Ok(layout.places(&reads)?.map(|places| ST1000DM003.serve(places)))
        };
        Ok(match (serve(false)?, serve(true)?) {
            (Some(as_planned), Some(by_address)) => Some(Modelled { as_planned, by_address }),
            _ => None,
        })
    }

    /// How scattered a snapshot is.
    pub fn scatter(&self, disk: &str, snapshot: &str) -> Result<Scatter> {
        let f = self.vault.map(disk, snapshot, 1)?.fragmentation;
        Ok(Scatter { runs: f.runs, groups: f.groups, fetched_per_wanted: f.amplification() })
    }

    /// Verifies it: with `data`, every chunk. Returns the seconds it takes.
    pub fn verify(&self, data: bool) -> Result<f64> {
        let start = Instant::now();
        let report = self.vault.verify(None, data, &Progress::default())?;
        ensure!(report.damaged.is_empty(), "damaged: {:?}", report.damaged);
        Ok(start.elapsed().as_secs_f64())
    }

    /// The space it takes.
    pub fn stored(&self) -> Result<Stored> {
        let stats = self.vault.stats(None)?;
        ensure!(stats.damaged.is_empty(), "damaged: {}", stats.damaged.join("; "));
        Ok(Stored { data_bytes: stats.data_bytes(), metadata_bytes: stats.metadata_bytes() })
    }

    /// Collects garbage; what this frees, the reverse pass has left.
    pub fn collect(&self) -> Result<()> {
        let report = self.vault.gc(false)?;
        ensure!(report.skipped.is_empty() && report.busy.is_empty(), "not all was collected: {report:?}");
        Ok(())
    }

    /// Removes it.
    pub fn remove(self) -> Result<()> {
        let dir = self.dir.clone();
        drop(self);
        fs::remove_dir_all(dir)?;
        Ok(())
    }
}

/// Where the objects of a store lie on the device.
struct Layout {
    objects: PathBuf,
    known: HashMap<String, Option<Vec<Extent>>>,
}

impl Layout {
    fn new(store: &Path) -> Self {
        Self { objects: store.join("objects"), known: HashMap::new() }
    }

    /// The places of reads, in their order.
    fn places(&mut self, reads: &[vault::StoreRead]) -> Result<Option<Vec<Extent>>> {
        let mut places = Vec::new();
        for read in reads {
            if !self.known.contains_key(&read.object) {
                let path = self.objects.join(&read.object);
                let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
                self.known.insert(read.object.clone(), extents(&file)?);
            }
            let Some(Some(of_object)) = self.known.get(&read.object) else { return Ok(None) };
            places.extend(within(of_object, read.offset..read.offset + read.len));
        }
        Ok(Some(places))
    }
}

/// A target that forgets what is written.
pub struct Nowhere;

impl Target for Nowhere {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> image::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> image::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Counts {
    nonzero_bytes: AtomicU64,
    different_bytes: AtomicU64,
}

/// A target that compares what is written with a version.
struct Comparing {
    version: Version,
    counts: Arc<Counts>,
}

impl Target for Comparing {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> image::Result<()> {
        let mut wanted = vec![0; data.len()];
        let got = self.version.read_at(offset, &mut wanted).map_err(|source| image::ImageError::Io {
            path: self.version.base().display().to_string(),
            op: "read",
            source,
        })?;
        let mut different = (data.len() - got) as u64;
        let mut nonzero = 0;
        for (a, b) in data.chunks(BLOCK_BYTES).zip(wanted.chunks(BLOCK_BYTES)) {
            different += if a == b { 0 } else { a.len() as u64 };
            nonzero += if chunk::is_null(a) { 0 } else { a.len() as u64 };
        }
        self.counts.different_bytes.fetch_add(different, Ordering::Relaxed);
        self.counts.nonzero_bytes.fetch_add(nonzero, Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>) -> image::Result<()> {
        Ok(())
    }
}
