//! A container's data object: header, chunk groups, a copy of the group directory, footer.

use crate::bytes::{In, Malformed, Out, Result};
use crate::ids::{ChunkNo, ContainerId, DiskId, VaultId, WriterNo};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Length of the header.
pub const DATA_HEADER_BYTES: usize = 64;
/// Length of the footer.
pub const DATA_FOOTER_BYTES: usize = 32;
const HEADER_MAGIC: [u8; 8] = *b"SAPWDATA";
const FOOTER_MAGIC: [u8; 8] = *b"SAPWEND1";

/// A container's data object. Several containers may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataName {
    /// The container it was made for.
    pub container: ContainerId,
    /// The writer that wrote it.
    pub generation: WriterNo,
}

/// What stands in front of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The vault.
    pub vault: VaultId,
    /// The owner; zero for the popular set.
    pub disk: DiskId,
    /// The object.
    pub name: DataName,
}

impl DataHeader {
    /// 64 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut o = Out::default();
        o.bytes(&HEADER_MAGIC);
        o.bytes(&self.vault.0);
        o.bytes(&self.disk.0);
        o.u64(self.name.container.raw());
        o.u32(self.name.generation.0);
        o.u32(0);
        let sum = xxh3_64(&o.0);
        o.u64(sum);
        debug_assert_eq!(o.0.len(), DATA_HEADER_BYTES);
        o.0
    }

    /// From the first 64 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut i = In::new(bytes);
        let body = i.bytes(DATA_HEADER_BYTES - 8)?;
        if i.u64()? != xxh3_64(body) {
            return Err(Malformed::new("header checksum does not match"));
        }
        i = In::new(body);
        if i.array()? != HEADER_MAGIC {
            return Err(Malformed::new("does not start like a container"));
        }
        Ok(DataHeader {
            vault: VaultId(i.array()?),
            disk: DiskId(i.array()?),
            name: DataName { container: ContainerId::from_raw(i.u64()?)?, generation: WriterNo(i.u32()?) },
        })
    }
}

/// What stands behind the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFooter {
    /// Where the directory starts: the end of the groups.
    pub directory_offset: u64,
    /// Its length.
    pub directory_len: u64,
}

impl DataFooter {
    /// 32 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut o = Out::default();
        o.u64(self.directory_offset);
        o.u64(self.directory_len);
        let sum = xxh3_64(&o.0);
        o.u64(sum);
        o.bytes(&FOOTER_MAGIC);
        debug_assert_eq!(o.0.len(), DATA_FOOTER_BYTES);
        o.0
    }

    /// From the last 32 bytes of an object of `len` bytes.
    pub fn decode(bytes: &[u8], len: u64) -> Result<Self> {
        let mut i = In::new(bytes);
        let (directory_offset, directory_len) = (i.u64()?, i.u64()?);
        if i.u64()? != xxh3_64(&bytes[..16]) || i.array()? != FOOTER_MAGIC {
            return Err(Malformed::new("does not end like a container"));
        }
        let end = directory_offset.checked_add(directory_len);
        if end.and_then(|e| e.checked_add(DATA_FOOTER_BYTES as u64)) != Some(len) {
            return Err(Malformed::new(format!("{len} bytes long, its footer says otherwise")));
        }
        Ok(DataFooter { directory_offset, directory_len })
    }
}

/// Checksum of a stored group: bound to the container, as its owner names it, and its first chunk, not to a generation.
pub fn group_checksum(container: ContainerId, first: ChunkNo, stored: &[u8]) -> u64 {
    let seed =
        container.local().raw().rotate_left(20) ^ u64::from(first.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxh3_64_with_seed(stored, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OwnerNo;

    #[test]
    fn header_and_footer_come_back_and_show_damage() {
        let name =
            DataName { container: ContainerId::new(OwnerNo::OWN, WriterNo(2), 3), generation: WriterNo(4) };
        let h = DataHeader { vault: VaultId([1; 16]), disk: DiskId([2; 16]), name };
        let f = DataFooter { directory_offset: 100, directory_len: 50 };
        let (hb, fb) = (h.encode(), f.encode());
        assert_eq!(DataHeader::decode(&hb), Ok(h));
        assert_eq!(DataFooter::decode(&fb, 182), Ok(f));
        assert!(DataFooter::decode(&fb, 183).is_err());
        for bit in 0..DATA_HEADER_BYTES * 8 {
            let mut b = hb.clone();
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(DataHeader::decode(&b).is_err());
        }
        for bit in 0..DATA_FOOTER_BYTES * 8 {
            let mut b = fb.clone();
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(DataFooter::decode(&b, 182).is_err());
        }
    }
}
