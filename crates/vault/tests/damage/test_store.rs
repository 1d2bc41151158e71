//! A store whose objects can be copied quickly, and harmed.

use std::sync::Arc;
use store::{ObjectStore, SimFs, SimStore};
use vault::Vault;

/// A store on a simulated disk: a copy costs no system call. Each vault on it is a process of its own.
pub struct TestStore(SimFs);

impl TestStore {
    /// An empty one.
    pub fn new() -> TestStore {
        let fs = SimFs::new(1);
        SimStore::create_on(fs.clone()).unwrap();
        TestStore(fs)
    }

    /// The same objects, for processes of its own.
    pub fn copy(&self) -> TestStore {
        TestStore(self.0.copy())
    }

    /// The same store.
    pub fn same(&self) -> TestStore {
        TestStore(self.0.clone())
    }

    pub fn open(&self) -> SimStore {
        SimStore::open_on(self.0.process()).unwrap()
    }

    pub fn vault(&self) -> vault::Result<Vault> {
        // So few that the disks have pages of snapshots.
        Ok(Vault::open(Arc::new(self.open()))?.with_recent_max(1))
    }

    pub fn find(&self, object: &str) -> Option<Vec<u8>> {
        self.open().read(object, u64::MAX).ok()
    }

    pub fn read(&self, object: &str) -> Vec<u8> {
        self.find(object).unwrap()
    }

    pub fn len(&self, object: &str) -> usize {
        self.open().len(object).unwrap() as usize
    }

    /// Puts bytes in the place of what was there.
    pub fn write(&self, object: &str, bytes: &[u8]) {
        let store = self.open();
        store.delete(object).unwrap();
        store.put(object, &[bytes]).unwrap();
    }

    pub fn remove(&self, object: &str) {
        assert!(self.open().delete(object).unwrap());
    }

    /// The names of all objects, in order.
    pub fn objects(&self) -> Vec<String> {
        let mut all = Vec::new();
        let each = &mut |entry: store::Entry| {
            all.push(entry.name);
            Ok(())
        };
        self.open().list("", each).unwrap();
        all.sort();
        all
    }
}
