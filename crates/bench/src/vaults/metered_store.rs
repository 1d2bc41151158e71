//! A store that counts the bytes that are read from it: containers' data, their tables, and everything else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use serde::Serialize;
use store::{ObjectStore, Result, Tag};

use super::layer::{Layer, Layered};

/// Bytes read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BytesRead {
    /// Of containers' data.
    pub data: u64,
    /// Of containers' chunk tables.
    pub tables: u64,
    /// Of everything else: manifests, recipes, summaries, lists of dead chunks.
    pub other: u64,
}

/// Reads what was counted; cheap to clone.
#[derive(Clone, Default)]
pub struct Meter(Arc<[AtomicU64; 3]>);

impl Meter {
    /// What was read since this was asked last.
    pub fn take(&self) -> BytesRead {
        let [data, tables, other] = self.0.each_ref().map(|counter| counter.swap(0, Ordering::Relaxed));
        BytesRead { data, tables, other }
    }

    fn add(&self, name: &str, bytes: usize) {
        let kind = match name.rsplit('.').next() {
            Some("data") => 0,
            Some("table") => 1,
            _ => 2,
        };
        self.0[kind].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Counts what is read from another store.
pub type MeteredStore<S> = Layered<Metered<S>>;

/// The layer that counts.
pub struct Metered<S> {
    inner: S,
    meter: Meter,
}

impl<S: ObjectStore> MeteredStore<S> {
    /// Nothing was read yet.
    pub fn new(inner: S) -> Self {
        Layered(Metered { inner, meter: Meter::default() })
    }

    /// What counts.
    pub fn meter(&self) -> Meter {
        self.0.meter.clone()
    }
}

impl<S: ObjectStore> Layer for Metered<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)?;
        self.meter.add(name, buf.len());
        Ok(())
    }

    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        let bytes = self.inner.read(name, max)?;
        self.meter.add(name, bytes.len());
        Ok(bytes)
    }

    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        let loaded = self.inner.load(name)?;
        self.meter.add(name, loaded.as_ref().map_or(0, |(bytes, _)| bytes.len()));
        Ok(loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::LocalStore;

    #[test]
    fn reads_are_counted_by_kind() {
        let dir = tempfile::tempdir().expect("dir");
        let store = MeteredStore::new(LocalStore::create(dir.path()).expect("store"));
        let meter = store.meter();
        store.put("a/x.data", &[&[7; 100]]).expect("put");
        store.swap("a/manifest", None, &[1; 30]).expect("swap");
        assert_eq!(meter.take(), BytesRead::default());
        store.read_at("a/x.data", 10, &mut [0; 40]).expect("read");
        store.load("a/manifest").expect("load");
        store.put("a/x.table", &[&[7; 9]]).expect("put");
        store.read("a/x.table", 10).expect("read");
        assert_eq!(meter.take(), BytesRead { data: 40, tables: 9, other: 30 });
        assert!(store.read_at("a/x.data", 90, &mut [0; 40]).is_err());
        assert_eq!(meter.take(), BytesRead::default());
    }
}
