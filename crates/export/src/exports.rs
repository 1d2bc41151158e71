//! What a server serves.

use crate::device::BlockDevice;
use std::sync::Arc;

/// What a server serves.
pub trait Exports: Send + Sync {
    /// Names and descriptions.
    fn list(&self) -> Vec<(String, String)>;

    /// The device of an export.
    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>>;
}

/// One export, which also answers to the empty name.
pub struct SingleExport {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: String,
    /// What it is.
    pub device: Arc<dyn BlockDevice>,
}

impl Exports for SingleExport {
    fn list(&self) -> Vec<(String, String)> {
        vec![(self.name.clone(), self.description.clone())]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        (name.is_empty() || name == self.name).then(|| self.device.clone())
    }
}
