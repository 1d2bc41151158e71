//! Live disks that share their blocks.
//!
//! A [`Pool`] is a block device or a file. Its [`Volume`]s are disks that virtual machines run on: blocks of equal content
//! are stored once (LiveDFS, section 2), snapshots and clones take constant time. `docs/format/pool.md` lists the bytes,
//! `docs/flows/pool.md` tells the operations step by step.
//!
//! What always holds:
//! - What a flush acknowledged survives a power cut, and no block ever shows another's content.
//! - A block's content is not overwritten while anything names it, or a reader may still read it.
//! - No lock is held while the device works, but for the journal lock: its holder writes for all that wait. (Scans wait for
//!   each other.)

mod catalog;
mod check;
mod clocks;
mod device;
mod engine;
mod error;
mod files;
mod filter;
mod pool;
mod share;
mod volume;

pub use check::{CheckReport, Finding};
pub use clocks::Stages;
pub use device::{Device, FileDevice, FsDevice};
pub use error::{PoolError, Result};
pub use files::{AttachedFile, FileSystem};
pub use format::pool::{Sharing, VolumeBlock, VolumeId};
pub use pool::{
    Attached, FillInfo, FillStep, Filling, Options, Pool, PoolStats, SnapshotFacts, Usage, VolumeInfo,
};
pub use share::{ScanStats, ScanStep, Scanning};
pub use volume::{FingerprintDevice, Known, Volume};
