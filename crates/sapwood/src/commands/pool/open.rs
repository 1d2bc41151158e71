//! A pool of a path.

use pool::{FileDevice, Options, Pool, PoolError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Opens a pool: a file or a block device.
pub fn open(path: &Path, options: Options) -> Result<Arc<Pool>, PoolError> {
    let device = FileDevice::open(path).map_err(|e| cannot_open(path, e))?;
    Pool::open(Box::new(device), options)
}

/// A pool, or what is to become one, could not be opened.
pub fn cannot_open(path: &Path, source: io::Error) -> PoolError {
    let what = if is_held(&source) {
        path.display().to_string()
    } else {
        format!("{}: cannot open", path.display())
    };
    PoolError::Io { what, source }
}

/// Whether another process has it open. What is mounted is busy, too, and the system says so.
pub fn is_held(e: &io::Error) -> bool {
    e.kind() == ErrorKind::ResourceBusy && e.raw_os_error().is_none()
}
