//! The server against a client that shares its memory, as a virtual machine does.
#![allow(clippy::unwrap_used)]

mod clients;
mod hostile;
mod requests;
mod stopping;

use super::{Server, ServerOptions};
use crate::device::BlockDevice;
use crate::exports::Exports;
use crate::memory_device::Memory;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testing::vhost::{feature, Guest};

/// Bytes of the device that most tests use: not whole blocks.
const SIZE: u64 = (3 << 20) + 512;
/// What a guest wants that can do all.
const ALL: u64 = feature::FLUSH | feature::EVENT_INDEX | feature::READ_ONLY;

/// Disks by their names.
#[derive(Clone, Default)]
struct Disks(Arc<Mutex<Vec<NamedDisk>>>);

type NamedDisk = (String, Arc<Memory>);

impl Exports for Disks {
    fn list(&self) -> Vec<(String, String)> {
        self.0.lock().iter().map(|(name, _)| (name.clone(), String::new())).collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        let disks = self.0.lock();
        let disk = disks.iter().find(|(n, _)| n == name)?;
        Some(disk.1.clone())
    }
}

/// A server of one disk, "web/01", in memory.
struct Bench {
    server: Option<Server>,
    disks: Disks,
    device: Arc<Memory>,
    errors: Arc<Mutex<Vec<String>>>,
    dir: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench::of(Memory::new(SIZE))
    }

    fn of(device: Memory) -> Bench {
        let (device, disks) = (Arc::new(device), Disks::default());
        disks.0.lock().push(("web/01".into(), device.clone()));
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench { server: None, disks, device, errors: Arc::default(), dir };
        bench.start("one");
        bench
    }

    fn start(&mut self, lineage: &str) {
        let errors = self.errors.clone();
        let options = ServerOptions {
            threads: 3,
            lineage: lineage.into(),
            on_error: Arc::new(move |line: &str| errors.lock().push(line.to_owned())),
            patience: Duration::from_millis(300),
        };
        self.server = Some(Server::start(self.dir.path(), Box::new(self.disks.clone()), options).unwrap());
    }

    fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    fn socket(&self) -> PathBuf {
        Server::path_of(self.dir.path(), "web/01")
    }

    fn guest(&self) -> Guest {
        Guest::connect(&self.socket(), ALL).unwrap()
    }

    /// What was reported, once it is so many lines.
    fn errors(&self, count: usize) -> Vec<String> {
        wait_until(|| self.errors.lock().len() >= count);
        self.errors.lock().clone()
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never became so");
        std::thread::sleep(Duration::from_millis(5));
    }
}
