//! Small file systems, as inputs that fuzzing starts from.

use crate::disk::Sectors;

/// FAT12: a file of two clusters and a directory.
pub fn fat12() -> Vec<u8> {
    let mut disk = Sectors::default();
    // Sectors of 512 bytes, one for a cluster; one reserved, a table of one, a root of one; 100 in all.
    disk.put(0, &[0xeb, 0, 0x90]);
    disk.put(11, &[0, 2, 1, 1, 0, 1, 16, 0, 100, 0, 0xf8, 1, 0]);
    disk.put(38, b"\x29\0\0\0\0FUZZ       ");
    disk.put(510, &[0x55, 0xaa]);
    // 2 -> 4 -> end, 3 -> end.
    disk.put(512, &[0xf8, 0xff, 0xff, 0x04, 0xf0, 0xff, 0xff, 0x0f]);
    let entry = |name: &[u8; 11], attributes, cluster: u32, size| {
        let fields: [u32; 5] = [u32::from_le_bytes([attributes, 0, 0, 0]), 0, 0, cluster << 16, size];
        let mut entry = name.to_vec();
        entry.extend(fields.iter().flat_map(|f| f.to_le_bytes()));
        entry.insert(12, 0);
        entry
    };
    let mut long = [0xff; 32];
    long[..14].copy_from_slice(b"\x41n\0a\0m\0e\0\0\0\x0f\0\0");
    long[13] = b"FILE    TXT".iter().fold(0u8, |sum, b| sum.rotate_right(1).wrapping_add(*b));
    (long[26], long[27]) = (0, 0);
    let root = [long.to_vec(), entry(b"FILE    TXT", 0x20, 2, 600), entry(b"DIR        ", 0x10, 3, 0)];
    disk.put(1024, &root.concat());
    disk.put(1024 + 512 + 512, &entry(b".          ", 0x10, 3, 0));
    disk.encode()
}

/// An attribute of a record, its value in the record itself.
fn resident(kind: u32, name: &str, value: &[u8]) -> Vec<u8> {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let at = (0x18 + name.len()).next_multiple_of(8);
    let len = (at + value.len()).next_multiple_of(8);
    let head: [u32; 6] =
        [kind, len as u32, (name.len() as u32 / 2) << 8 | 0x18 << 16, 0, value.len() as u32, at as u32];
    attribute(&head, &name, at, value, len)
}

/// An attribute of a record, its value in clusters.
fn mapped(kind: u32, name: &str, flags: u32, size: u64, pairs: &[u8]) -> Vec<u8> {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let at = (0x40 + name.len()).next_multiple_of(8);
    let len = (at + pairs.len() + 1).next_multiple_of(8);
    let (low, unit) = (size as u32, if flags == 0 { 0 } else { 4 << 16 });
    let first = 1 | (name.len() as u32 / 2) << 8 | 0x40 << 16;
    let head = [kind, len as u32, first, flags, 0, 0, 0, 0, at as u32 | unit, 0, low, 0, low, 0, low, 0];
    attribute(&head, &name, at, pairs, len)
}

fn attribute(head: &[u32], name: &[u8], at: usize, value: &[u8], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = head.iter().flat_map(|f| f.to_le_bytes()).collect();
    bytes.extend_from_slice(name);
    bytes.resize(at, 0);
    bytes.extend_from_slice(value);
    bytes.resize(len, 0);
    bytes
}

/// A name: in a record, or as the key of an index.
fn name(text: &str) -> Vec<u8> {
    let mut key = vec![0; 0x40];
    key.extend([text.len() as u8, 1]);
    key.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    key
}

/// An entry of an index; the last one has no key.
fn index_entry(record: u32, text: Option<&str>, child: Option<u32>) -> Vec<u8> {
    let key = text.map(name).unwrap_or_default();
    let flags = u32::from(child.is_some()) | if text.is_none() { 2 } else { 0 };
    let len = (0x10 + key.len()).next_multiple_of(8) + if child.is_some() { 8 } else { 0 };
    let head = [record, 1 << 16, len as u32 | (key.len() as u32) << 16, flags];
    let mut bytes: Vec<u8> = head.iter().flat_map(|f| f.to_le_bytes()).collect();
    bytes.extend(key);
    bytes.resize(len, 0);
    if let Some(child) = child {
        bytes[len - 8..len - 4].copy_from_slice(&child.to_le_bytes());
    }
    bytes
}

