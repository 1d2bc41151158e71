//! The log: what a running machine had promised, and not yet written to its place, is replayed in memory.
//!
//! The log is a ring of records. Its head is where the newest record ends, its tail, which every record names, where
//! the oldest change begins that may not be in its place. Between them lie transactions, in pieces; those that were
//! committed are applied in their order, twice read: first for the buffers that were given up, whose older changes
//! must not come back, then for the changes.

mod fork;
mod item;
mod newest;
mod record;
mod ring;
mod transaction;

use super::superblock::FsBlock;
use super::volume::Volume;
use crate::error::{FsError, Result};
use item::{Cancelled, Intents};
use newest::newest;
use ring::Ring;

/// What became of the log.
pub(super) enum Log {
    /// Unmounted: nothing is in it.
    Clean,
    /// Its changes are applied.
    Replayed {
        /// Changes to files that were begun, and whose end is not in the log.
        unfinished: usize,
    },
    /// It could not be applied, and nothing of it is.
    Lost(FsError),
}

/// Applies the log to the metadata of a volume. Only what cannot be read is an error.
pub(super) fn replay(volume: &mut Volume, start: FsBlock) -> Result<Log> {
    match try_replay(volume, start) {
        Ok(log) => Ok(log),
        Err(FsError::Read(error)) => Err(FsError::Read(error)),
        Err(why) => {
            volume.overlay = Default::default();
            Ok(Log::Lost(why))
        }
    }
}

fn try_replay(volume: &mut Volume, start: FsBlock) -> Result<Log> {
    let ring = Ring::new(volume, start)?;
    let Some(newest) = newest(&ring)? else { return Ok(Log::Clean) };
    if newest.is_unmount() {
        return Ok(Log::Clean);
    }
    let (mut cancelled, mut intents) = (Cancelled::default(), Intents::default());
    transaction::each(&ring, &newest, &mut |transaction| {
        transaction.items.iter().try_for_each(|item| cancelled.note(item))
    })?;
    transaction::each(&ring, &newest, &mut |transaction| {
        item::apply(volume, transaction, &mut cancelled, &mut intents)
    })?;
    Ok(Log::Replayed { unfinished: intents.unfinished() })
}
