//! A store in memory that counts what is asked of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Entry, Lease, ObjectStore, ObjectWriter, Result, StoreError, Tag};

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

#[derive(Default)]
pub struct MemoryStore {
    objects: Objects,
    calls: AtomicU64,
    bytes: AtomicU64,
    /// How long a read of a recipe takes.
    recipe_ms: AtomicU64,
    /// Reads of recipes that are waited for, and how often the first of them began.
    waiting: AtomicU64,
    rounds: AtomicU64,
}

impl MemoryStore {
    /// From now on reads of recipes take so long.
    pub fn slow_down(&self, recipe_ms: u64) {
        self.recipe_ms.store(recipe_ms, Ordering::Relaxed);
    }

    /// How often reads of recipes began while no other was waited for.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    fn wait(&self, name: &str) {
        let recipe_ms = self.recipe_ms.load(Ordering::Relaxed);
        if recipe_ms > 0 && [".root", ".pages"].iter().any(|end| name.ends_with(end)) {
            let is_first = self.waiting.fetch_add(1, Ordering::SeqCst) == 0;
            self.rounds.fetch_add(u64::from(is_first), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(recipe_ms));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Calls, and bytes read, since this was asked before.
    pub fn take_counts(&self) -> (u64, u64) {
        (self.calls.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.part(name, |bytes| Ok(bytes.to_vec()))
    }

    fn part(&self, name: &str, of: impl FnOnce(&[u8]) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.wait(name);
        let objects = self.objects.lock().unwrap();
        let object = objects.get(name).ok_or_else(|| StoreError::NotFound { object: name.into() })?;
        let part = of(object)?;
        self.bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
        Ok(part)
    }
}

impl ObjectStore for MemoryStore {
    fn location(&self) -> String {
        "memory".into()
    }
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.objects.lock().unwrap().insert(name.into(), parts.concat());
        Ok(())
    }
    fn writer(&self, _: &str) -> Result<Box<dyn ObjectWriter>> {
        unimplemented!("nothing is backed up to it")
    }
    fn len(&self, name: &str) -> Result<u64> {
        self.get(name).map(|bytes| bytes.len() as u64)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let part = self.part(name, |bytes| {
            let range = offset as usize..offset as usize + buf.len();
            bytes.get(range).map(<[u8]>::to_vec).ok_or_else(|| StoreError::OutOfRange {
                object: name.into(),
                offset,
                len: buf.len() as u64,
                size: bytes.len() as u64,
            })
        })?;
        buf.copy_from_slice(&part);
        Ok(())
    }
    fn read(&self, name: &str, _: u64) -> Result<Vec<u8>> {
        self.get(name)
    }
    fn will_read(&self, _: &str, _: u64, _: u64) {
        // A directory opens a file for it.
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        Ok(self.get(name).ok().map(|bytes| (bytes, Tag([0; 16]))))
    }
    fn swap(&self, name: &str, _: Option<Tag>, data: &[u8]) -> Result<Tag> {
        self.put(name, &[data]).map(|()| Tag([0; 16]))
    }
    fn punch(&self, _: &str, _: &[(u64, u64)]) -> Result<()> {
        unimplemented!("nothing is deleted from it")
    }
    fn delete(&self, name: &str) -> Result<bool> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(self.objects.lock().unwrap().remove(name).is_some())
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let objects = self.objects.lock().unwrap();
        let found = objects.range(prefix.to_string()..).take_while(|(name, _)| name.starts_with(prefix));
        let entry = |(name, bytes): (&String, &Vec<u8>)| {
            let len = bytes.len() as u64;
            Entry { name: name.clone(), len, allocated: len }
        };
        let entries: Vec<Entry> = found.map(entry).collect();
        drop(objects);
        entries.into_iter().try_for_each(each)
    }
    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>> {
        self.put(name, &[data])?;
        Ok(Box::new(MemoryLease { name: name.into(), objects: self.objects.clone() }))
    }
    fn is_leased(&self, name: &str) -> Result<bool> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(self.objects.lock().unwrap().contains_key(name))
    }
    fn allocated(&self, name: &str) -> Result<u64> {
        self.len(name)
    }
    fn free(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}

struct MemoryLease {
    name: String,
    objects: Objects,
}

impl Lease for MemoryLease {
    fn name(&self) -> &str {
        &self.name
    }
    fn replace(&mut self, data: &[u8]) -> Result<()> {
        self.objects.lock().unwrap().insert(self.name.clone(), data.to_vec());
        Ok(())
    }
    fn is_valid(&self) -> bool {
        true
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.objects.lock().unwrap().remove(&self.name);
    }
}
