//! The file system of a pool, opened when the mount, a client of a file, or a command needs it first.

use parking_lot::Mutex;
use pool::{FileSystem, Pool, PoolError};
use rustix::process::{getgid, getuid};
use std::ffi::OsStr;
use std::sync::Arc;

/// What names of files begin with where names of volumes are expected; no volume has such a name.
const FILE_MARK: &str = "@/";

/// The file system of a pool, once it is open.
pub struct PoolFiles {
    pool: Arc<Pool>,
    open: Mutex<Option<Arc<FileSystem>>>,
}

impl PoolFiles {
    pub fn new(pool: Arc<Pool>) -> Self {
        PoolFiles { pool, open: Mutex::default() }
    }

    /// The file system; a pool that has none gets one.
    pub fn get(&self) -> Result<Arc<FileSystem>, PoolError> {
        let mut open = self.open.lock();
        if let Some(files) = &*open {
            return Ok(Arc::clone(files));
        }
        let files = FileSystem::open(Arc::clone(&self.pool), getuid().as_raw(), getgid().as_raw())?;
        Ok(Arc::clone(open.insert(Arc::new(files))))
    }

    /// It, if somebody has needed it.
    pub fn if_open(&self) -> Option<Arc<FileSystem>> {
        self.open.lock().clone()
    }
}

/// The path of a file, if a name stands for one.
pub fn file_of(name: &str) -> Option<&OsStr> {
    name.strip_prefix(FILE_MARK).map(OsStr::new)
}
