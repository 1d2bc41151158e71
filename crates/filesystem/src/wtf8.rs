//! Names of UTF-16 units as bytes: UTF-8, and lone surrogates as WTF-8 has them (three bytes each).

/// The bytes of a name.
pub(crate) fn from_units(units: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(units.len());
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(lone) => push_surrogate(lone.unpaired_surrogate(), &mut bytes),
        }
    }
    bytes
}

/// The bytes of a name of little-endian units; a last odd byte is left out.
pub(crate) fn from_le_bytes(name: &[u8]) -> Vec<u8> {
    from_units(&units(name))
}

/// Little-endian units; a last odd byte is left out.
pub(crate) fn units(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
}

fn push_surrogate(unit: u16, bytes: &mut Vec<u8>) {
    bytes.extend([0xe0 | (unit >> 12) as u8, 0x80 | (unit >> 6 & 0x3f) as u8, 0x80 | (unit & 0x3f) as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogates_are_kept() {
        assert_eq!(from_units(&[0x61, 0xe9, 0x20ac]), "aé€".as_bytes());
        assert_eq!(from_units(&[0xd83d, 0xde00]), "😀".as_bytes());
        assert_eq!(from_units(&[0xd83d]), [0xed, 0xa0, 0xbd]);
        assert_eq!(from_units(&[0xde00, 0x61, 0xd83d, 0x62]), *b"\xed\xb8\x80a\xed\xa0\xbdb");
        assert_eq!(from_le_bytes(b"a\0b\0c"), b"ab");
    }
}
