//! A store that counts requests by kind, and that can take a given time for each: what a vault would ask of a store
//! behind a network.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use store::{Entry, Lease, ObjectStore, ObjectWriter, Result, StoreError, Tag};

use super::layer::{Layer, Layered};

/// Objects in one answer to a listing, as S3 has it.
const LISTED_AT_ONCE: u64 = 1000;

/// Requests, and the bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Of an object or a part of one, or of its length.
    pub reads: u64,
    /// Of a thousand names each.
    pub lists: u64,
    /// New objects, and objects that are held.
    pub puts: u64,
    /// Replaced objects.
    pub swaps: u64,
    /// Removed objects, and punched ones.
    pub deletes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Requests {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.reads + self.lists + self.puts + self.swaps + self.deletes
    }
}

/// Requests by what was asked of which kind of object: "read recipes .root".
pub type ByObject = BTreeMap<String, u64>;

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    lists: AtomicU64,
    puts: AtomicU64,
    swaps: AtomicU64,
    deletes: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    delay_micros: AtomicU64,
    by_object: Mutex<ByObject>,
}

impl Counters {
    fn ask(&self, (kind, verb): (&AtomicU64, &str), name: &str, times: u64) {
        kind.fetch_add(times, Ordering::Relaxed);
        let object = format!("{verb} {}", kind_of_object(name));
        *self.by_object.lock().unwrap_or_else(PoisonError::into_inner).entry(object).or_default() += times;
        let delay = self.delay_micros.load(Ordering::Relaxed) * times;
        if delay > 0 {
            std::thread::sleep(Duration::from_micros(delay));
        }
    }

    fn read(&self, name: &str, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ask((&self.reads, "read"), name, 1);
    }

    fn list(&self, prefix: &str, listed: u64) {
        self.ask((&self.lists, "list"), prefix, listed / LISTED_AT_ONCE + 1);
    }

    fn put(&self, name: &str, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ask((&self.puts, "put"), name, 1);
    }

    fn swap(&self, name: &str, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ask((&self.swaps, "swap"), name, 1);
    }

    fn delete(&self, name: &str) {
        self.ask((&self.deletes, "delete"), name, 1);
    }
}

/// The kind of an object: its folder, without ids, and what its name ends in.
fn kind_of_object(name: &str) -> String {
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    let folder = if first == "disks" { parts.nth(1).unwrap_or(first) } else { first };
    let end = name.rsplit('/').next().and_then(|last| last.rsplit_once('.')).map(|(_, end)| end);
    match end.filter(|end| end.starts_with(|c: char| c.is_ascii_alphabetic())) {
        Some(end) if name != "vault.json" => format!("{folder} .{end}"),
        _ => folder.to_owned(),
    }
}

/// Reads what was counted, and sets the time that a request takes; cheap to clone.
#[derive(Clone, Default)]
pub struct RequestMeter(Arc<Counters>);

impl RequestMeter {
    /// What was asked since this was called last.
    pub fn take(&self) -> Requests {
        let c = &self.0;
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Requests {
            reads: take(&c.reads),
            lists: take(&c.lists),
            puts: take(&c.puts),
            swaps: take(&c.swaps),
            deletes: take(&c.deletes),
            read_bytes: take(&c.read_bytes),
            written_bytes: take(&c.written_bytes),
        }
    }

