//! The hash of a window, and the search for the first that lies below a threshold.
//!
//! The hash is a few shifts, additions and multiplications, with no state carried from one position
//! to the next, so that the compiler tests many positions at once; a rolling hash takes them one by
//! one. The constants never change: they are on-disk policy.

const WINDOW_BYTES: usize = 16;
const WINDOW_WORDS: usize = WINDOW_BYTES / WORD_BYTES;
/// Two multipliers and what is added.
const ODD: u32 = 0x267F_6FE3;
const EVEN: u32 = 0x5FCF_773B;
const OFFSET: u32 = 0x06B6_E341;

/// Positions tested between two looks at the result.
const STRIDE: usize = 64;
/// The bytes that `STRIDE` windows cover.
const STRIDE_BYTES: usize = STRIDE + WINDOW_BYTES - 1;
const WORD_BYTES: usize = 4;
const WORDS: usize = STRIDE / WORD_BYTES;

/// Inlined all the way down, so that it is compiled for the registers its caller may use. What it calls is therefore marked
/// so too, and there are neither closures nor adapters of iterators in it, which the compiler may leave outside.
#[inline(always)]
pub(super) fn first_below(data: &[u8], from: usize, to: usize, threshold: u32) -> Option<usize> {
    let mut at = from;
    while at + STRIDE <= to {
        let stride = data[at - WINDOW_BYTES..].first_chunk()?;
        if any_below(stride, threshold) {
            return first_below_slowly(data, at, at + STRIDE, threshold);
        }
        at += STRIDE;
    }
    first_below_slowly(data, at, to, threshold)
}

/// As [`first_below`], one position after the other.
pub(super) fn first_below_slowly(data: &[u8], from: usize, to: usize, threshold: u32) -> Option<usize> {
    (from..to).find(|at| {
        let words: [u32; WINDOW_WORDS] = words(&data[at - WINDOW_BYTES..*at]);
        hash(words) < threshold
    })
}

/// Whether any of the stride's windows has a hash below `threshold`.
#[inline(always)]
fn any_below(stride: &[u8; STRIDE_BYTES], threshold: u32) -> bool {
    let mut below = [0; WORDS];
    for phase in 0..WORD_BYTES {
        let a: [u32; WORDS] = words(&stride[phase..]);
        let b: [u32; WORDS] = words(&stride[phase + WORD_BYTES..]);
        let c: [u32; WORDS] = words(&stride[phase + 2 * WORD_BYTES..]);
        let d: [u32; WORDS] = words(&stride[phase + 3 * WORD_BYTES..]);
        for no in 0..WORDS {
            below[no] |= if hash([a[no], b[no], c[no], d[no]]) < threshold { u32::MAX } else { 0 };
        }
    }
    let mut any = 0;
    for below in below {
        any |= below;
    }
    any != 0
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for no in 0..N {
        let at = no * WORD_BYTES;
        words[no] = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    }
    words
}

#[inline(always)]
fn hash(window: [u32; WINDOW_WORDS]) -> u32 {
    hash_with(window, ODD, EVEN, OFFSET)
}

#[inline(always)]
fn hash_with([a, b, c, d]: [u32; WINDOW_WORDS], odd: u32, even: u32, offset: u32) -> u32 {
    let mixed = d.wrapping_add(b << 13).wrapping_mul(even);
    let sum = c.wrapping_add(a << 9).wrapping_add(mixed ^ (mixed >> 15));
    sum.wrapping_mul(odd).wrapping_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three numbers of a fixed stream that make windows of equal bytes, common on
    /// disks, poor ends of chunks: otherwise padding would be cut to pieces of the minimum.
    #[test]
    fn constants_are_derived() {
        let mut stream =
            blake3::Hasher::new().update(b"Sapwood content-defined boundaries v1").finalize_xof();
        let derived = loop {
            let mut bytes = [0; 12];
            stream.fill(&mut bytes);
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let (odd, even, offset) = (word(0) | 1, word(4) | 1, word(8));
            let poor = |byte: u32| hash_with([byte * 0x0101_0101; 4], odd, even, offset) >= 1 << 26;
            if (0..256).all(poor) {
                break [odd, even, offset];
            }
        };
        assert_eq!([ODD, EVEN, OFFSET], derived, "{derived:#010x?}");
    }
}
