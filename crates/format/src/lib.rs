//! Encodes and decodes the objects of a vault, the blocks of a pool ([`pool`]), archives whose headers stand apart
//! ([`mtar`]) or whose chunks were moved ([`mzip`]), and the numbers of the NBD protocol ([`nbd`]).
//!
//! No other crate knows their layout; the pages of `docs/format` list every field. Two things that stand beside these are
//! encoded where they are used: the map of a disk whose restored data arrives (crate `image`), and the names of a pool's
//! files, which a database keeps (crate `pool`). Nothing here does I/O. On any input, decoding never panics and allocates no
//! more memory than the limits of the format allow: it yields a value or a [`Malformed`] that says why.

mod archives;
mod bytes;
mod container;
mod frame;
mod ids;
mod index;
mod manifest;
pub mod names;
pub mod nbd;
pub mod pool;
mod recipe;
mod records;
mod runs;

pub use archives::{mtar, mzip};
pub use bytes::{Malformed, Result};
pub use container::{
    group_checksum, Codec, ContainerEntry, ContainerPage, DataFooter, DataHeader, DataName, DeadLog, Group,
    Table, TableRange, CONTAINERS_PER_PAGE, DATA_FOOTER_BYTES, DATA_HEADER_BYTES,
};
pub use frame::{decode_frame, encode_frame, frame_len, Context, FrameHeader, Kind, FRAME_HEADER_BYTES};
pub use ids::{
    ChunkNo, ContainerId, DiskId, GroupNo, Ordinal, OwnerNo, PageNo, SegmentNo, Sequence, SnapId, TableIndex,
    Token, VaultId, WriterNo,
};
pub use index::{
    BlockAt, ChunksByContainer, Hook, HookRange, HooksFooter, HooksSum, PopularChunk, PopularLayout,
    PopularSet, ReferenceBlock, ReferenceEntry, ReferenceFooter, HOOK_BYTES,
};
pub use manifest::{
    IndexRef, Indexed, Manifest, PageRef, Release, Released, Reverse, SnapshotEntry, SnapshotPage,
    SnapshotPageRef, SnapshotState, Writer, WriterKind, SNAPSHOTS_PER_PAGE,
};
pub use recipe::{
    Bloom, PageAt, RecipeName, RecipePage, RecipePageRef, RecipeRoot, Reference, SegmentRecipe, Summary,
    RECIPE_PAGES_MAX, SEGMENTS_PER_PAGE, SEGMENT_BYTES_MAX,
};
pub use records::{
    encode_mark, ClaimRecord, NameRecord, ReaderRecord, RetiringRecord, SessionRecord, VaultFile,
    Verification, Verifications, FORMAT_VERSION,
};
pub use runs::RunSet;
