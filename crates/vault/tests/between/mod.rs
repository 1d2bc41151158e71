//! A store on which something else happens between two operations.
#![allow(dead_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::{Entry, Lease, ObjectStore, ObjectWriter, Result, SimStore, Tag};

type Action = Box<dyn FnOnce() + Send>;

/// Passes everything on to a store, and carries an action out before one operation.
pub struct Between {
    inner: SimStore,
    operations: Arc<AtomicU64>,
    sessions: AtomicU64,
    at: u64,
    from_session: u64,
    /// Nothing but swaps of manifests counts.
    swaps_only: bool,
    action: Mutex<Option<Action>>,
    reads: Reads,
}

/// The names of objects that were read, as often as they were.
pub type Reads = Arc<Mutex<Vec<String>>>;

impl Between {
    /// Operations count from session number `from_session` on.
    pub fn new(inner: SimStore, at: u64, from_session: u64, action: Action) -> Self {
        let (operations, sessions) = Default::default();
        let action = Mutex::new(Some(action));
        let reads = Reads::default();
        Between { inner, operations, sessions, at, from_session, swaps_only: false, action, reads }
    }

    /// Nothing happens in between.
    pub fn counting(inner: SimStore) -> Self {
        Between::new(inner, u64::MAX, 0, Box::new(|| ()))
    }

    /// Nothing but swaps counts: what loses one begins it anew.
    pub fn before_swap(inner: SimStore, at: u64, action: Action) -> Self {
        Between { swaps_only: true, ..Between::new(inner, at, 0, action) }
    }

    /// How many operations there have been, of those that count.
    pub fn operations(&self) -> Arc<AtomicU64> {
        self.operations.clone()
    }

    /// What is read from now on.
    pub fn reads(&self) -> Reads {
        self.reads.clone()
    }

    fn read_step(&self, name: &str) -> &SimStore {
        self.reads.lock().unwrap().push(name.to_owned());
        self.step()
    }

    fn step(&self) -> &SimStore {
        if self.swaps_only || self.sessions.load(Ordering::Relaxed) < self.from_session {
            return &self.inner;
        }
        self.count()
    }

    fn count(&self) -> &SimStore {
        if self.operations.fetch_add(1, Ordering::Relaxed) == self.at {
            let action = self.action.lock().unwrap().take();
            action.into_iter().for_each(|act| act());
        }
        &self.inner
    }
}

impl ObjectStore for Between {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.step().put(name, parts)
    }
    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.step().writer(name)
    }
    fn len(&self, name: &str) -> Result<u64> {
        self.step().len(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_step(name).read_at(name, offset, buf)
    }
    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        self.read_step(name).read(name, max)
    }
    fn will_read(&self, name: &str, offset: u64, len: u64) {
        self.inner.will_read(name, offset, len);
    }
    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        self.read_step(name).load(name)
    }
    fn swap(&self, name: &str, expected: Option<Tag>, data: &[u8]) -> Result<Tag> {
        let inner = if self.swaps_only { self.count() } else { self.step() };
        inner.swap(name, expected, data)
    }
    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()> {
        self.step().punch(name, holes)
    }
    fn delete(&self, name: &str) -> Result<bool> {
        self.step().delete(name)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.step().list(prefix, each)
    }
    fn list_folders(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.step().list_folders(prefix, each)
    }
    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>> {
        if name.starts_with("sessions/") {
            self.sessions.fetch_add(1, Ordering::Relaxed);
        }
        self.step().lease(name, data)
    }
    fn is_leased(&self, name: &str) -> Result<bool> {
        self.step().is_leased(name)
    }
    fn allocated(&self, name: &str) -> Result<u64> {
        self.step().allocated(name)
    }
    fn free(&self) -> Result<Option<u64>> {
        self.step().free()
    }
    fn sweep(&self) -> Result<u64> {
        self.step().sweep()
    }
}
