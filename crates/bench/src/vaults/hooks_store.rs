//! A store that has runs of hooks beside what is in another store: their bytes are computed where they are read.

use std::sync::Arc;

use parking_lot::Mutex;
use store::{Entry, ObjectStore, Result, StoreError};

use super::layer::{Layer, Layered};
use crate::workload::hook_runs::HookRun;

/// Runs beside the objects of a store.
pub type HooksStore<S> = Layered<HookRuns<S>>;

/// The layer that has the runs.
pub struct HookRuns<S> {
    inner: S,
    runs: Mutex<Vec<Arc<HookRun>>>,
}

impl<S: ObjectStore> HooksStore<S> {
    /// The store `inner` with these runs.
    pub fn new(inner: S, runs: Vec<Arc<HookRun>>) -> Self {
        Layered(HookRuns { inner, runs: Mutex::new(runs) })
    }
}

impl<S: ObjectStore> HookRuns<S> {
    fn run(&self, name: &str) -> Option<Arc<HookRun>> {
        self.runs.lock().iter().find(|run| run.name == name).cloned()
    }
}

impl<S: ObjectStore> Layer for HookRuns<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
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

    fn allocated(&self, name: &str) -> Result<u64> {
        self.run(name).map_or_else(|| self.inner.allocated(name), |run| Ok(run.length()))
    }
}
