//! Pure computation on chunks: null test, chunkers, fingerprints, signatures, filters.
//!
//! A segment becomes pieces ([`cut`]), the pieces that hold data become fingerprints
//! ([`fingerprint_pieces`]), and from those come the segment's [`signature`] and
//! [`segment_fingerprint`]. [`PrefixIndex`] finds chunks that were seen before, [`compressible`]
//! tells which groups are worth a compressor's time, [`Census`] counts what deduplication
//! would save, [`Similarity`] tells which chunks are similar, and [`KnownFirsts`] is the rule by which they form clusters. Nothing here does
//! I/O. Boundaries and segment fingerprints are on-disk policy, defined in `docs/format/chunking.md`.

mod batch;
mod cdc;
mod census;
mod chunker;
mod compressible;
mod fingerprint;
mod null;
mod piece;
mod prefix_index;
mod prefix_table;
mod segment;
mod similarity;

pub use batch::{fingerprint_pieces, fingerprints};
pub use census::{Census, CensusReport, DuplicateClass, MetadataCost, Popular};
pub use chunker::{cut, ChunkSpec, SpecError};
pub use compressible::compressible;
pub use fingerprint::Fingerprint;
pub use null::is_null;
pub use piece::Piece;
pub use prefix_index::{Location, PrefixIndex};
pub use segment::{segment_fingerprint, signature};
pub use similarity::{
    KnownFirsts, MethodError, Similarity, SimilarityMethod, SuperFeatures, FEATURES, SUPER_FEATURES,
};
