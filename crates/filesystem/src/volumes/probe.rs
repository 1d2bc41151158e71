//! What a volume holds, by the magic numbers in it.

use super::lvm;
use crate::bytes::{array, le16, le32, le64};
use crate::disk::Disk;
use crate::error::Result;
use crate::ext;

/// What is read of the beginning: the last magic number in it is that of Btrfs.
const HEAD_BYTES: u64 = 68 << 10;
const MD_MAGIC: u32 = 0xa92b_4efc;

/// Magic numbers, and where they are.
const MAGICS: [(&str, usize, &[u8]); 36] = [
    ("luks", 0, b"LUKS\xba\xbe"),
    ("stratis", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("vdo", 0, b"dmvdo001"),
    ("bluestore", 0, b"bluestore block device"),
    ("bcache", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("bcachefs", 4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    // The name of the first pair in the list that describes the pool.
    ("zfs", (16 << 10) + 20, b"\0\0\0\x07version"),
    ("bitlocker", 3, b"-FVE-FS-"),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("refs", 3, b"ReFS\0\0\0\0"),
    ("xfs", 0, b"XFSB"),
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("swap", 4096 - 10, b"SWAPSPACE2"),
    ("swap", 4096 - 10, b"SWAP-SPACE"),
    ("swap", 8192 - 10, b"SWAPSPACE2"),
    ("swap", 16384 - 10, b"SWAPSPACE2"),
    ("swap", 65536 - 10, b"SWAPSPACE2"),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    ("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    ("squashfs", 0, b"hsqs"),
    ("reiserfs", 0x1_0034, b"ReIsEr"),
    ("jfs", 0x8000, b"JFS1"),
    ("apfs", 32, b"NXSB"),
    ("hfsplus", 1024, b"H+\0\x04"),
    ("iso9660", 0x8001, b"CD001"),
    ("reiser4", 0x1_0000, b"ReIsEr4"),
    ("ocfs2", 1024, b"OCFSV2"),
    ("ocfs2", 2048, b"OCFSV2"),
    ("ocfs2", 4096, b"OCFSV2"),
    ("ocfs2", 8192, b"OCFSV2"),
    ("gfs2", 0x1_0000, b"\x01\x16\x19\x70\0\0\0\x01"),
    ("ufs", (8 << 10) + 1372, b"\x54\x19\x01\0"),
    ("ufs", (64 << 10) + 1372, b"\x19\x01\x54\x19"),
    ("hfsplus", 1024, b"HX\0\x05"),
    ("udf", 0x8001, b"BEA01"),
];

/// Magic numbers of two bytes, where ext and FAT have numbers of their own: they count where neither is.
const SHORT_MAGICS: [(&str, usize, &[u8]); 7] = [
    ("minix", 1040, b"\x7f\x13"),
    ("minix", 1040, b"\x8f\x13"),
    ("minix", 1040, b"\x68\x24"),
    ("minix", 1040, b"\x78\x24"),
    ("minix", 1048, b"\x5a\x4d"),
    ("nilfs2", 1024 + 6, b"\x34\x34"),
    ("hfs", 1024, b"BD"),
];

/// `ext4`, `lvm`, `swap`, …; empty if it is not known.
pub(crate) fn kind(volume: &dyn Disk) -> Result<&'static str> {
    let mut head = vec![0; volume.size().min(HEAD_BYTES) as usize];
    volume.read_at(0, &mut head)?;
    // Members of an array or a group may look like what they hold.
    if is_md(volume, &head)? {
        return Ok("md");
    }
    if lvm::is_member(&head) {
        return Ok("lvm");
    }
    let has = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|b| b.starts_with(magic));
    let among = |magics: &[(&'static str, usize, &[u8])]| {
        magics.iter().find(|(_, at, magic)| has(*at, magic)).map(|(kind, ..)| *kind)
    };
    let found = among(&MAGICS).or_else(|| ext::kind(&head)).or_else(|| fat(&head));
    Ok(found.or_else(|| among(&SHORT_MAGICS)).unwrap_or_default())
}

/// The file system of which a disk's first sector is the boot sector: such a disk has no partitions.
pub(crate) fn boot_sector(sector: &[u8]) -> Option<&'static str> {
    let oem: [u8; 8] = array(sector, 3)?;
    match &oem {
        b"NTFS    " => Some("ntfs"),
        b"EXFAT   " => Some("exfat"),
        b"-FVE-FS-" => Some("bitlocker"),
        _ => fat(sector),
    }
}

/// FAT by its parameters, and by its own word.
fn fat(sector: &[u8]) -> Option<&'static str> {
    let (sector_bytes, cluster, reserved) = (le16(sector, 11)?, *sector.get(13)?, le16(sector, 14)?);
    let (copies, media, signature) = (*sector.get(16)?, *sector.get(21)?, le16(sector, 510)?);
    let is_sane = matches!(sector.first(), Some(0xeb | 0xe9))
        && matches!(sector_bytes, 512 | 1024 | 2048 | 4096)
        && cluster.is_power_of_two()
        && reserved > 0
        && matches!(copies, 1 | 2)
        && (media == 0xf0 || media >= 0xf8)
        && signature == 0xaa55;
    let name = |at: usize| sector.get(at..).unwrap_or_default();
    match () {
        () if !is_sane => None,
        () if name(0x52).starts_with(b"FAT32   ") => Some("fat32"),
        () if name(0x36).starts_with(b"FAT16   ") => Some("fat16"),
        () if name(0x36).starts_with(b"FAT12   ") => Some("fat12"),
        () => None,
    }
}

/// Members of a Linux software array: their superblock is at the beginning, 4 KiB behind it, or near the end.
fn is_md(volume: &dyn Disk, head: &[u8]) -> Result<bool> {
    let is_version1 = |bytes: &[u8], at: usize, sector: u64| {
        le32(bytes, at) == Some(MD_MAGIC)
            && le32(bytes, at + 4) == Some(1)
            && le64(bytes, at + 144) == Some(sector)
    };
    if is_version1(head, 0, 0) || is_version1(head, 4096, 8) {
        return Ok(true);
    }
    let mut tail = [0; 512];
    let size = volume.size();
    if let Some(at) = size.checked_sub(8 << 10).map(|at| at & !0xfff) {
        volume.read_at(at, &mut tail)?;
        if is_version1(&tail, 0, at / 512) {
            return Ok(true);
        }
    }
    let Some(at) = (size & !0xffff).checked_sub(64 << 10) else { return Ok(false) };
    volume.read_at(at, &mut tail)?;
    Ok(le32(&tail, 0) == Some(MD_MAGIC) && le32(&tail, 4) == Some(0))
}
