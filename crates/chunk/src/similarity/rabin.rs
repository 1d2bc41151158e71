//! Rabin fingerprints of a rolling window: the window's bits as a polynomial over GF(2), modulo an irreducible one.

/// Bytes of the window.
const WINDOW: usize = 48;
/// An irreducible polynomial of degree 63.
const POLYNOMIAL: u64 = 0xbfe6_b8a5_bf37_8d83;
const DEGREE: u32 = 63;

/// What bytes that enter and leave the window add to a fingerprint.
pub(super) struct Rabin {
    enter: [u64; 256],
    leave: [u64; 256],
}

impl Default for Rabin {
    fn default() -> Self {
        let mut rabin = Rabin { enter: [0; 256], leave: [0; 256] };
        for n in 0..256u64 {
            // The byte that is shifted out above the degree, reduced; its own bit 63 goes as well.
            rabin.enter[n as usize] = times_x(n, DEGREE) | n << DEGREE;
        }
        for n in 0..256u64 {
            rabin.leave[n as usize] = times_x(n, 8 * (WINDOW as u32 - 1));
        }
        rabin
    }
}

/// A polynomial of low degree, times a power of x.
fn times_x(mut value: u64, power: u32) -> u64 {
    for _ in 0..power {
        value <<= 1;
        if value >> DEGREE == 1 {
            value ^= POLYNOMIAL;
        }
    }
    value
}

impl Rabin {
    fn push(&self, fingerprint: u64, byte: u8) -> u64 {
        (fingerprint << 8 | u64::from(byte)) ^ self.enter[(fingerprint >> (DEGREE - 8)) as usize]
    }

    /// Calls a function with the fingerprint of each window in the chunk.
    pub(super) fn each(&self, chunk: &[u8], take: &mut impl FnMut(u64)) {
        let Some((first, rest)) = chunk.split_at_checked(WINDOW) else { return };
        let mut fingerprint = first.iter().fold(0, |f, byte| self.push(f, *byte));
        take(fingerprint);
        for (byte, old) in rest.iter().zip(chunk) {
            fingerprint = self.push(fingerprint ^ self.leave[usize::from(*old)], *byte);
            take(fingerprint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit.
    fn slowly(window: &[u8]) -> u64 {
        let mut value = 0u64;
        for byte in window {
            for bit in (0..8).rev() {
                value = times_x(value, 1) ^ u64::from(byte >> bit & 1);
            }
        }
        value
    }

    #[test]
    fn a_fingerprint_depends_on_its_window_only() {
        let mut chunk = vec![0; 500];
        blake3::Hasher::new().finalize_xof().fill(&mut chunk);
        let mut found = Vec::new();
        Rabin::default().each(&chunk, &mut |value| found.push(value));
        let expected: Vec<u64> = chunk.windows(WINDOW).map(slowly).collect();
        assert_eq!(found, expected);
    }
}
