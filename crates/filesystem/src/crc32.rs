//! CRC-32 (IEEE 802.3), as partition tables and LVM have it.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut table = [0; 256];
    let mut n = 0;
    while n < table.len() {
        let mut sum = n as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 != 0 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[n] = sum;
        n += 1;
    }
    table
}

/// The checksum of `bytes`, following `seed`, not inverted at either end.
pub(crate) fn raw(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |sum, byte| sum >> 8 ^ TABLE[(sum as u8 ^ byte) as usize])
}

/// The checksum of `bytes` in its usual form.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !raw(u32::MAX, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn published_check_value() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
