//! LZNT1, by which NTFS compresses files ([MS-XCA], section 2.5): chunks of 4 KiB, each for itself.

const CHUNK_BYTES: usize = 4096;
const COMPRESSED: u16 = 0x8000;
/// Chunks are followed by this, or by the end.
const END: u16 = 0;

/// Fills `out` from compressed data; what the data does not reach is zeros. Says what is wrong with damaged data.
pub(super) fn decode(data: &[u8], out: &mut [u8]) -> Result<(), String> {
    let mut at = 0;
    for (n, out) in out.chunks_mut(CHUNK_BYTES).enumerate() {
        out.fill(0);
        let Some(header) = crate::bytes::le16(data, at).filter(|header| *header != END) else {
            at = data.len();
            continue;
        };
        let len = usize::from(header & 0xfff) + 1;
        let chunk = data
            .get(at + 2..at + 2 + len)
            .ok_or_else(|| format!("chunk {n} of {len} bytes at {at:#x} of {:#x}", data.len()))?;
        if header & COMPRESSED == 0 {
            let out = out.get_mut(..len).ok_or_else(|| format!("chunk {n} holds {len} bytes"))?;
            out.copy_from_slice(chunk);
        } else {
            decode_chunk(chunk, out).ok_or_else(|| format!("chunk {n} at {at:#x} cannot be decompressed"))?;
        }
        at += 2 + len;
    }
    Ok(())
}

/// Flags for eight tokens, then the tokens: a byte, or a length and a distance.
fn decode_chunk(chunk: &[u8], out: &mut [u8]) -> Option<()> {
    let mut done = 0;
    let mut rest = chunk;
    while let Some((&flags, after)) = rest.split_first() {
        rest = after;
        for bit in 0..8 {
            let Some(&first) = rest.first() else { return Some(()) };
            if flags >> bit & 1 == 0 {
                *out.get_mut(done)? = first;
                done += 1;
                rest = &rest[1..];
            } else {
                let token = u16::from_le_bytes([first, *rest.get(1)?]);
                rest = &rest[2..];
                done = copy(token, out, done)?;
            }
        }
    }
    Some(())
}

/// Repeats what stands in `out` before `done`; the new end. The more there is, the fewer bits are for the length.
fn copy(token: u16, out: &mut [u8], done: usize) -> Option<usize> {
    let distance_bits = (usize::BITS - done.checked_sub(1)?.leading_zeros()).max(4);
    let length_bits = 16 - distance_bits;
    let distance = usize::from(token >> length_bits) + 1;
    let len = usize::from(token & ((1 << length_bits) - 1)) + 3;
    let from = done.checked_sub(distance)?;
    let end = done + len;
    if end > out.len() {
        return None;
    }
    if distance >= len {
        out.copy_within(from..from + len, done);
    } else {
        (0..len).for_each(|n| out[done + n] = out[from + n]);
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of [MS-XCA], section 3.2.
    const EXAMPLE: &[u8] = b"\x38\xb0\x88\x46\x23\x20\x00\x20\x47\x20\x41\x00\x10\xa2\x47\x01\xa0\x45\x20\x44\
        \x00\x08\x45\x01\x50\x79\x00\xc0\x45\x20\x05\x24\x13\x88\x05\xb4\x02\x4a\x44\xef\x03\x58\x02\x8c\x09\x16\
        \x01\x48\x45\x00\xbe\x00\x9e\x00\x04\x01\x18\x90\x00";
    const TEXT: &[u8] =
        b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G \
        F# D E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";

    #[test]
    fn the_example_of_the_specification() {
        let mut out = [0xee; 200];
        decode(EXAMPLE, &mut out).expect("good data");
        assert_eq!(&out[..TEXT.len()], TEXT);
        assert!(out[TEXT.len()..].iter().all(|b| *b == 0));
    }

    #[test]
    fn chunks_begin_at_their_boundaries() {
        let mut data = vec![0x02, 0x30, b'a', b'b', b'c'];
        data.extend_from_slice(&[0x03, 0xb0, 0x02, b'x', 0xfc, 0x0f]);
        let mut out = vec![0xee; 3 * CHUNK_BYTES];
        decode(&data, &mut out).expect("good data");
        assert_eq!(&out[..4], b"abc\0");
        assert!(out[CHUNK_BYTES..2 * CHUNK_BYTES].iter().all(|b| *b == b'x' || *b == 0));
        assert_eq!(&out[CHUNK_BYTES..CHUNK_BYTES + 4], b"xxxx");
        assert!(out[2 * CHUNK_BYTES..].iter().all(|b| *b == 0));
    }

    #[test]
    fn damage_is_refused() {
        let mut out = [0; CHUNK_BYTES];
        for data in
            [&b"\x05\xb0\x00a"[..], b"\x02\xb0\x01\x00\x00", b"\x02\xb0\x02a\xff", b"\x03\xb0\x02a\xff\xff"]
        {
            assert!(decode(data, &mut out).is_err(), "{data:x?}");
        }
        for at in 0..EXAMPLE.len() * 8 {
            let mut data = EXAMPLE.to_vec();
            data[at / 8] ^= 1 << (at % 8);
            let _ = decode(&data, &mut out);
            let _ = decode(&data, &mut out[..60]);
        }
    }
}
