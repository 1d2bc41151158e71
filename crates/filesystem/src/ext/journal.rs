//! The journal (jbd2): blocks that were promised to reach their places, and may not have got there yet.
//!
//! A transaction is a run of descriptor blocks, each followed by copies of the blocks that it names, of revocations, and
//! of a commit block at last. What is before the commit block counts only if that is there and valid. A revocation
//! takes back the older copies of a block, which was freed since.

mod copy;
mod log;
mod transaction;

use super::blocks::{BlockNo, Blocks, Logged};
use crate::error::Result;
use crate::tree::extents::Extent;
use copy::Copy;
use log::{damage, Log};
use std::collections::{BTreeMap, HashMap};
use transaction::Transactions;

/// What the journal says.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The newest version of each block.
    pub blocks: BTreeMap<BlockNo, Logged>,
    /// What was wrong or is missing.
    pub warnings: Vec<String>,
}

/// Reads the journal, an inode's data at `extents`.
pub(super) fn replay(blocks: &Blocks, extents: &[Extent]) -> Result<Replay> {
    let log = Log::open(blocks, extents)?;
    let mut replay = Replay::default();
    let Some(mut transactions) = Transactions::read(&log)? else { return Ok(replay) };
    replay.warnings.append(&mut transactions.warnings);
    if log.has_fast_commit(transactions.next)? {
        replay.warnings.push(
            "its journal ends with fast commits, which were not replayed: changes of the last seconds are missing".into(),
        );
    }
    let newest = newest(&transactions);
    for copy in newest.values() {
        // It may be block 0, the superblock's, and behind an end that the journal is about to move.
        let end = blocks.volume_end();
        if copy.block >= end {
            return Err(damage(format!("it has block {} of a volume of {end}", copy.block)));
        }
        if log.is_valid(copy)? {
            let logged = Logged { offset: log.offset(copy.at)?, is_escaped: copy.is_escaped };
            replay.blocks.insert(BlockNo(copy.block), logged);
        } else {
            replay.warnings.push(format!(
                "its journal's version of block {} has a wrong checksum and was left out",
                copy.block
            ));
        }
    }
    Ok(replay)
}

/// The last copy of each block that was not revoked since.
fn newest(transactions: &Transactions) -> HashMap<u64, Copy> {
    let mut newest = HashMap::new();
    for copy in &transactions.copies {
        let is_revoked = transactions.revoked.get(&copy.block).is_some_and(|until| copy.id <= *until);
        if !is_revoked {
            newest.insert(copy.block, *copy);
        }
    }
    newest
}
