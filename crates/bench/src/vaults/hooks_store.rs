//! A store that has runs of hooks beside what is in another store: their bytes are computed where they are read.

use std::sync::Arc;

use parking_lot::Mutex;
use store::{Entry, Lease, ObjectStore, ObjectWriter, Result, StoreError, Tag};

use crate::workload::hook_runs::HookRun;

/// Runs beside the objects of a store.
pub struct HooksStore<S> {
    inner: S,
    runs: Mutex<Vec<Arc<HookRun>>>,
}

impl<S: ObjectStore> HooksStore<S> {
    /// The store `inner` with these runs.
    pub fn new(inner: S, runs: Vec<Arc<HookRun>>) -> Self {
        Self { inner, runs: Mutex::new(runs) }
    }

    fn run(&self, name: &str) -> Option<Arc<HookRun>> {
        self.runs.lock().iter().find(|run| run.name == name).cloned()
    }
}

impl<S: ObjectStore> ObjectStore for HooksStore<S> {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.inner.put(name, parts)
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.inner.writer(name)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.run(name).map_or_else(|| self.inner.len(name), |run| Ok(run.length()))
    }

    fn read_at(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match self.run(name) {
            None => self.inner.read_at(name, offset, buffer),
            Some(run) if offset + buffer.len() as u64 > run.length() => {
                let object = name.to_owned();
                Err(StoreError::OutOfRange { object, offset, len: buffer.len() as u64, size: run.length() })
            }
            Some(run) => {
                run.read_at(offset, buffer);
                Ok(())
            }
        }
    }

    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        match self.run(name) {
            None => self.inner.read(name, max),
            Some(run) if run.length() > max => {
                Err(StoreError::TooLong { object: name.to_owned(), size: run.length(), max })
            }
            Some(run) => {
                let mut bytes = vec![0; run.length() as usize];
                run.read_at(0, &mut bytes);
                Ok(bytes)
            }
        }
    }

    fn will_read(&self, name: &str, offset: u64, len: u64) {
        self.inner.will_read(name, offset, len);
    }

    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        self.inner.load(name)
    }

    fn swap(&self, name: &str, expected: Option<Tag>, data: &[u8]) -> Result<Tag> {
        self.inner.swap(name, expected, data)
    }

    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()> {
        self.inner.punch(name, holes)
    }

    fn delete(&self, name: &str) -> Result<bool> {
        let mut runs = self.runs.lock();
        match runs.iter().position(|run| run.name == name) {
            Some(at) => {
                runs.remove(at);
                Ok(true)
            }
            None => self.inner.delete(name),
        }
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.inner.list(prefix, each)?;
        let runs = self.runs.lock().clone();
        let mut listed = runs.iter().filter(|run| run.name.starts_with(prefix));
        listed.try_for_each(|run| {
            each(Entry { name: run.name.clone(), len: run.length(), allocated: run.length() })
        })
    }

    fn list_folders(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.inner.list_folders(prefix, each)
    }

    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>> {
        self.inner.lease(name, data)
    }

    fn is_leased(&self, name: &str) -> Result<bool> {
        self.inner.is_leased(name)
    }

    fn allocated(&self, name: &str) -> Result<u64> {
        self.run(name).map_or_else(|| self.inner.allocated(name), |run| Ok(run.length()))
    }

    fn free(&self) -> Result<Option<u64>> {
        self.inner.free()
    }
}
