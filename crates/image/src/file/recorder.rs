//! For tests: files in memory, and what a power cut at any moment would leave of them.
#![allow(clippy::unwrap_used)]

use crate::file::random_file::RandomFile;
use rand::rngs::StdRng;
use rand::RngExt;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// A file on a disk that loses, at a power cut, what was not synced, in any part. Clones are the same file.
#[derive(Clone)]
pub(crate) struct Recorder {
    file: usize,
    disk: Arc<Mutex<Disk>>,
}

/// Several files, and what was done to them in its order.
#[derive(Default)]
struct Disk {
    now: Vec<Vec<u8>>,
    operations: Vec<(usize, Operation)>,
    /// No write ends beyond this length.
    room: Option<u64>,
}

enum Operation {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

fn put(bytes: &mut Vec<u8>, at: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let end = at as usize + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at as usize..end].copy_from_slice(data);
}

impl Recorder {
    /// An empty file on a disk of its own.
    pub fn new() -> Recorder {
        Self::holding(Vec::new())
    }

    /// A file that holds `bytes`, all of them durable, on a disk of its own.
    pub fn holding(bytes: Vec<u8>) -> Recorder {
        let disk = Disk { now: vec![bytes], ..Disk::default() };
        Recorder { file: 0, disk: Arc::new(Mutex::new(disk)) }
    }

    /// Another, empty file on the same disk.
    pub fn another(&self) -> Recorder {
        let mut disk = self.lock();
        disk.now.push(Vec::new());
        Recorder { file: disk.now.len() - 1, disk: self.disk.clone() }
    }

    /// What it holds.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().now[self.file].clone()
    }

    /// No write ends beyond this length any more.
    pub fn set_room(&self, room: Option<u64>) {
        self.lock().room = room;
    }

    /// How many operations there were, on all files of the disk.
    pub fn operations(&self) -> usize {
        self.lock().operations.len()
    }

    /// What a power cut after operation `count` may leave of each file: all up to its last sync, and of what follows any
    /// sectors.
    pub fn after_cut(&self, count: usize, rng: &mut StdRng) -> Vec<Vec<u8>> {
        let disk = self.lock();
        (0..disk.now.len()).map(|file| file_after_cut(&disk.operations[..count], file, rng)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }
}

fn file_after_cut(operations: &[(usize, Operation)], file: usize, rng: &mut StdRng) -> Vec<u8> {
    let of_file: Vec<&Operation> = operations.iter().filter(|o| o.0 == file).map(|o| &o.1).collect();
    let synced = of_file.iter().rposition(|o| matches!(o, Operation::Sync)).map_or(0, |n| n + 1);
    // A cache writes each sector as it is at some moment: with all that was written to it before.
    let mut written: HashMap<usize, usize> = HashMap::new();
    let count = of_file.len();
    let mut bytes = Vec::new();
    for (n, operation) in of_file.into_iter().enumerate() {
        match operation {
            Operation::Sync => {}
            Operation::SetLen(len) => bytes.resize(*len as usize, 0),
            Operation::Write(at, data) if n < synced => put(&mut bytes, *at, data),
            Operation::Write(at, data) => {
                let mut from = 0;
                while from < data.len() {
                    let sector = (*at as usize + from) / 512;
                    let to = ((sector + 1) * 512 - *at as usize).min(data.len());
                    let until = *written.entry(sector).or_insert_with(|| rng.random_range(synced..=count));
                    if n < until {
                        put(&mut bytes, at + from as u64, &data[from..to]);
                    }
                    from = to;
                }
            }
        }
    }
    bytes
}

impl RandomFile for Recorder {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let disk = self.lock();
        let from = offset as usize;
        let found = disk.now[self.file].get(from..from + buf.len());
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.lock();
        // What there is room for is written.
        let room = disk.room.map_or(data.len() as u64, |room| room.saturating_sub(offset));
        let written = &data[..data.len().min(room as usize)];
        put(&mut disk.now[self.file], offset, written);
        disk.operations.push((self.file, Operation::Write(offset, written.to_vec())));
        if written.len() < data.len() {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.lock().operations.push((self.file, Operation::Sync));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().now[self.file].len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.lock();
        disk.now[self.file].resize(len as usize, 0);
        disk.operations.push((self.file, Operation::SetLen(len)));
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        self.write_at(range.start, &vec![0; (range.end - range.start) as usize])
    }
    /// Every sector of zeros is a hole.
    fn data_from(&self, from: u64) -> io::Result<Range<u64>> {
        let bytes = &self.lock().now[self.file];
        let ends = |at: u64| (at / 512 * 512 + 512).min(bytes.len() as u64);
        let is_hole = |at: u64| bytes[at as usize..ends(at) as usize].iter().all(|b| *b == 0);
        let mut start = from;
        while start < bytes.len() as u64 && is_hole(start) {
            start = ends(start);
        }
        let mut end = start;
        while end < bytes.len() as u64 && !is_hole(end) {
            end = ends(end);
        }
        Ok(start..end.max(start + 1))
    }
}
