//! A store that counts containers' data instead of keeping it: the space of what would not fit on this machine.
//!
//! It serves backups that never read data back: policies that compact and punch nothing. All other objects are kept, and
//! so is data that was there before.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use store::{Entry, ObjectStore, ObjectWriter, Result, StoreError};

use super::layer::{Layer, Layered};

/// Lengths of data objects by name.
type Lengths = Arc<Mutex<HashMap<String, u64>>>;

/// Counts data, and keeps everything else in a store.
pub type CountingStore<S> = Layered<CountingData<S>>;

/// The layer that counts.
pub struct CountingData<S> {
    inner: S,
    lengths: Lengths,
}

impl<S: ObjectStore> CountingStore<S> {
    /// Nothing is counted yet.
    pub fn new(inner: S) -> Self {
        Layered(CountingData { inner, lengths: Lengths::default() })
    }
}

impl<S: ObjectStore> CountingData<S> {
    /// The length of data that was counted; `None` of all other objects.
    fn counted(&self, name: &str) -> Option<u64> {
        locked(&self.lengths).get(name).copied()
    }
}

fn is_data(name: &str) -> bool {
    name.ends_with(".data")
}

fn locked(lengths: &Lengths) -> MutexGuard<'_, HashMap<String, u64>> {
    lengths.lock()
}

fn not_kept(name: &str, op: &'static str) -> StoreError {
    let source = std::io::Error::other("this store only counts data");
    StoreError::Io { object: name.to_owned(), op, source }
}

impl<S: ObjectStore> Layer for CountingData<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    fn location(&self) -> String {
        format!("{} (data counted)", self.inner.location())
    }

    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        if !is_data(name) {
            return self.inner.put(name, parts);
        }
        let mut writer = self.writer(name)?;
        parts.iter().try_for_each(|part| writer.append(part))?;
        writer.finish()
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        if !is_data(name) {
            return self.inner.writer(name);
        }
        let (name, lengths) = (name.to_owned(), Arc::clone(&self.lengths));
        Ok(Box::new(CountingWriter { name, lengths, length: 0 }))
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.counted(name).map_or_else(|| self.inner.len(name), Ok)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.counted(name) {
            Some(_) => Err(not_kept(name, "read")),
            None => self.inner.read_at(name, offset, buf),
        }
    }

    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        match self.counted(name) {
            Some(_) => Err(not_kept(name, "read")),
            None => self.inner.read(name, max),
        }
    }

    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()> {
        match self.counted(name) {
            Some(_) => Err(not_kept(name, "punch holes into")),
            None => self.inner.punch(name, holes),
        }
    }

    fn delete(&self, name: &str) -> Result<bool> {
        match locked(&self.lengths).remove(name) {
            Some(_) => Ok(true),
            None => self.inner.delete(name),
        }
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.inner.list(prefix, each)?;
        let counted = locked(&self.lengths).clone();
        let mut found = counted.into_iter().filter(|(name, _)| name.starts_with(prefix));
        found.try_for_each(|(name, len)| each(Entry { name, len, allocated: len }))
    }

    fn allocated(&self, name: &str) -> Result<u64> {
        self.counted(name).map_or_else(|| self.inner.allocated(name), Ok)
    }
}

/// A data object being counted.
struct CountingWriter {
    name: String,
    lengths: Lengths,
    length: u64,
}

impl ObjectWriter for CountingWriter {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.length += data.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        match locked(&self.lengths).insert(self.name.clone(), self.length) {
            None => Ok(()),
            Some(_) => Err(StoreError::AlreadyExists { object: self.name.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::MemoryDisk;
    use store::LocalStore;
    use vault::{BackupOptions, Progress, Stats, Vault, CONVENTIONAL};

    fn stats_of(store: Arc<dyn ObjectStore>) -> Stats {
        let vault = Vault::init(store, &CONVENTIONAL).expect("vault");
        for step in [1_usize, 7] {
            let bytes = (0..3 << 20).map(|i: usize| (i / 4096 * step) as u8).collect();
            let disk = Box::new(MemoryDisk(Arc::new(bytes)));
            vault.backup("a/a", disk, &BackupOptions::default(), &Progress::default()).expect("backup");
        }
        vault.stats(None).expect("stats")
    }

    #[test]
    fn data_that_was_there_is_kept() {
        let dir = tempfile::tempdir().expect("dir");
        let local = LocalStore::create(dir.path()).expect("store");
        local.put("a/old.data", &[b"there"]).expect("put");
        let store = CountingStore::new(local);
        store.put("a/new.data", &[b"counted"]).expect("put");
        assert_eq!((store.len("a/old.data").expect("len"), store.len("a/new.data").expect("len")), (5, 7));
        assert_eq!(store.read("a/old.data", 9).expect("read"), b"there");
        assert!(store.read("a/new.data", 9).is_err());
        let mut names = Vec::new();
        store
            .list("", &mut |e| {
                names.push(e.name);
                Ok(())
            })
            .expect("list");
        names.sort_unstable();
        assert_eq!(names, ["a/new.data", "a/old.data"]);
        assert!(store.delete("a/old.data").expect("delete") && store.delete("a/new.data").expect("delete"));
        assert!(store.len("a/old.data").is_err() && store.len("a/new.data").is_err());
    }

    #[test]
    fn it_counts_what_a_real_store_holds() {
        let dir = tempfile::tempdir().expect("dir");
        let local = |name: &str| LocalStore::create(dir.path().join(name)).expect("store");
        let real = stats_of(Arc::new(local("real")));
        let counted = stats_of(Arc::new(CountingStore::new(local("counted"))));
        assert!(real.data_bytes() > 0);
        assert_eq!(real.data_bytes(), counted.data_bytes());
        // Random names are not of one length in every encoding.
        assert!(real.metadata_bytes().abs_diff(counted.metadata_bytes()) < 256);
    }
}
