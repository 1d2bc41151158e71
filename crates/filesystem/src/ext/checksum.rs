//! The checksums of metadata, in the form in which the format chains them: not inverted at either end.

/// What a chain of [`crc32c`] starts from.
pub(super) const START: u32 = u32::MAX;

/// CRC-32C of `bytes`, following `seed`.
pub(super) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// CRC-32C of `bytes` whose range `at..at + len` counts as zeros.
pub(super) fn crc32c_without(seed: u32, bytes: &[u8], at: usize, len: usize) -> u32 {
    const ZEROS: [u8; 8] = [0; 8];
    let at = at.min(bytes.len());
    let end = at.saturating_add(len.min(ZEROS.len())).min(bytes.len());
    let sum = crc32c(seed, &bytes[..at]);
    let sum = crc32c(sum, &ZEROS[..end - at]);
    crc32c(sum, &bytes[end..])
}

/// CRC-16 of `bytes`, following `seed`; it begins with all ones.
pub(super) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0xa001;
    bytes.iter().fold(seed, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte), |s, _| if s & 1 != 0 { s >> 1 ^ POLYNOMIAL } else { s >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_values() {
        assert_eq!(!crc32c(START, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(0xffff, b"123456789"), 0x4b37);
    }

    #[test]
    fn a_field_counts_as_zeros() {
        let (with, without) = (*b"abXXXXcd", *b"ab\0\0\0\0cd");
        assert_eq!(crc32c_without(7, &with, 2, 4), crc32c(7, &without));
        assert_eq!(crc32c_without(7, &with, 9, 4), crc32c(7, &with));
    }
}