/// NTFS: a root with a block of its index, and files: resident, in clusters, compressed, a link.
pub fn ntfs() -> Vec<u8> {
    const MFT: usize = 8 * 512;
    const INDEX: u8 = 100;
    let mut disk = Sectors::default();
    // A cluster is a sector, a record has 1 KiB.
    disk.put(3, b"NTFS    \0\x02\x01");
    disk.put_fields(0, &[(0x28, 10_000), (0x30, 8), (0x38, 8), (0x40, 0xf6), (0x44, 0xf4)]);
    let standard = resident(0x10, "", &[0; 0x30]);
    let mut record = |no: usize, flags: u32, attributes: &[Vec<u8>]| {
        let area = [attributes.concat(), vec![0xff; 4]].concat();
        let fields = [
            (4, 0x30 | 3 << 16),
            (0x10, 1 | 1 << 16),
            (0x14, 0x38 | flags << 16),
            (0x18, 0x38 + area.len() as u32),
        ];
        disk.put(MFT + no * 1024, &[0; 1024]);
        disk.put(MFT + no * 1024, b"FILE");
        disk.put_fields(MFT + no * 1024, &fields);
        disk.put(MFT + no * 1024 + 0x38, &area);
    };
    let mut index_root: Vec<u8> = [0x30, 1, 4096, 8].iter().flat_map(|f: &u32| f.to_le_bytes()).collect();
    let entries = [index_entry(16, Some("file"), None), index_entry(0, None, Some(0))].concat();
    index_root.extend(
        [16, 16 + entries.len() as u32, 16 + entries.len() as u32, 1].iter().flat_map(|f| f.to_le_bytes()),
    );
    index_root.extend(entries);
    record(0, 1, &[standard.clone(), mapped(0x80, "", 0, 20 * 1024, &[0x11, 40, 8])]);
    let allocation = mapped(0xa0, "$I30", 0, 4096, &[0x11, 8, INDEX]);
    record(5, 3, &[standard.clone(), resident(0x90, "$I30", &index_root), allocation]);
    record(
        16,
        1,
        &[
            standard.clone(),
            resident(0x30, "", &name("file")),
            resident(0x80, "", b"data"),
            resident(0x80, "s", b"stream"),
        ],
    );
    record(17, 1, &[standard.clone(), mapped(0x80, "", 0, 3000, &[0x11, 3, 60, 0x01, 1, 0x11, 2, 5])]);
    record(18, 1, &[standard.clone(), mapped(0x80, "", 1, 9000, &[0x11, 1, 70, 0x01, 15, 0x11, 16, 5])]);
    let link: &[u8] = b"\x0c\0\0\xa0\x10\0\0\0\0\0\x02\0\0\0\x02\0\x01\0\0\0a\0b\0";
    record(19, 1, &[standard, resident(0xc0, "", link)]);
    disk.put(70 * 512, b"\x02\x30abc\x03\xb0\x02x\xfc\x0f");
    let entries: Vec<u8> = [(17, "mapped"), (18, "packed"), (19, "link")]
        .iter()
        .flat_map(|(no, text)| index_entry(*no, Some(text), None))
        .chain(index_entry(0, None, None))
        .collect();
    let at = usize::from(INDEX) * 512;
    disk.put(at, &[0; 4096]);
    disk.put(at, b"INDX");
    disk.put_fields(at, &[(4, 0x28 | 9 << 16), (0x18, 0x28), (0x1c, 0x28 + entries.len() as u32)]);
    disk.put(at + 0x40, &entries);
    disk.encode()
}

/// A first sector with a partition and an extended one.
pub fn partitions() -> Vec<u8> {
    let mut disk = Sectors::default();
    disk.put(0, &[0; 1024]);
    // Type, first sector, length.
    for (at, kind, start, len) in [(446, 0x83, 2, 8), (462, 5, 32, 64)] {
        disk.put_fields(at, &[(4, kind), (8, start), (12, len)]);
    }
    disk.put(510, &[0x55, 0xaa]);
    disk.encode()
}

/// The superblock of XFS, version 4, of one allocation group of 8192 blocks.
pub fn xfs_superblock() -> Vec<u8> {
    let mut disk = Sectors::default();
    disk.put(0, b"XFSB");
    disk.put(4, &4096u32.to_be_bytes());
    disk.put(8, &8192u64.to_be_bytes());
    // The log, the root, and the group's blocks.
    disk.put(48, &4096u64.to_be_bytes());
    disk.put(56, &64u64.to_be_bytes());
    disk.put(84, &8192u32.to_be_bytes());
    disk.put(88, &1u32.to_be_bytes());
    disk.put(96, &1000u32.to_be_bytes());
    // Version and features, sectors, inodes, and the logarithms of all of them.
    disk.put(100, &0xb4a4u16.to_be_bytes());
    disk.put(102, &512u16.to_be_bytes());
    disk.put(104, &256u16.to_be_bytes());
    disk.put(106, &16u16.to_be_bytes());
    disk.put(120, &[12, 9, 8, 4, 13]);
    disk.encode()
}

/// The smallest ext2: a superblock, one group, its inodes, and an empty root, in blocks of 1 KiB.
pub fn ext2() -> Vec<u8> {
    const BLOCKS: u32 = 64;
    const INODES: u32 = 16;
    const TABLE: u32 = 5;
    const ROOT: u32 = 7;
    let mut disk = Sectors::default();
    let mut block = |no: u32, fields: &[(usize, u32)]| {
        let at = no as usize * 1024;
        disk.put(at, &[0; 1024]);
        disk.put_fields(at, fields);
    };
    // Inodes, blocks, first block, blocks and inodes for a group, magic number, revision, inode size, file types.
    let sb = [(0, INODES), (4, BLOCKS), (0x14, 1), (0x20, 8192), (0x28, INODES)];
    block(1, &[&sb[..], &[(0x38, 0xef53), (0x4c, 1), (0x58, 128), (0x60, 2)]].concat());
    block(2, &[(8, TABLE)]);
    // The second inode: a directory of one block with two links.
    block(TABLE, &[(128, 0o40755), (128 + 4, 1024), (128 + 0x18, 2 << 16), (128 + 0x28, ROOT)]);
    let dots = [
        (0, 2),
        (4, 12 | 1 << 16 | 2 << 24),
        (8, 0x2e),
        (12, 2),
        (16, 1012 | 2 << 16 | 2 << 24),
        (20, 0x2e2e),
    ];
    block(ROOT, &dots);
    disk.encode()
}
