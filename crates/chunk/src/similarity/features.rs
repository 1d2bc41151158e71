//! Features and super-features of a chunk.

use super::gear;
use super::rabin::Rabin;
use std::str::FromStr;

/// Features of a chunk.
pub const FEATURES: usize = 16;
/// Super-features of a chunk, each over as many features.
pub const SUPER_FEATURES: usize = 4;
const FEATURES_EACH: usize = FEATURES / SUPER_FEATURES;
/// Rolling hashes that a chunk of average length gives to the transforms, where not all are taken.
const SAMPLES_WANTED: u32 = 64;
/// Bytes of a part that gives a feature, at least.
const PART_BYTES_MIN: usize = 16;

/// How features are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimilarityMethod {
    /// A Gear hash, of whose values those with some zero bits are transformed: about 64 of a chunk (Odess, Zou 2021).
    #[default]
    Odess,
    /// A Gear hash, of which each sixteenth of a chunk gives its largest value (Finesse, Zhang 2019).
    Finesse,
    /// A Rabin fingerprint over a window of 48 bytes, whose every value is transformed (Lin 2015, 2.4.1.1).
    Rabin,
}

/// Why a text is no [`SimilarityMethod`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a way to find similar chunks: odess, finesse or rabin")]
pub struct MethodError(String);

impl FromStr for SimilarityMethod {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        match text {
            "odess" => Ok(Self::Odess),
            "finesse" => Ok(Self::Finesse),
            "rabin" => Ok(Self::Rabin),
            _ => Err(MethodError(text.into())),
        }
    }
}

/// The super-features of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperFeatures(pub [u64; SUPER_FEATURES]);

/// Computes super-features.
pub struct Similarity {
    transforms: [(u64, u64); FEATURES],
    hashes: Hashes,
}

enum Hashes {
    /// Values of the Gear hash with zeros under this mask.
    Sampled(u64),
    /// The largest value of each part.
    OfParts,
    All(Box<Rabin>),
}

impl Similarity {
    /// For chunks of this length on average.
    pub fn new(method: SimilarityMethod, average_bytes: u32) -> Self {
        let mut seed = 0;
        let transforms = std::array::from_fn(|_| (gear::random(&mut seed) | 1, gear::random(&mut seed)));
        let hashes = match method {
            SimilarityMethod::Odess => {
                let bits = (average_bytes / SAMPLES_WANTED).max(1).ilog2();
                // The high bits of a Gear hash know most of the bytes before.
                Hashes::Sampled(!(u64::MAX >> bits))
            }
            SimilarityMethod::Finesse => Hashes::OfParts,
            SimilarityMethod::Rabin => Hashes::All(Box::default()),
        };
        Similarity { transforms, hashes }
    }

    /// The super-features of a chunk; `None` if it has too little content to tell.
    pub fn of(&self, chunk: &[u8]) -> Option<SuperFeatures> {
        let mut features = [0u64; FEATURES];
        let mut values = 0;
        let mut take = |value: u64| {
            values += 1;
            for (feature, (a, b)) in features.iter_mut().zip(&self.transforms) {
                *feature = (*feature).max(value.wrapping_mul(*a).wrapping_add(*b));
            }
        };
        match &self.hashes {
            Hashes::OfParts => return of_parts(chunk),
            Hashes::Sampled(mask) => gear::sampled(chunk, *mask, &mut take),
            Hashes::All(rabin) => rabin.each(chunk, &mut take),
        }
        (values >= FEATURES_EACH).then(|| {
            SuperFeatures(std::array::from_fn(|n| {
                joined(n, features[n * FEATURES_EACH..(n + 1) * FEATURES_EACH].iter())
            }))
        })
    }
}

/// A super-feature of this number.
fn joined<'a>(number: usize, features: impl Iterator<Item = &'a u64>) -> u64 {
    features.fold(number as u64, |all, feature| gear::mixed(all ^ feature))
}

/// A feature of each part of a chunk. Four parts that follow each other are a group, and a super-feature has the features of
/// the same rank in each group: one part that has changed changes one rank of one group.
fn of_parts(chunk: &[u8]) -> Option<SuperFeatures> {
    if chunk.len() < PART_BYTES_MIN * FEATURES {
        return None;
    }
    let mut features = gear::largest::<FEATURES>(chunk);
    features.chunks_exact_mut(FEATURES_EACH).for_each(|group| group.sort_unstable_by(|a, b| b.cmp(a)));
    let of_rank = |rank| features.iter().skip(rank).step_by(FEATURES_EACH);
    Some(SuperFeatures(std::array::from_fn(|rank| joined(rank, of_rank(rank)))))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn shared(a: SuperFeatures, b: SuperFeatures) -> usize {
        a.0.iter().zip(b.0).filter(|(x, y)| **x == *y).count()
    }

    const METHODS: [SimilarityMethod; 3] =
        [SimilarityMethod::Odess, SimilarityMethod::Finesse, SimilarityMethod::Rabin];

    #[test]
    fn chunks_with_small_changes_share_super_features_and_others_do_not() {
        for method in METHODS {
            for average in [2048, 8192, 32_768] {
                let similarity = Similarity::new(method, average);
                let (mut found, mut wrong) = (0, 0);
                for seed in 0..100 {
                    let old = noise(seed, average as usize);
                    // A byte inserted, and some others changed.
                    let mut new = old.clone();
                    new.insert(average as usize / 3, 7);
                    new[average as usize / 2..][..16].fill(1);
                    let other = noise(1000 + seed, average as usize);
                    let [old, new, other] = [&old, &new, &other].map(|c| similarity.of(c).unwrap());
                    found += usize::from(shared(old, new) > 0);
                    wrong += shared(old, other);
                }
                // Bytes that are inserted move the parts that Finesse takes features of.
                let least = if method == SimilarityMethod::Finesse { 70 } else { 90 };
                assert!(found >= least, "{method:?}, {average}: {found} of 100 were found");
                assert_eq!(wrong, 0, "{method:?}, {average}");
            }
        }
    }

    #[test]
    fn chunks_without_content_have_none() {
        for method in METHODS {
            let similarity = Similarity::new(method, 8192);
            assert_eq!(similarity.of(&[]), None);
            assert_eq!(similarity.of(b"abc"), None);
        }
    }

    /// No format depends on these values, but the same file should give the same archive everywhere.
    #[test]
    fn values_stay_the_same() {
        let chunk = noise(1, 8192);
        let of = |method| Similarity::new(method, 8192).of(&chunk).unwrap().0[0];
        let expected = [0x47b2_39fc_6854_e115, 0xd184_b8fc_1a44_8fec];
        assert_eq!([of(SimilarityMethod::Odess), of(SimilarityMethod::Rabin)], expected);
    }
}
