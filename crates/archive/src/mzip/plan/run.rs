//! Records in a temporary file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes that are written, or read, at a time.
const IO_BYTES: usize = 64 << 10;

/// How many records of so many fields go into so many bytes; one at least.
pub(super) fn records_in<const N: usize>(bytes: usize) -> usize {
    (bytes / (8 * N)).max(1)
}

/// Writes records behind so many others.
pub(super) fn write<const N: usize>(file: &File, records: &[[u64; N]], behind: u64) -> io::Result<()> {
    let mut at = behind * 8 * N as u64;
    let mut bytes = Vec::with_capacity(IO_BYTES.min(records.len() * 8 * N));
    for some in records.chunks(records_in::<N>(IO_BYTES)) {
        bytes.clear();
        some.iter().flatten().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
        file.write_all_at(&bytes, at)?;
        at += bytes.len() as u64;
    }
    Ok(())
}

/// Reads records one after the other.
pub(super) struct Run<const N: usize> {
    file: Arc<File>,
    /// Those that are still to be read.
    rest: Range<u64>,
    bytes: Vec<u8>,
    at: usize,
}

impl<const N: usize> Run<N> {
    /// Reads these records of a file.
    pub(super) fn new(file: Arc<File>, records: Range<u64>) -> Self {
        Run { file, rest: records, bytes: Vec::new(), at: 0 }
    }

    fn refill(&mut self) -> io::Result<()> {
        let some = (self.rest.end - self.rest.start).min(records_in::<N>(IO_BYTES) as u64);
        let from = self.rest.start * 8 * N as u64;
        self.bytes.resize(some as usize * 8 * N, 0);
        self.at = 0;
        self.rest.start += some;
        let done = self.file.read_exact_at(&mut self.bytes, from);
        if done.is_err() {
            // Nothing more comes.
            self.bytes.clear();
            self.rest.start = self.rest.end;
        }
        done
    }
}

impl<const N: usize> Iterator for Run<N> {
    type Item = io::Result<[u64; N]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.bytes.len() {
            if self.rest.is_empty() {
                return None;
            }
            if let Err(e) = self.refill() {
                return Some(Err(e));
            }
        }
        let mut record = [0; N];
        for (field, bytes) in record.iter_mut().zip(self.bytes[self.at..].chunks_exact(8)) {
            *field = bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        }
        self.at += 8 * N;
        Some(Ok(record))
    }
}
