//! The first bytes of the volume with the file system's table of names.

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::{In, Malformed, Out, Result};

const MAGIC: &[u8; 8] = b"SAPWNAME";
const VERSION: u32 = 1;

/// Tells how long the database behind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesHeader {
    /// Bytes of the database.
    pub len: u64,
}

impl NamesHeader {
    /// Its bytes. The database begins at the next block.
    pub const BYTES: usize = 32;

    /// The bytes of the header.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = Out(Vec::with_capacity(Self::BYTES));
        out.bytes(MAGIC);
        out.u32(VERSION);
        out.u32(0);
        out.u64(self.len);
        let checksum = xxh3_64(&out.0);
        out.u64(checksum);
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&out.0);
        bytes
    }

    /// What [`NamesHeader::encode`] wrote; `None` where nothing was.
    ///
    /// # Errors
    /// Damage, or a newer version.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Option<Self>> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut fields = In::within(bytes, 0);
        if fields.array::<8>()? != *MAGIC {
            return Err(Malformed::new("its magic number is missing"));
        }
        let version = fields.u32()?;
        if version > VERSION {
            return Err(Malformed::newer(format!("version {version}")));
        }
        let zero = fields.u32()?;
        let header = NamesHeader { len: fields.u64()? };
        if zero != 0 || version == 0 || fields.u64()? != xxh3_64(&bytes[..Self::BYTES - 8]) {
            return Err(Malformed::new("its checksum is wrong"));
        }
        Ok(Some(header))
    }
}
