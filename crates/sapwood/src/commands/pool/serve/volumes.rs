//! What of a pool is served.

use crate::commands::pool::control::Served;
use crate::commands::pool::file_system::file_of;
use crate::commands::pool::snapshot::FINGERPRINTS;
use crate::terminal::streams::errln;
use anyhow::Result;
use export::{BlockDevice, Exports};
use pool::{FingerprintDevice, PoolError};
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
            None => Arc::new(self.0.pool.attach(name)?),
        })
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
