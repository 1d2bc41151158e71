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
/// Records in memory at most.
const SORTED_RECORDS: usize = SORTED_BYTES as usize / RECORD_BYTES;
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
    pub place: ChunkAddress,
    pub bytes: u32,
}

/// Where a chunk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkAddress {
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
        self.files[at].write_all(&o.encode()).map_err(|e| failed(&self.scratch, "write", &e))
    }

    /// Calls `each` with the records of one file after the other, sorted. Of the copies of a chunk that a disk has in one
    /// container, one is there. Records that are too many are spilt again, by the next byte.
    pub fn each_file(&self, each: &mut dyn FnMut(&[Occurrence]) -> Result<()>) -> Result<()> {
        for writer in &self.files {
            let mut batch = Batch { records: Vec::new(), look_at: SORTED_RECORDS };
            let mut again: Option<Spill> = None;
            self.each_record(writer, &mut |record, left| {
                if let Some(spill) = &mut again {
                    return spill.add(&record);
                }
                let is_last_byte = self.byte + 1 == size_of::<Half>();
                if batch.add(record) || is_last_byte {
                    return Ok(());
                }
                let bytes = left + (batch.records.len() * RECORD_BYTES) as u64;
                let spill = again.insert(Spill::create(&self.scratch, bytes, self.byte + 1)?);
                std::mem::take(&mut batch.records).iter().try_for_each(|o| spill.add(o))
            })?;
            match again {
                Some(spill) => spill.each_file(each)?,
                None => {
                    batch.tidy();
                    each(&batch.records)?;
                }
            }
        }
        Ok(())
    }

    /// Calls `each` with every record of a file, and the bytes behind it.
    fn each_record(
        &self,
        writer: &BufWriter<File>,
        each: &mut dyn FnMut(Occurrence, u64) -> Result<()>,
    ) -> Result<()> {
        let wrong = |e: std::io::Error| failed(&self.scratch, "read", &e);
        let mut file = writer.get_ref();
        // What is still in the buffer is behind what is in the file.
        let (in_file, in_buffer) = (file.metadata().map_err(wrong)?.len(), writer.buffer());
        file.rewind().map_err(wrong)?;
        let mut left = in_file + in_buffer.len() as u64;
        let mut from = std::io::BufReader::with_capacity(BUFFER_BYTES, file.take(in_file).chain(in_buffer));
        let mut raw = [0; RECORD_BYTES];
        while left >= RECORD_BYTES as u64 {
            from.read_exact(&mut raw).map_err(wrong)?;
            left -= RECORD_BYTES as u64;
            each(Occurrence::decode(&raw)?, left)?;
        }
        file.seek(std::io::SeekFrom::End(0)).map_err(wrong)?;
        Ok(())
    }
}

/// Records in memory.
struct Batch {
    records: Vec<Occurrence>,
    /// When they are so many, they are tidied.
    look_at: usize,
}

impl Batch {
    /// Adds a record. `false`: there are too many, even when tidied.
    fn add(&mut self, record: Occurrence) -> bool {
        self.records.push(record);
        if self.records.len() < self.look_at {
            return true;
        }
        self.tidy();
        self.look_at = self.records.len() + SORTED_RECORDS / 2;
        self.records.len() <= SORTED_RECORDS / 2
    }

    /// Sorts them, and takes out the copies within one container.
    fn tidy(&mut self) {
        self.records.sort_unstable();
        let key = |o: &Occurrence| (o.half, o.disk, o.place.container);
        self.records.dedup_by(|b, a| key(a) == key(b));
    }
}

pub(super) fn failed(scratch: &Path, op: &str, e: &std::io::Error) -> VaultError {
    VaultError::Refused(format!(
        "{}: cannot {op} for counting chunks: {e}; --scratch names another directory",
        scratch.display()
    ))
}

impl Occurrence {
    /// As a record: sorted by disk and place.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut raw = [0; RECORD_BYTES];
        raw[..4].copy_from_slice(&self.disk.to_be_bytes());
        raw[4..12].copy_from_slice(&self.place.container.raw().to_be_bytes());
        raw[12..16].copy_from_slice(&self.place.chunk.0.to_be_bytes());
        raw[16..32].copy_from_slice(&self.half);
        raw[32..].copy_from_slice(&self.bytes.to_be_bytes());
        raw
    }

    /// From a record.
    pub fn decode(raw: &[u8; RECORD_BYTES]) -> Result<Self> {
        let number = |at: usize| u32::from_be_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let container = ContainerId::from_raw(u64::from(number(4)) << 32 | u64::from(number(8)))
            .map_err(VaultError::malformed("a file of counted chunks"))?;
        let mut half = Half::default();
        half.copy_from_slice(&raw[16..32]);
        let place = ChunkAddress { container, chunk: ChunkNo(number(12)) };
        Ok(Occurrence { half, disk: number(0), place, bytes: number(32) })
    }
}
