//! An external sort of chunk records: they are spilled to files by the first byte of the fingerprint, and read back one
//! file at a time. The files have no names, so the system removes them with the process.

use crate::base::error::{Result, VaultError};
use format::{ChunkNo, ContainerId};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Bytes of records that are sorted at once.
pub(super) const SORTED_BYTES: u64 = 48 << 20;
/// Files that are written at once, a buffer each.
const FILES_MAX: u64 = 256;
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 36;
/// Half a fingerprint: enough to count chunks. Before a chunk is used its whole fingerprint is compared.
pub(crate) type Half = [u8; 16];

/// A chunk of a disk, in the order of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Occurrence {
    pub half: Half,
    pub disk: u32,
    pub place: Place,
    pub bytes: u32,
}

/// Where a chunk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub container: ContainerId,
    pub chunk: ChunkNo,
}

/// Records in files, by bits of the fingerprint.
pub(super) struct Spill {
    files: Vec<BufWriter<File>>,
    /// The byte of the fingerprint that chooses a file.
    byte: usize,
    scratch: PathBuf,
}

impl Spill {
    /// Room for about so many bytes of records, told apart by the fingerprint's byte number `byte`.
    pub fn create(scratch: &Path, bytes: u64, byte: usize) -> Result<Self> {
        let count = bytes.div_ceil(SORTED_BYTES).clamp(1, FILES_MAX);
        let mut files = Vec::new();
        for _ in 0..count {
            let file = tempfile::tempfile_in(scratch).map_err(|e| failed(scratch, "make a file", &e))?;
            files.push(BufWriter::with_capacity(BUFFER_BYTES, file));
        }
        Ok(Spill { files, byte, scratch: scratch.to_owned() })
    }

    /// Adds a record.
    pub fn add(&mut self, o: &Occurrence) -> Result<()> {
        let at = usize::from(o.half[self.byte]) * self.files.len() / 256;
        self.files[at].write_all(&encode(o)).map_err(|e| failed(&self.scratch, "write", &e))
    }

    /// Calls `each` with the records of one file after the other. One that is too long is spilt again, by the next byte.
    pub fn each_file(&self, each: &mut dyn FnMut(&mut [Occurrence]) -> Result<()>) -> Result<()> {
        let wrong = |e: std::io::Error| failed(&self.scratch, "read", &e);
        for writer in &self.files {
            let mut file = writer.get_ref();
            // What is still in the buffer is behind what is in the file.
            let (in_file, in_buffer) = (file.metadata().map_err(wrong)?.len(), writer.buffer());
            file.rewind().map_err(wrong)?;
            let bytes = in_file + in_buffer.len() as u64;
            let mut from =
                std::io::BufReader::with_capacity(BUFFER_BYTES, file.take(in_file).chain(in_buffer));
            let mut records = Vec::new();
            let mut again = if bytes > SORTED_BYTES && self.byte + 1 < size_of::<Half>() {
                Some(Spill::create(&self.scratch, bytes, self.byte + 1)?)
            } else {
                None
            };
            let mut raw = [0; RECORD_BYTES];
            for _ in 0..bytes / RECORD_BYTES as u64 {
                from.read_exact(&mut raw).map_err(wrong)?;
                let record = decode(&raw)?;
                match &mut again {
                    Some(spill) => spill.add(&record)?,
                    None => records.push(record),
                }
            }
            file.seek(std::io::SeekFrom::End(0)).map_err(wrong)?;
            match again {
                Some(spill) => spill.each_file(each)?,
                None => each(&mut records)?,
            }
        }
        Ok(())
    }
}

fn failed(scratch: &Path, op: &str, e: &std::io::Error) -> VaultError {
    VaultError::Refused(format!(
        "{}: cannot {op} for counting chunks: {e}; --scratch names another directory",
        scratch.display()
    ))
}

fn encode(o: &Occurrence) -> [u8; RECORD_BYTES] {
    let mut raw = [0; RECORD_BYTES];
    raw[..16].copy_from_slice(&o.half);
    raw[16..20].copy_from_slice(&o.disk.to_le_bytes());
    raw[20..28].copy_from_slice(&o.place.container.raw().to_le_bytes());
    raw[28..32].copy_from_slice(&o.place.chunk.0.to_le_bytes());
    raw[32..].copy_from_slice(&o.bytes.to_le_bytes());
    raw
}

fn decode(raw: &[u8; RECORD_BYTES]) -> Result<Occurrence> {
    let mut half = Half::default();
    half.copy_from_slice(&raw[..16]);
    let number = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    let container = u64::from(number(20)) | u64::from(number(24)) << 32;
    let container =
        ContainerId::from_raw(container).map_err(VaultError::malformed("a file of counted chunks"))?;
    Ok(Occurrence {
        half,
        disk: number(16),
        place: Place { container, chunk: ChunkNo(number(28)) },
        bytes: number(32),
    })
}
