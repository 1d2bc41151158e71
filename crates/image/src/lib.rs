//! Reading and writing disks: raw files, block devices, qcow2, VMDK, pipes, NBD exports.
//!
//! A [`Source`] is a disk to be read once, from front to back; a [`Target`] is a disk to be written.
//! Neither knows what deduplication is.
//!
//! The wings, lower ones first; a file uses its own wing and lower ones:
//!
//! - `error`, `disk`: what every file uses;
//! - `file`: files and devices of this machine, their locks and their bytes;
//! - `source`: disks that need no mapping, and lists of what changed on a disk;
//! - `mapping`: what the readers of mapped formats have in common;
//! - `output`: the files, devices and pipes that a disk is written to;
//! - [`qcow2`], [`vmdk`]: the formats;
//! - `arriving`: a disk in use while its content still arrives;
//! - `open`, `create`: a disk by its path.

#![deny(missing_docs)]

mod arriving;
mod create;
mod disk;
mod error;
mod file;
mod in_place;
mod mapping;
mod open;
mod output;
pub mod qcow2;
mod source;
pub mod vmdk;

pub use arriving::{ArrivingDisk, ArrivingOptions, ArrivingPaths};
pub use create::create_target;
pub use disk::{Base, KnownBlock, KnownBlocks, Layer, Source, Target, KNOWN_BLOCK_BYTES};
pub use error::{ImageError, Result};
pub use file::bytes::ReadAt;
pub use file::lock::{check_stream, claim_source};
pub use file::random_file::{sync_folder_of, RandomFile};
pub use in_place::open_in_place;
pub use open::format::Format;
pub use open::{open, open_bytes, open_pipe, SourceOptions};
pub use output::options::{TargetFormat, TargetOptions};
pub use output::pipe::PipeTarget;
pub use output::replaced::ReplacedFile;
pub use source::changes::Changes;
pub use source::limited::{LimitedSource, Pace};
pub use source::nbd::NbdSource;
pub use source::stream::Stream;
