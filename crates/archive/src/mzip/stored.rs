//! The input, kept for its second reading: in memory, in a temporary file, or where it is.

use super::base::error::{MzipError, Result};
use super::base::read_at::ReadAt;
use crate::stream::fill;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a stream that are kept at a time.
const KEPT_BYTES: usize = 4 << 20;

/// A stream that is kept to be read at any place: in memory, or in a temporary file.
pub struct Kept(Stored<'static>);

impl Kept {
    /// Reads a stream to its end. Beyond so many bytes in memory, it is kept in a file without a name in a directory.
    ///
    /// # Errors
    /// If it cannot be read, or the file cannot be written.
    pub fn new(stream: &mut dyn Read, memory: u64, scratch: &Path) -> Result<Kept> {
        let mut stored = Stored::new();
        loop {
            let mut segment = vec![0; KEPT_BYTES];
            let len = fill(stream, &mut segment).map_err(MzipError::Read)?;
            segment.truncate(len);
            stored.push(&Arc::new(segment), memory, scratch).map_err(MzipError::Scratch)?;
            // A pipe could be read on if another program opened it.
            if len < KEPT_BYTES {
                return Ok(Kept(stored));
            }
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        match &self.0 {
            Stored::Memory { len, .. } => *len,
            _ => 0,
        }
    }
}

impl ReadAt for Kept {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(bytes, offset)
    }
}

/// Where the input is read again.
pub(super) enum Stored<'a> {
    /// Segments of equal length, but for the last.
    Memory { segments: Vec<Arc<Vec<u8>>>, len: u64 },
    /// A temporary file.
    Scratch { file: File, len: u64 },
    /// The input itself.
    Input(&'a dyn ReadAt),
}

impl Stored<'_> {
    /// Nothing yet, in memory.
    pub(super) fn new() -> Self {
        Stored::Memory { segments: Vec::new(), len: 0 }
    }

    /// Keeps the next segment. Beyond so many bytes in memory, all goes to a file in a directory.
    pub(super) fn push(&mut self, segment: &Arc<Vec<u8>>, memory: u64, directory: &Path) -> io::Result<()> {
        let bytes = segment.len() as u64;
        match self {
            Stored::Memory { segments, len } if *len + bytes <= memory => {
                segments.push(segment.clone());
                *len += bytes;
            }
            Stored::Memory { segments, len } => {
                let mut file = tempfile::tempfile_in(directory)?;
                segments.iter().try_for_each(|kept| file.write_all(kept))?;
                file.write_all(segment)?;
                *self = Stored::Scratch { file, len: *len + bytes };
            }
            Stored::Scratch { file, len } => {
                file.write_all(segment)?;
                *len += bytes;
            }
            Stored::Input(_) => {}
        }
        Ok(())
    }
}

impl ReadAt for Stored<'_> {
    fn len(&self) -> u64 {
        match self {
            Stored::Memory { len, .. } | Stored::Scratch { len, .. } => *len,
            Stored::Input(input) => input.len(),
        }
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Stored::Scratch { file, .. } => file.read_exact_at(bytes, offset),
            Stored::Input(input) => input.read_at(bytes, offset),
            Stored::Memory { segments, .. } => {
                let each = segments.first().map_or(1, |segment| segment.len().max(1));
                let mut done = 0;
                while done < bytes.len() {
                    let at = offset + done as u64;
                    let segment = segments.get((at / each as u64) as usize);
                    let from = segment.and_then(|segment| segment.get((at % each as u64) as usize..));
                    let from = from.filter(|from| !from.is_empty()).ok_or(ErrorKind::UnexpectedEof)?;
                    let len = from.len().min(bytes.len() - done);
                    bytes[done..done + len].copy_from_slice(&from[..len]);
                    done += len;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_back_from_memory_and_from_a_file() {
        let all = testing::noise(1, 1050);
        for memory in [0, 500, 2000] {
            let mut stored = Stored::new();
            for segment in all.chunks(100) {
                stored.push(&Arc::new(segment.to_vec()), memory, &std::env::temp_dir()).unwrap();
            }
            assert_eq!(stored.len(), 1050);
            assert_eq!(matches!(stored, Stored::Memory { .. }), memory == 2000);
            for (at, len) in [(0, 1050), (99, 2), (100, 100), (950, 100), (1050, 0), (333, 400)] {
                let mut bytes = vec![0; len];
                stored.read_at(&mut bytes, at as u64).unwrap();
                assert_eq!(bytes, all[at..at + len]);
            }
            assert!(stored.read_at(&mut [0; 2], 1049).is_err());
        }
    }
}
