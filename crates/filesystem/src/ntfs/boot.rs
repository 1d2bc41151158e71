//! The boot sector.

use super::error::{damaged, NAME};
use crate::bytes::{array, le16, le64};
use crate::error::Result;

/// How much of the volume holds it.
pub(super) const BOOT_BYTES: usize = 512;

const MAGIC: &[u8; 8] = b"NTFS    ";
const CLUSTER_BYTES_MAX: u64 = 2 << 20;
/// Records of the master file table, and blocks of indexes.
const RECORD_BYTES: std::ops::RangeInclusive<u64> = 512..=65536;

/// What a boot sector says, checked. Offsets and sizes count bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes of a cluster, a power of two.
    pub cluster_bytes: u64,
    /// Bytes of a record of the master file table.
    pub record_bytes: u64,
    /// The master file table.
    pub mft: u64,
    /// The copy of its first records.
    pub mirror: u64,
    /// What the volume claims; the last sector, a copy of the first, is not counted.
    pub size: u64,
}

/// Whether a volume that begins with `boot` says that it is NTFS.
pub(super) fn is_ntfs(boot: &[u8]) -> bool {
    array(boot, 3).is_some_and(|magic: [u8; 8]| magic == *MAGIC)
}

impl Geometry {
    /// Takes a boot sector that says it is NTFS; an error where its numbers cannot be.
    pub fn parse(boot: &[u8; BOOT_BYTES]) -> Result<Geometry> {
        let sector = u64::from(le16(boot, 0x0b).unwrap_or(0));
        if !sector.is_power_of_two() || !(256..=4096).contains(&sector) {
            return Err(damaged(NAME, format!("sectors of {sector} bytes")));
        }
        let cluster_bytes = cluster_sectors(boot[0x0d])
            .and_then(|n| n.checked_mul(sector))
            .filter(|n| *n <= CLUSTER_BYTES_MAX)
            .ok_or_else(|| damaged(NAME, format!("clusters of {:#x} sectors", boot[0x0d])))?;
        let place = |at: usize| {
            let cluster = le64(boot, at).unwrap_or(0);
            cluster.checked_mul(cluster_bytes).ok_or_else(|| {
                damaged(NAME, format!("the boot sector has cluster {cluster:#x} at offset {at:#x}"))
            })
        };
        let sectors = le64(boot, 0x28).unwrap_or(0);
        let size = sectors
            .checked_mul(sector)
            .filter(|size| *size > 0 && i64::try_from(*size).is_ok())
            .ok_or_else(|| damaged(NAME, format!("a volume of {sectors:#x} sectors")))?;
        let record_bytes = record_bytes(boot[0x40], cluster_bytes)
            .ok_or_else(|| damaged(NAME, format!("file records of {:#x} clusters", boot[0x40])))?;
        Ok(Geometry { cluster_bytes, record_bytes, mft: place(0x30)?, mirror: place(0x38)?, size })
    }
}

/// Up to 128 sectors, a count; above, a negative power of two.
fn cluster_sectors(byte: u8) -> Option<u64> {
    let sectors = if byte <= 0x80 { u64::from(byte) } else { 1u64.checked_shl(256 - u32::from(byte))? };
    sectors.is_power_of_two().then_some(sectors)
}

/// A count of clusters, or a negative power of two in bytes.
fn record_bytes(byte: u8, cluster_bytes: u64) -> Option<u64> {
    let bytes = match byte as i8 {
        n if n >= 0 => u64::from(byte) * cluster_bytes,
        n => 1u64.checked_shl(u32::from(n.unsigned_abs()))?,
    };
    (bytes.is_power_of_two() && RECORD_BYTES.contains(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(sector: u16, cluster: u8, record: u8) -> [u8; BOOT_BYTES] {
        let mut boot = [0; BOOT_BYTES];
        boot[3..11].copy_from_slice(MAGIC);
        boot[0x0b..0x0d].copy_from_slice(&sector.to_le_bytes());
        boot[0x0d] = cluster;
        boot[0x28..0x30].copy_from_slice(&1000u64.to_le_bytes());
        boot[0x30..0x38].copy_from_slice(&4u64.to_le_bytes());
        boot[0x40] = record;
        boot
    }

    #[test]
    fn sizes_are_counts_or_powers() {
        let of = |sector, cluster, record| {
            Geometry::parse(&boot(sector, cluster, record)).map(|g| (g.cluster_bytes, g.record_bytes, g.mft))
        };
        assert_eq!(of(512, 8, 0xf6).expect("usual"), (4096, 1024, 16384));
        assert_eq!(of(512, 0xf4, 0xf6).expect("2 MiB"), (2 << 20, 1024, 8 << 20));
        assert_eq!(of(512, 2, 1).expect("a cluster each"), (1024, 1024, 4096));
        assert_eq!(of(4096, 1, 0xf4).expect("4K native"), (4096, 4096, 16384));
        for (sector, cluster, record) in [
            (0, 8, 0xf6),
            (513, 8, 0xf6),
            (512, 0, 0xf6),
            (512, 3, 0xf6),
            (512, 0x81, 0xf6),
            (512, 0xc7, 0xf6),
            (512, 8, 0),
            (512, 8, 0x80),
        ] {
            assert!(of(sector, cluster, record).is_err(), "{sector} {cluster} {record}");
        }
    }
}
