//! Content-defined boundaries: whether a chunk may end somewhere is decided by the sixteen bytes
//! before. Boundaries are on-disk policy (`docs/format/chunking.md`): the constants
//! never change.

use crate::piece::Piece;

#[cfg(target_arch = "x86_64")]
mod wide;
mod window;

/// The numbers of one content-defined spec, prepared.
pub(crate) struct Rule {
    min: usize,
    /// Chunk length from which on `lax` holds in place of `strict`.
    turn: usize,
    max: usize,
    /// A chunk may end where the hash is below.
    strict: u32,
    lax: u32,
}

impl Rule {
    /// For numbers that [`ChunkSpec::check`](crate::ChunkSpec::check) accepts.
    pub(crate) fn new(min: u32, average: u32, max: u32) -> Self {
        Self {
            min: min as usize,
            turn: min.max(average - average / 8) as usize,
            max: max as usize,
            strict: ((1 << 30) / u64::from(average)) as u32,
            lax: ((1 << 34) / u64::from(average)) as u32,
        }
    }

    /// Length of the chunk at the start of `data`, which is not empty.
    fn first(&self, data: &[u8]) -> usize {
        let end = data.len().min(self.max);
        first_below(data, self.min, self.turn.min(end), self.strict)
            .or_else(|| first_below(data, self.turn, end, self.lax))
            .unwrap_or(end)
    }
}

/// Cuts `data` and appends its pieces, all of them data.
pub(crate) fn cut(mut data: &[u8], rule: &Rule, out: &mut Vec<Piece>) {
    while !data.is_empty() {
        let bytes = rule.first(data);
        out.push(Piece::Data { bytes: bytes as u32 });
        data = &data[bytes..];
    }
}

/// The least length in `from..to` at whose end the window's hash is below `threshold`. `from` is
/// at least the window's length, `to` at most that of `data`.
fn first_below(data: &[u8], from: usize, to: usize, threshold: u32) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if let Some(found) = wide::first_below(data, from, to, threshold) {
        return found;
    }
    window::first_below(data, from, to, threshold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_find_what_single_windows_find() {
        let mut data = vec![0; 3000];
        blake3::Hasher::new().finalize_xof().fill(&mut data);
        for from in 16..200 {
            for to in (from..3000).step_by(173) {
                for threshold in [0, 1 << 20, 1 << 24, 1 << 28] {
                    let expected = window::first_below_slowly(&data, from, to, threshold);
                    assert_eq!(first_below(&data, from, to, threshold), expected);
                    assert_eq!(window::first_below(&data, from, to, threshold), expected);
                }
            }
        }
    }
}
