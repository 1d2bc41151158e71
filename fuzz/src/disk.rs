//! Disks in inputs.

use filesystem::{Disk, Result};
use std::collections::BTreeMap;

const SECTOR: usize = 512;

/// The size of every disk: all sectors that have a number.
pub const DISK_BYTES: u64 = (SECTOR as u64) << u16::BITS;

/// A disk made of sectors here and there; all others are zeros.
#[derive(Default)]
pub struct Sectors(BTreeMap<u16, [u8; SECTOR]>);

impl Sectors {
    /// Takes sectors, each behind its number of two bytes. The last one may be cut off.
    pub fn decode(bytes: &[u8]) -> Sectors {
        let sectors = bytes.chunks(size_of::<u16>() + SECTOR).filter_map(|record| {
            let (number, data) = record.split_first_chunk()?;
            let mut sector = [0; SECTOR];
            sector[..data.len()].copy_from_slice(data);
            Some((u16::from_le_bytes(*number), sector))
        });
        Sectors(sectors.collect())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.0.iter().flat_map(|(number, data)| [&number.to_le_bytes()[..], data].concat()).collect()
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        for (n, byte) in (at..).zip(bytes) {
            self.0.entry((n / SECTOR) as u16).or_insert([0; SECTOR])[n % SECTOR] = *byte;
        }
    }

    /// Puts little-endian numbers, each so far behind `base`.
    pub(crate) fn put_fields(&mut self, base: usize, fields: &[(usize, u32)]) {
        fields.iter().for_each(|(at, value)| self.put(base + at, &value.to_le_bytes()));
    }
}

impl Disk for Sectors {
    fn size(&self) -> u64 {
        DISK_BYTES
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= DISK_BYTES);
        let end = end.unwrap_or_else(|| panic!("{} bytes at {offset}", buf.len()));
        buf.fill(0);
        if offset == end {
            return Ok(());
        }
        let (first, last) = ((offset / SECTOR as u64) as u16, ((end - 1) / SECTOR as u64) as u16);
        for (number, data) in self.0.range(first..=last) {
            let at = u64::from(*number) * SECTOR as u64;
            let (from, to) = (at.max(offset), (at + SECTOR as u64).min(end));
            let taken = &data[(from - at) as usize..(to - at) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(taken);
        }
        Ok(())
    }
}
