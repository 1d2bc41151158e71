//! Migratory compression of files and streams (Lin 2015, chapter 2).
//!
//! A compressor finds what is equal within its window only. [`compress`] cuts a file into chunks, keeps equal ones once,
//! moves similar ones beside each other, and compresses the result in blocks on all cores. [`Archive`] gives the file back,
//! or a part of it. The bytes are described in `docs/format/mzip.md`, the steps in `docs/flows/mzip.md`.

mod archive;
mod base;
mod compress;
mod mover;
mod plan;
mod restore;
mod sample;
mod scan;
mod stored;
mod writer;

pub use archive::{Archive, Summary};
pub use base::codec::{level_is_valid, levels};
pub use base::error::{MzipError, Result};
pub use base::progress::Progress;
pub use base::read_at::{ReadAt, WriteAt};
pub use chunk::{ChunkSpec, SimilarityMethod, SpecError};
pub use compress::{compress, Compressed, Options, Phases, Source};
pub use format::mzip::Compressor;
pub use mover::{Disk, Mover, MoverError};
pub use restore::{Output, Restored};
pub use stored::Kept;
