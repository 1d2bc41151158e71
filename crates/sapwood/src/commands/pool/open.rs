//! A pool of a path.

use pool::{FileDevice, Options, Pool, PoolError};
use std::path::Path;
use std::sync::Arc;

/// Opens a pool: a file or a block device.
pub fn open(path: &Path, options: Options) -> Result<Arc<Pool>, PoolError> {
    let device = FileDevice::open(path)
        .map_err(|source| PoolError::Io { what: format!("{}: cannot open", path.display()), source })?;
    Pool::open(Box::new(device), options)
}
