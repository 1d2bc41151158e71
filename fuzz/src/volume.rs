//! Volumes of which few sectors are not zeros, and small file systems in them.

use filesystem::{Disk, Result};
use std::collections::BTreeMap;

const SECTOR: usize = 512;

/// The size of every volume.
pub const VOLUME_BYTES: u64 = 8 << 20;

/// A volume made of sectors here and there; all others are zeros.
#[derive(Default)]
pub struct Sectors(BTreeMap<u64, [u8; SECTOR]>);

impl Sectors {
    /// Takes sectors, each behind its number of two bytes.
    pub fn parse(bytes: &[u8]) -> Sectors {
        let mut sectors = Sectors::default();
        for record in bytes.chunks(2 + SECTOR) {
            let Some((number, data)) = record.split_first_chunk() else { continue };
            let number = u64::from(u16::from_le_bytes(*number)) % (VOLUME_BYTES / SECTOR as u64);
            let mut sector = [0; SECTOR];
            sector[..data.len()].copy_from_slice(data);
            sectors.0.insert(number, sector);
        }
        sectors
    }

    fn encode(&self) -> Vec<u8> {
        let one =
            |(number, data): (&u64, &[u8; SECTOR])| [&(*number as u16).to_le_bytes()[..], data].concat();
        self.0.iter().flat_map(one).collect()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (n, byte) in (at..).zip(bytes) {
            self.0.entry((n / SECTOR) as u64).or_insert([0; SECTOR])[n % SECTOR] = *byte;
        }
    }

    fn put_fields(&mut self, base: usize, fields: &[(usize, u32)]) {
        fields.iter().for_each(|(at, value)| self.put(base + at, &value.to_le_bytes()));
    }
}

impl Disk for Sectors {
    fn size(&self) -> u64 {
        VOLUME_BYTES
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        assert!(end <= VOLUME_BYTES, "{} bytes at {offset}", buf.len());
        buf.fill(0);
        for (number, data) in self.0.range(offset / SECTOR as u64..end.div_ceil(SECTOR as u64)) {
            let at = number * SECTOR as u64;
            let (from, to) = (at.max(offset), (at + SECTOR as u64).min(end));
            let taken = &data[(from - at) as usize..(to - at) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(taken);
        }
        Ok(())
    }
}

/// FAT12: a file of two clusters and a directory.
pub fn fat12() -> Vec<u8> {
    let mut volume = Sectors::default();
    // Sectors of 512 bytes, one for a cluster; one reserved, a table of one, a root of one; 100 in all.
    volume.put(0, &[0xeb, 0, 0x90]);
    volume.put(11, &[0, 2, 1, 1, 0, 1, 16, 0, 100, 0, 0xf8, 1, 0]);
    volume.put(38, b"\x29\0\0\0\0FUZZ       ");
    volume.put(510, &[0x55, 0xaa]);
    // 2 -> 4 -> end, 3 -> end.
    volume.put(512, &[0xf8, 0xff, 0xff, 0x04, 0xf0, 0xff, 0xff, 0x0f]);
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
    volume.put(1024, &root.concat());
    volume.put(1024 + 512 + 512, &entry(b".          ", 0x10, 3, 0));
    volume.encode()
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
    let mut volume = Sectors::default();
    // A cluster is a sector, a record has 1 KiB.
    volume.put(3, b"NTFS    \0\x02\x01");
    volume.put_fields(0, &[(0x28, 10_000), (0x30, 8), (0x38, 8), (0x40, 0xf6), (0x44, 0xf4)]);
    let standard = resident(0x10, "", &[0; 0x30]);
    let mut record = |no: usize, flags: u32, attributes: &[Vec<u8>]| {
        let area = [attributes.concat(), vec![0xff; 4]].concat();
        let fields = [
            (4, 0x30 | 3 << 16),
            (0x10, 1 | 1 << 16),
            (0x14, 0x38 | flags << 16),
            (0x18, 0x38 + area.len() as u32),
        ];
        volume.put(MFT + no * 1024, &[0; 1024]);
        volume.put(MFT + no * 1024, b"FILE");
        volume.put_fields(MFT + no * 1024, &fields);
        volume.put(MFT + no * 1024 + 0x38, &area);
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
    volume.put(70 * 512, b"\x02\x30abc\x03\xb0\x02x\xfc\x0f");
    let entries: Vec<u8> = [(17, "mapped"), (18, "packed"), (19, "link")]
        .iter()
        .flat_map(|(no, text)| index_entry(*no, Some(text), None))
        .chain(index_entry(0, None, None))
        .collect();
    let at = usize::from(INDEX) * 512;
    volume.put(at, &[0; 4096]);
    volume.put(at, b"INDX");
    volume.put_fields(at, &[(4, 0x28 | 9 << 16), (0x18, 0x28), (0x1c, 0x28 + entries.len() as u32)]);
    volume.put(at + 0x40, &entries);
    volume.encode()
}
