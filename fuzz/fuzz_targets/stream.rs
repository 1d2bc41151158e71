//! A disk that comes through a pipe in pieces of any length. The input's first bytes are those lengths.
#![no_main]

use image::{Source, Stream};
use libfuzzer_sys::fuzz_target;
use std::io::{Error, ErrorKind, Read, Result};

/// Gives pieces of the lengths told, over and over; a length of 0 is an interruption.
struct Pieces {
    rest: Vec<u8>,
    lengths: Vec<u8>,
    next: usize,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let len = self.lengths.get(self.next % self.lengths.len().max(1)).copied().unwrap_or(7);
        self.next += 1;
        if len == 0 && self.next < 100 {
            return Err(Error::from(ErrorKind::Interrupted));
        }
        let n = usize::from(len).max(1).min(buf.len()).min(self.rest.len());
        buf[..n].copy_from_slice(&self.rest[..n]);
        self.rest.drain(..n);
        Ok(n)
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (lengths, disk) = bytes.split_at(bytes.len().min(8));
    let pieces = Pieces { rest: disk.to_vec(), lengths: lengths.to_vec(), next: 0 };
    let mut stream = Stream::new(pieces, "stream");
    let mut got = Vec::new();
    let mut buf = vec![0xee; 1 + lengths.iter().map(|&b| usize::from(b)).sum::<usize>()];
    loop {
        assert!(stream.read_at(got.len() as u64 + 1, &mut buf[..1]).is_err());
        let Ok(n) = stream.read_at(got.len() as u64, &mut buf) else { panic!("the stream broke") };
        got.extend_from_slice(&buf[..n]);
        if n < buf.len() {
            break;
        }
    }
    assert_eq!(got, disk);
    assert_eq!(stream.size(), Some(disk.len() as u64));
    assert!(matches!(stream.next_data(disk.len() as u64), Ok(None)));
});
