//! What of a pool is served.

use crate::commands::pool::control::Served;
use crate::commands::pool::file_system::file_of;
use crate::commands::pool::snapshot::FINGERPRINTS;
use crate::terminal::streams::errln;
use anyhow::Result;
use export::{BlockDevice, Exports, Extent};
use pool::{Attached, FingerprintDevice, Pool, PoolError};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The volumes and snapshots of a pool, and its files by their paths.
pub struct Volumes(pub Served);

impl Volumes {
    /// Opens a volume, a snapshot, the fingerprints of one, or a file.
    pub fn attach(&self, name: &str) -> Result<Arc<dyn BlockDevice>, PoolError> {
        if let Some(fingerprints_of) = name.strip_suffix(FINGERPRINTS) {
            return Ok(Arc::new(FingerprintDevice(self.0.pool.volume(fingerprints_of)?)));
        }
        Ok(match file_of(name) {
            Some(path) => Arc::new(self.0.files.get()?.attach(path)?),
            None => {
                let device = self.0.pool.attach(name)?;
                match name.split_once('@') {
                    Some((volume, _)) => {
                        let (pool, volume) = (Arc::clone(&self.0.pool), volume.to_owned());
                        Arc::new(SnapshotDevice { pool, name: name.to_owned(), volume, device })
                    }
                    None => Arc::new(device),
                }
            }
        })
    }
}

/// A snapshot of a volume, which tells what has changed since others.
struct SnapshotDevice {
    pool: Arc<Pool>,
    name: String,
    volume: String,
    device: Attached,
}

impl BlockDevice for SnapshotDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn read_ready(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.device.read_ready(offset, buf)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        self.device.extents(range, each)
    }

    fn earlier(&self) -> Vec<String> {
        let all = self.pool.volumes().into_iter().filter(|v| v.name != self.name);
        let of_volume = all.filter_map(|v| {
            let (volume, snapshot) = v.name.split_once('@')?;
            (volume == self.volume).then(|| snapshot.to_owned())
        });
        of_volume.collect()
    }

    fn changed_since(&self, earlier: &str) -> io::Result<Option<Vec<Range<u64>>>> {
        let since = match self.pool.snapshot_facts(&format!("{}@{earlier}", self.volume)) {
            Err(PoolError::Refused(_) | PoolError::NotFound(_)) => return Ok(None),
            facts => facts?.key,
        };
        Ok(self.pool.changed(&self.name, &since)?)
    }
}

impl Exports for Volumes {
    fn list(&self) -> Vec<(String, String)> {
        let describe = |is_snapshot| if is_snapshot { "a snapshot" } else { "a volume" };
        self.0.pool.volumes().into_iter().map(|v| (v.name, describe(v.is_snapshot).into())).collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        match self.attach(name) {
            Ok(device) => Some(device),
            Err(error) => {
                errln!("sapwood: {error}");
                None
            }
        }
    }
}
