//! An early guess whether a group of chunks is worth compressing.
//!
//! A few samples, spread over the group, are looked at in two ways: the entropy of their bytes,
//! which tells what an entropy coder saves, and repeated strings, which tell what match finding
//! saves. The better of the two counts. Media, archives and ciphertext show neither.

const SAMPLE_BYTES: usize = 2048;
const SAMPLES_MAX: usize = 12;
/// Least share of the samples that must be saved, in 1/256: 5 %.
const WORTH: (usize, usize) = (13, 256);

/// Whether a compressor will probably make `data`, a group of chunks, at least 5 % smaller.
pub fn compressible(data: &[u8]) -> bool {
    let samples = data.len().div_ceil(SAMPLE_BYTES).min(SAMPLES_MAX);
    if samples == 0 {
        return false;
    }
    let stride = data.len() / samples;
    let sampled_bytes: usize = (0..samples).map(|no| sample(data, stride, no).len()).sum();
    let wanted = sampled_bytes * WORTH.0 / WORTH.1;
    let mut matches = Matches::default();
    let mut saved = 0;
    for no in 0..samples {
        let sample = sample(data, stride, no);
        saved += entropy_saving(sample).max(matches.saving(sample));
        if saved >= wanted.max(1) {
            return true;
        }
    }
    false
}

/// Sample `no`: within its stride, at a place that wanders, so that structures which repeat at the
/// stride are not always met at the same part.
fn sample(data: &[u8], stride: usize, no: usize) -> &[u8] {
    let slack = stride.saturating_sub(SAMPLE_BYTES);
    let from = no * stride + slack * (no * 5 % 8) / 8;
    &data[from..data.len().min(from + SAMPLE_BYTES.min(stride))]
}

/// Bytes that coding each byte of `sample` by its frequency would save, less what a sample this
/// small shows of random data by chance (Miller-Madow).
fn entropy_saving(sample: &[u8]) -> usize {
    let mut counts = [[0u16; 256]; 4];
    let mut quads = sample.chunks_exact(4);
    for quad in quads.by_ref() {
        for (count, &byte) in counts.iter_mut().zip(quad) {
            count[usize::from(byte)] += 1;
        }
    }
    for &byte in quads.remainder() {
        counts[0][usize::from(byte)] += 1;
    }
    let [a, b, c, d] = &counts;
    let mut coded_bits = sample.len() as f32 * (sample.len().max(1) as f32).log2();
    let mut values = 0;
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        let count = a + b + c + d;
        if count > 0 {
            let count = f32::from(count);
            coded_bits -= count * count.log2();
            values += 1;
        }
    }
    coded_bits += (values - 1) as f32 * (0.5 / std::f32::consts::LN_2);
    (sample.len() as f32 - coded_bits / 8.0).max(0.0) as usize
}

const HEAD_BITS: u32 = 12;
/// What one repeated quad saves, roughly: longer matches show as several.
const MATCH_SAVES: usize = 3;

/// Finds quads (four bytes in a row) that were met before. Remembers those at multiples of four and
/// looks at every position, so that a repeat of seven bytes or more is found at any distance.
struct Matches {
    /// Last quad met with each hash.
    heads: [u32; 1 << HEAD_BITS],
}

impl Default for Matches {
    fn default() -> Self {
        Self { heads: [0; 1 << HEAD_BITS] }
    }
}

impl Matches {
    /// Bytes that leaving repeats out of `sample` would save.
    fn saving(&mut self, sample: &[u8]) -> usize {
        let mut repeats = 0;
        for bytes in sample.windows(7).step_by(4) {
            let quad =
                |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let known = |at| usize::from(self.heads[slot(quad(at))] == quad(at));
            repeats += known(0) | known(1) | known(2) | known(3);
            self.heads[slot(quad(0))] = quad(0);
        }
        repeats * MATCH_SAVES
    }
}

fn slot(quad: u32) -> usize {
    (quad.wrapping_mul(0x9E37_79B1) >> (u32::BITS - HEAD_BITS)) as usize
}

#[cfg(test)]
mod tests;