    /// The same since this was called last, by kind of object.
    pub fn take_by_object(&self) -> ByObject {
        std::mem::take(&mut *self.0.by_object.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The time that each request takes from now on, on top of the store's own.
    pub fn set_delay(&self, delay: Duration) {
        self.0.delay_micros.store(delay.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Counts what is asked of another store.
pub type RequestStore<S> = Layered<CountedRequests<S>>;

/// The layer that counts.
pub struct CountedRequests<S> {
    inner: S,
    meter: RequestMeter,
}

impl<S: ObjectStore> RequestStore<S> {
    /// A store whose requests `meter` counts.
    pub fn new(inner: S, meter: RequestMeter) -> Self {
        Layered(CountedRequests { inner, meter })
    }
}

impl<S: ObjectStore> Layer for CountedRequests<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.meter.0.put(name, parts.iter().map(|p| p.len() as u64).sum());
        self.inner.put(name, parts)
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        let inner = self.inner.writer(name)?;
        Ok(Box::new(CountingWriter { inner, name: name.to_owned(), meter: self.meter.clone(), bytes: 0 }))
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.meter.0.read(name, 0);
        self.inner.len(name)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.meter.0.read(name, buf.len() as u64);
        self.inner.read_at(name, offset, buf)
    }

    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        let read = self.inner.read(name, max);
        self.meter.0.read(name, read.as_ref().map_or(0, |bytes| bytes.len() as u64));
        read
    }

    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        let loaded = self.inner.load(name);
        let bytes = loaded.as_ref().ok().and_then(Option::as_ref).map_or(0, |(bytes, _)| bytes.len() as u64);
        self.meter.0.read(name, bytes);
        loaded
    }

    fn swap(&self, name: &str, expected: Option<Tag>, data: &[u8]) -> Result<Tag> {
        self.meter.0.swap(name, data.len() as u64);
        self.inner.swap(name, expected, data)
    }

    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()> {
        self.meter.0.delete(name);
        self.inner.punch(name, holes)
    }

    fn punch_measured(&self, name: &str, holes: &[(u64, u64)]) -> Result<u64> {
        self.meter.0.delete(name);
        self.inner.punch_measured(name, holes)
    }

    fn delete(&self, name: &str) -> Result<bool> {
        self.meter.0.delete(name);
        self.inner.delete(name)
    }

    fn delete_measured(&self, name: &str) -> Result<u64> {
        self.meter.0.delete(name);
        self.inner.delete_measured(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let mut listed = 0;
        self.inner.list(prefix, &mut |entry| {
            listed += 1;
            each(entry)
        })?;
        self.meter.0.list(prefix, listed);
        Ok(())
    }

    fn list_names_from(
        &self,
        prefix: &str,
        from: &str,
        each: &mut dyn FnMut(String) -> Result<()>,
    ) -> Result<()> {
        let mut listed = 0;
        self.inner.list_names_from(prefix, from, &mut |name| {
            listed += 1;
            each(name)
        })?;
        self.meter.0.list(prefix, listed);
        Ok(())
    }

    fn list_folders(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let mut listed = 0;
        self.inner.list_folders(prefix, &mut |folder| {
            listed += 1;
            each(folder)
        })?;
        self.meter.0.list(prefix, listed);
        Ok(())
    }

    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>> {
        self.meter.0.put(name, data.len() as u64);
        let inner = self.inner.lease(name, data)?;
        Ok(Box::new(CountingLease { inner: Some(inner), name: name.to_owned(), meter: self.meter.clone() }))
    }

    fn is_leased(&self, name: &str) -> Result<bool> {
        self.meter.0.read(name, 0);
        self.inner.is_leased(name)
    }

    fn allocated(&self, name: &str) -> Result<u64> {
        self.meter.0.read(name, 0);
        self.inner.allocated(name)
    }
}

/// An object being written: one request, when it is finished.
struct CountingWriter {
    inner: Box<dyn ObjectWriter>,
    name: String,
    meter: RequestMeter,
    bytes: u64,
}

impl ObjectWriter for CountingWriter {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.bytes += data.len() as u64;
        self.inner.append(data)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.meter.0.put(&self.name, self.bytes);
        self.inner.finish()
    }
}

/// A held object, whose removal is a request.
struct CountingLease {
    inner: Option<Box<dyn Lease>>,
    name: String,
    meter: RequestMeter,
}

impl Lease for CountingLease {
    fn name(&self) -> &str {
        &self.name
    }

    fn replace(&mut self, data: &[u8]) -> Result<()> {
        self.meter.0.swap(&self.name, data.len() as u64);
        match &mut self.inner {
            Some(inner) => inner.replace(data),
            None => Err(StoreError::NotFound { object: self.name.clone() }),
        }
    }

    fn is_valid(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_valid())
    }
}

impl Drop for CountingLease {
    fn drop(&mut self) {
        self.meter.0.delete(&self.name);
        self.inner = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use store::{SimFs, SimStore};

    #[test]
    fn every_request_is_counted_and_takes_its_time() {
        let meter = RequestMeter::default();
        let store = RequestStore::new(SimStore::create_on(SimFs::new(1)).expect("store"), meter.clone());
        store.put("a/x", &[&[7; 60], &[8; 40]]).expect("put");
        let mut writer = store.writer("a/y").expect("writer");
        writer.append(&[1; 50]).expect("append");
        writer.finish().expect("finish");
        let tag = store.swap("a/m", None, &[2; 10]).expect("swap");
        store.swap("a/m", Some(tag), &[3; 20]).expect("swap");
        drop(store.lease("b/h", &[4; 5]).expect("hold"));
        let written = Requests { puts: 3, swaps: 2, deletes: 1, written_bytes: 185, ..Requests::default() };
        assert_eq!(meter.take(), written);
        store.read("a/x", 100).expect("read");
        store.read_at("a/y", 10, &mut [0; 20]).expect("read");
        store.load("a/m").expect("load");
        store.list("a/", &mut |_| Ok(())).expect("list");
        assert!(!store.is_leased("b/h").expect("held"));
        assert!(store.delete("a/x").expect("delete"));
        let read = Requests { reads: 4, lists: 1, deletes: 1, read_bytes: 140, ..Requests::default() };
        assert_eq!((meter.take(), read.all()), (read, 6));
        meter.set_delay(Duration::from_millis(30));
        let start = Instant::now();
        store.len("a/y").expect("len");
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
