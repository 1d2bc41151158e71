//! The null test: is a piece all zero?

/// Bytes folded between two looks at the result: long enough to fill wide registers, short enough
/// that data which is not null is recognised by its first bytes.
const STRIDE: usize = 256;

/// Whether every byte of `data` is zero. Empty data is null.
pub fn is_null(data: &[u8]) -> bool {
    let mut strides = data.chunks_exact(STRIDE);
    for stride in strides.by_ref() {
        if stride.iter().fold(0, |any, byte| any | byte) != 0 {
            return false;
        }
    }
    strides.remainder().iter().fold(0, |any, byte| any | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_set_bit_anywhere_is_seen() {
        for length in [0, 1, 7, 255, 256, 257, 4095, 4096, 5000] {
            let mut data = vec![0u8; length];
            assert!(is_null(&data));
            for at in (0..length).step_by(61).chain(length.checked_sub(1)) {
                data[at] = 0x80;
                assert!(!is_null(&data), "byte {at} of {length}");
                data[at] = 0;
            }
        }
    }
}
