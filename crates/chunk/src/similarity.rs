//! Which chunks are similar: features and super-features (Lin 2015, 2.4.1.1).
//!
//! A feature is the largest value of one linear transform over the rolling hashes of a chunk. Four features make a
//! super-feature; two chunks with a super-feature in common are probably similar. [`KnownFirsts`] is the rule by
//! which they form clusters.

mod features;
mod first_fit;
mod gear;
mod rabin;

pub use features::{MethodError, Similarity, SimilarityMethod, SuperFeatures, FEATURES, SUPER_FEATURES};
pub use first_fit::KnownFirsts;
