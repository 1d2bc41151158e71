//! Tar archives whose headers stand apart from their data (Lin 2015, chapter 3).
//!
//! A tar archive has a header of 512 bytes before each file. Headers change from release to release (times, owners), and
//! spoil the chunks that they stand in. [`migrate`] moves them out of the way: a stream of sections, of which each has its
//! headers first and then its files, many of which begin at a multiple of the alignment. [`restore`] gives the archive
//! back, byte for byte. The stream is described in `docs/format/mtar.md`.
//!
//! Any input is migrated: what is no tar archive counts as data. A section is kept in memory, at most 20 MiB.

mod error;
mod migrate;
mod pieces;
mod restore;
mod tar;

pub use error::{MtarError, Result};
pub use migrate::{migrate, Migrated};
pub use restore::{restore, Restored};

/// The alignment of files in the stream, in bytes, if nothing else is asked for.
pub const ALIGN: u32 = 4096;
