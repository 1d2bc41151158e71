//! Open files of objects that are being read: a small cache, so that a read is one system call or two.
//!
//! Objects never change, so an open file stays right until its object is removed: by this handle
//! (then it is dropped at once) or by another process (then its link count says so).

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::file_system::FileSystem;

const SHARDS: u64 = 8;
const FILES_PER_SHARD: usize = 16;

/// The cache.
pub(super) struct Descriptors<F: FileSystem> {
    shards: Vec<Mutex<Vec<Open<F>>>>,
}

struct Open<F: FileSystem> {
    name: String,
    file: Arc<F::File>,
}

impl<F: FileSystem> Descriptors<F> {
    /// An empty cache.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::new(Vec::new())).collect() }
    }

    /// The object's open file, if it is here and the object still exists.
    pub fn get(&self, fs: &F, name: &str) -> Option<Arc<F::File>> {
        let mut shard = self.shard(name);
        let at = shard.iter().position(|open| open.name == name)?;
        let open = shard.remove(at);
        if !is_linked(fs, &open.file) {
            return None;
        }
        let file = Arc::clone(&open.file);
        shard.push(open);
        Some(file)
    }

    /// Keeps a file, unless its object was removed since it was opened.
    pub fn insert(&self, fs: &F, name: &str, file: &Arc<F::File>) {
        let mut shard = self.shard(name);
        // Looked at under the shard's lock: a removal from now on finds it here.
        if !is_linked(fs, file) {
            return;
        }
        // Space of objects that another process removed comes back when the file is closed.
        shard.retain(|open| open.name != name && is_linked(fs, &open.file));
        if shard.len() >= FILES_PER_SHARD {
            shard.remove(0);
        }
        shard.push(Open { name: name.to_owned(), file: Arc::clone(file) });
    }

    /// Forgets an object whose file was removed.
    pub fn remove(&self, name: &str) {
        self.shard(name).retain(|open| open.name != name);
    }

    /// Closes the files whose objects were removed by other processes.
    pub fn drop_removed(&self, fs: &F) {
        for shard in &self.shards {
            shard.lock().retain(|open| is_linked(fs, &open.file));
        }
    }

    fn shard(&self, name: &str) -> MutexGuard<'_, Vec<Open<F>>> {
        // The remainder is below SHARDS, which fits.
        let number = (xxhash_rust::xxh3::xxh3_64(name.as_bytes()) % SHARDS) as usize;
        self.shards[number].lock()
    }
}

fn is_linked<F: FileSystem>(fs: &F, file: &F::File) -> bool {
    fs.metadata(file).is_ok_and(|metadata| metadata.links > 0)
}
