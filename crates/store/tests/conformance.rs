//! The conformance suite on the backends that are here.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use store::{conformance, Entry, Lease, LocalStore, ObjectStore, ObjectWriter, Result, SimFs, SimStore, Tag};

#[test]
fn local() {
    let dir = tempfile::tempdir().unwrap();
    let next = AtomicUsize::new(0);
    conformance::run(&|| {
        let path = dir.path().join(next.fetch_add(1, Ordering::Relaxed).to_string());
        Box::new(LocalStore::create(path).unwrap())
    });
    assert!(conformance::count() >= 40);
}

#[test]
fn simulated() {
    for seed in 0..3 {
        println!("seed {seed}");
        conformance::run(&|| Box::new(SimStore::create_on(SimFs::new(seed)).unwrap()));
    }
}

/// Two processes' stores must be as good as one.
#[test]
fn spread_over_processes() {
    let dir = tempfile::tempdir().unwrap();
    let next = AtomicUsize::new(0);
    conformance::run(&|| {
        let path = dir.path().join(next.fetch_add(1, Ordering::Relaxed).to_string());
        Box::new(Spread::new([LocalStore::create(&path).unwrap(), LocalStore::open(&path).unwrap()]))
    });
    for seed in 0..3 {
        println!("seed {seed}");
        conformance::run(&|| {
            let fs = SimFs::new(seed);
            let one = SimStore::create_on(fs.clone()).unwrap();
            Box::new(Spread::new([one, SimStore::open_on(fs.process()).unwrap()]))
        });
    }
}

/// Gives every call to the other one of two stores.
struct Spread<S> {
    stores: [S; 2],
    calls: AtomicUsize,
}

impl<S: ObjectStore> Spread<S> {
    fn new(stores: [S; 2]) -> Self {
        Self { stores, calls: AtomicUsize::new(0) }
    }

    fn next(&self) -> &S {
        &self.stores[self.calls.fetch_add(1, Ordering::Relaxed) % 2]
    }
}

impl<S: ObjectStore> ObjectStore for Spread<S> {
    fn location(&self) -> String {
        self.next().location()
    }
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.next().put(name, parts)
    }
    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.next().writer(name)
    }
    fn len(&self, name: &str) -> Result<u64> {
        self.next().len(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.next().read_at(name, offset, buf)
    }
    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        self.next().read(name, max)
    }
    fn will_read(&self, name: &str, offset: u64, len: u64) {
        self.next().will_read(name, offset, len)
    }
    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        self.next().load(name)
    }
    fn swap(&self, name: &str, expected: Option<Tag>, data: &[u8]) -> Result<Tag> {
        self.next().swap(name, expected, data)
    }
    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()> {
        self.next().punch(name, holes)
    }
    fn delete(&self, name: &str) -> Result<bool> {
        self.next().delete(name)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.next().list(prefix, each)
    }
    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>> {
        self.next().lease(name, data)
    }
    fn is_leased(&self, name: &str) -> Result<bool> {
        self.next().is_leased(name)
    }
    fn allocated(&self, name: &str) -> Result<u64> {
        self.next().allocated(name)
    }
    fn free(&self) -> Result<Option<u64>> {
        self.next().free()
    }
    fn sweep(&self) -> Result<u64> {
        self.next().sweep()
    }
}
