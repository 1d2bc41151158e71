//! Which chunks are similar: features, super-features, and clusters (Lin 2015, 2.4.1.1).
//!
//! A feature is the largest value of one linear transform over the rolling hashes of a chunk. Four features make a
//! super-feature; two chunks with a super-feature in common are probably similar. [`Clusters`] puts each chunk beside the
//! first one that it shares a super-feature with, and [`migrated_order`] says in which order the chunks then stand.

mod clusters;
mod features;
mod gear;
mod rabin;

pub use clusters::{migrated_order, Clusters};
pub use features::{MethodError, Similarity, SimilarityMethod, SuperFeatures, FEATURES, SUPER_FEATURES};
