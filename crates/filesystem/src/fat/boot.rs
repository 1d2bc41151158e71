//! The boot sector, and what follows from it.

use super::error::damaged;
use crate::bytes::{le16, le32};
use crate::error::Result;

/// How much of the volume holds it.
pub(super) const BOOT_BYTES: usize = 512;

/// More clusters than these need more bits for their numbers.
const FAT12_CLUSTERS: u64 = 4084;
const FAT16_CLUSTERS: u64 = 65524;
const FAT32_CLUSTERS: u64 = 0x0fff_fff5;
/// Clusters are counted from here on.
pub(super) const FIRST_CLUSTER: u32 = 2;

const ENTRY_BYTES: u64 = 32;

/// How many bits a cluster's number has in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Fat12,
    Fat16,
    Fat32,
}

/// Where the root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RootPlace {
    /// At this offset of the volume, with room for so many bytes.
    Fixed { at: u64, len: u64 },
    /// In clusters from this one on.
    Chain(u32),
}

/// What a boot sector says, checked. Offsets and sizes count bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// How wide the entries of the table are.
    pub width: Width,
    /// Bytes of a cluster.
    pub cluster_bytes: u64,
    /// How many clusters there are.
    pub clusters: u64,
    /// Where the first table begins.
    pub table: u64,
    /// Bytes of one table.
    pub table_bytes: u64,
    /// Where the root directory is.
    pub root: RootPlace,
    /// The first cluster.
    pub data: u64,
    /// What the volume claims.
    pub size: u64,
    /// The label as the boot sector has it.
    pub label: Vec<u8>,
    /// Linux and Windows note here that the volume is in use.
    pub is_dirty: bool,
}

impl Geometry {
    /// `None` if this is no boot sector of FAT.
    pub fn parse(boot: &[u8; BOOT_BYTES]) -> Result<Option<Geometry>> {
        let field16 = |at| u64::from(le16(boot, at).unwrap_or(0));
        let field32 = |at| u64::from(le32(boot, at).unwrap_or(0));
        let (sector, cluster_sectors) = (field16(11), u64::from(boot[13]));
        let (reserved, tables, media) = (field16(14), u64::from(boot[16]), boot[21]);
        let is_fat = matches!(boot[0], 0xe9 | 0xeb)
            && (512..=4096).contains(&sector)
            && sector.is_power_of_two()
            && cluster_sectors.is_power_of_two()
            && reserved > 0
            && (1..=4).contains(&tables)
            && (media == 0xf0 || media >= 0xf8)
            && boot[510..] == [0x55, 0xaa];
        if !is_fat {
            return Ok(None);
        }
        let is_fat32 = field16(22) == 0;
        let table_bytes = sector * if is_fat32 { field32(36) } else { field16(22) };
        let size = sector * if field16(19) == 0 { field32(32) } else { field16(19) };
        let table = sector * reserved;
        let root_at = table + tables * table_bytes;
        let root_len = field16(17) * ENTRY_BYTES;
        let data = root_at + root_len.next_multiple_of(sector);
        let cluster_bytes = sector * cluster_sectors;
        if table_bytes == 0 || data >= size || (root_len == 0) != is_fat32 {
            let why = format!(
                "tables of {table_bytes:#x} bytes, a root of {root_len:#x}, data at {data:#x} of {size:#x}"
            );
            return Err(damaged("its boot sector", why));
        }
        let clusters = (size - data) / cluster_bytes;
        let width = match clusters {
            _ if is_fat32 => Width::Fat32,
            0..=FAT12_CLUSTERS => Width::Fat12,
            _ => Width::Fat16,
        };
        let limit = if is_fat32 { FAT32_CLUSTERS } else { FAT16_CLUSTERS };
        let needed = width.table_bytes(clusters + u64::from(FIRST_CLUSTER));
        if clusters > limit || table_bytes < needed {
            let why = format!("{clusters} clusters, and tables of {table_bytes:#x} bytes");
            return Err(damaged("its boot sector", why));
        }
        // The extended part, if it is there, lies behind what FAT32 adds.
        let extended = &boot[if is_fat32 { 64 } else { 36 }..];
        let label = if extended[2] == 0x29 { extended[7..18].to_vec() } else { Vec::new() };
        let root = if is_fat32 {
            RootPlace::Chain(le32(boot, 44).unwrap_or(0) & 0x0fff_ffff)
        } else {
            RootPlace::Fixed { at: root_at, len: root_len }
        };
        let is_dirty = extended[1] & 1 != 0;
        Ok(Some(Geometry {
            width,
            cluster_bytes,
            clusters,
            table,
            table_bytes,
            root,
            data,
            size,
            label,
            is_dirty,
        }))
    }

    /// Where a cluster lies; `None` if there is no such one.
    pub fn place(&self, cluster: u32) -> Option<u64> {
        let n = u64::from(cluster.checked_sub(FIRST_CLUSTER)?);
        (n < self.clusters).then(|| self.data + n * self.cluster_bytes)
    }
}

impl Width {
    fn table_bytes(self, clusters: u64) -> u64 {
        match self {
            Width::Fat12 => (clusters * 3).div_ceil(2),
            Width::Fat16 => clusters * 2,
            Width::Fat32 => clusters * 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A boot sector with so many sectors, each a cluster.
    pub(super) fn boot(sectors: u32, table_sectors: u32, is_fat32: bool) -> [u8; BOOT_BYTES] {
        let mut boot = [0; BOOT_BYTES];
        boot[0] = 0xeb;
        boot[11..13].copy_from_slice(&512u16.to_le_bytes());
        (boot[13], boot[14], boot[16], boot[21]) = (1, 1, 2, 0xf8);
        boot[32..36].copy_from_slice(&sectors.to_le_bytes());
        if is_fat32 {
            boot[36..40].copy_from_slice(&table_sectors.to_le_bytes());
            boot[44] = 2;
        } else {
            boot[17] = 16;
            boot[22..24].copy_from_slice(&(table_sectors as u16).to_le_bytes());
        }
        boot[510..].copy_from_slice(&[0x55, 0xaa]);
        boot
    }

    #[test]
    fn the_number_of_clusters_says_the_width() {
        let of = |boot: [u8; BOOT_BYTES]| Geometry::parse(&boot).map(|g| g.map(|g| (g.width, g.clusters)));
        // A sector of the boot, two tables, one of the root.
        assert_eq!(of(boot(4084 + 2 + 24, 12, false)).expect("good"), Some((Width::Fat12, 4084)));
        assert_eq!(of(boot(4085 + 2 + 40, 20, false)).expect("good"), Some((Width::Fat16, 4085)));
        assert_eq!(of(boot(65524 + 2 + 512, 256, false)).expect("good"), Some((Width::Fat16, 65524)));
        assert_eq!(of(boot(100 + 1 + 2, 1, true)).expect("good"), Some((Width::Fat32, 100)));
        assert!(of(boot(65525 + 2 + 514, 257, false)).is_err());
        assert!(of(boot(4085 + 2 + 24, 12, false)).is_err());
        assert!(of(boot(0, 12, false)).is_err());
        let mut other = boot(1000, 12, false);
        other[13] = 3;
        assert_eq!(of(other).expect("another format"), None);
    }
}
