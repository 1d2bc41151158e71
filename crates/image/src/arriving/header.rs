//! The two parts of a map that are not bits: its header, written once, and its state, written in one sector:
//! docs/format/arriving.md.

use super::id::{BootId, MapId};
use super::identity::{Attachment, TargetId, FACTS_BYTES_MAX};
use super::layout::{BLOCK_BYTES, HEADER_BYTES, SECTOR_BYTES};
use crate::error::{ImageError, Result};
use crate::file::bytes::{le_u32, le_u64};
use crate::file::random_file::RandomFile;

const MAGIC: [u8; 8] = *b"SAPARRIV";
const VERSION: u32 = 2;

const FLAG_HOLDS: u32 = 1;
const FLAG_DEVICE: u32 = 2;
const FLAG_WHOLE: u32 = 1;
const TEXT_AT: usize = 72;
const OF_BYTES_MAX: usize = 1024;
const HEADER_SUM_AT: usize = HEADER_BYTES as usize - 4;
const STATE_SUM_AT: usize = SECTOR_BYTES as usize - 4;

/// What never changes in a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The number that map and target share.
    pub id: MapId,
    /// Bytes of the disk.
    pub size: u64,
    /// What arrives.
    pub of: Vec<u8>,
    /// The snapshot was held for it.
    pub holds: bool,
    /// What the target is known by.
    pub target: TargetId,
}

impl Header {
    /// The header as the file has it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let (device, inode, born, facts) = match &self.target {
            TargetId::File { inode, born } => (0, *inode, *born, ""),
            TargetId::Device { facts } => (FLAG_DEVICE, 0, 0, facts.as_str()),
        };
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(BLOCK_BYTES as u32).to_le_bytes());
        put(16, &self.size.to_le_bytes());
        put(24, &self.id.0);
        let holds = if self.holds { FLAG_HOLDS } else { 0 };
        put(40, &(holds | device).to_le_bytes());
        put(44, &(self.of.len() as u32).to_le_bytes());
        put(48, &(facts.len() as u32).to_le_bytes());
        put(56, &inode.to_le_bytes());
        put(64, &born.to_le_bytes());
        put(TEXT_AT, &self.of);
        put(TEXT_AT + self.of.len(), facts.as_bytes());
        let sum = crc32c::crc32c(&bytes[..HEADER_SUM_AT]);
        bytes[HEADER_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Whether a file begins like a map.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes[..8] == MAGIC
    }

    /// The version of a map that is of another one than this.
    pub fn other_version(bytes: &[u8]) -> Option<u32> {
        Some(le_u32(bytes, 8)).filter(|version| *version != VERSION)
    }

    /// Says why it cannot be used.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Header, String> {
        if le_u32(bytes, HEADER_SUM_AT) != crc32c::crc32c(&bytes[..HEADER_SUM_AT]) {
            return Err("its header does not match its checksum".into());
        }
        let (block, len) = (le_u32(bytes, 12), le_u32(bytes, 44) as usize);
        let facts_len = le_u32(bytes, 48) as usize;
        if u64::from(block) != BLOCK_BYTES || len > OF_BYTES_MAX || facts_len > FACTS_BYTES_MAX {
            return Err(format!("has blocks of {block} bytes and texts of {len} and {facts_len}"));
        }
        let mut id = MapId([0; 16]);
        id.0.copy_from_slice(&bytes[24..40]);
        let flags = le_u32(bytes, 40);
        let facts = &bytes[TEXT_AT + len..TEXT_AT + len + facts_len];
        let target = if flags & FLAG_DEVICE != 0 {
            TargetId::Device { facts: String::from_utf8_lossy(facts).into_owned() }
        } else {
            TargetId::File { inode: le_u64(bytes, 56), born: le_u64(bytes, 64) }
        };
        let of = bytes[TEXT_AT..TEXT_AT + len].to_vec();
        Ok(Header { id, size: le_u64(bytes, 16), of, holds: flags & FLAG_HOLDS != 0, target })
    }

    /// Refuses names that are too long.
    pub fn check(&self, name: &str) -> Result<()> {
        if self.of.len() > OF_BYTES_MAX {
            return Err(ImageError::refused(name, "what arrives has too long a name"));
        }
        Ok(())
    }
}

/// What changes in a map beside its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The run of the system that wrote the first bits.
    pub boot: BootId,
    /// Flushes that made new bits durable.
    pub generation: u64,
    /// All has arrived, and the mark is being taken off the target, or was.
    pub is_whole: bool,
    /// Bits that were durable before the flush that wrote this.
    pub durable_count: u64,
    /// Where the target was, in this run of the system.
    pub attachment: Attachment,
}

impl State {
    /// The sector as the file has it.
    pub fn encode(&self, id: &MapId) -> [u8; SECTOR_BYTES as usize] {
        let mut bytes = [0; SECTOR_BYTES as usize];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.boot.0);
        put(16, &self.generation.to_le_bytes());
        put(24, &(u32::from(self.is_whole) * FLAG_WHOLE).to_le_bytes());
        put(32, &self.durable_count.to_le_bytes());
        put(40, &self.attachment.device.to_le_bytes());
        put(48, &self.attachment.sequence.to_le_bytes());
        let sum = state_checksum(id, &bytes);
        bytes[STATE_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The state of a sector; `None` where it does not match its checksum.
    pub fn decode(id: &MapId, bytes: &[u8]) -> Option<State> {
        if le_u32(bytes, STATE_SUM_AT) != state_checksum(id, bytes) {
            return None;
        }
        let mut boot = BootId([0; 16]);
        boot.0.copy_from_slice(&bytes[..16]);
        Some(State {
            boot,
            generation: le_u64(bytes, 16),
            is_whole: le_u32(bytes, 24) & FLAG_WHOLE != 0,
            durable_count: le_u64(bytes, 32),
            attachment: Attachment { device: le_u64(bytes, 40), sequence: le_u64(bytes, 48) },
        })
    }
}

fn state_checksum(id: &MapId, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.0), &bytes[..STATE_SUM_AT])
}

/// Reads part of a map.
pub(super) fn read(file: &dyn RandomFile, name: &str, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    file.read_at(at, &mut bytes).map_err(|e| ImageError::read(name, "read", e))?;
    Ok(bytes)
}
