//! The transactions of a journal that were committed.

use super::copy::{Copy, TransactionId};
use super::log::{Log, HEADER_BYTES};
use crate::bytes::{be32, be64};
use crate::error::Result;
use crate::ext::blocks::JOURNAL_MAGIC;
use std::collections::HashMap;

const KIND_DESCRIPTOR: u32 = 1;
const KIND_COMMIT: u32 = 2;
const KIND_REVOCATIONS: u32 = 5;
const COMMIT_SECONDS_AT: usize = 0x30;

const FLAG_ESCAPED: u32 = 1;
const FLAG_SAME_UUID: u32 = 2;
const FLAG_LAST: u32 = 8;
const UUID_BYTES: usize = 16;

/// What all committed transactions say together.
pub(super) struct Transactions {
    /// In their order.
    pub copies: Vec<Copy>,
    /// The last transaction that revoked each block.
    pub revoked: HashMap<u64, TransactionId>,
    /// The transaction that would follow.
    pub next: TransactionId,
    /// What was wrong, for the user.
    pub warnings: Vec<String>,
}

/// A transaction whose commit block was not seen yet.
#[derive(Default)]
struct Open {
    copies: Vec<Copy>,
    revoked: Vec<u64>,
    /// The block with a wrong checksum: the transaction was not written whole, or was damaged since.
    doubtful: Option<u32>,
}

impl Transactions {
    /// Reads them from the oldest on; `None` where the journal is empty.
    pub fn read(log: &Log) -> Result<Option<Transactions>> {
        if log.start == 0 {
            return Ok(None);
        }
        let mut all = Transactions {
            copies: Vec::new(),
            revoked: HashMap::new(),
            next: log.start_id,
            warnings: Vec::new(),
        };
        let mut open = Open::default();
        let mut last_commit = 0;
        let (mut at, mut passed) = (log.start, 0u32);
        while passed < log.len() {
            let block = log.block(at)?;
            if !block.starts_with(&JOURNAL_MAGIC) || be32(&block, 8) != Some(all.next.0) {
                break;
            }
            let mut used = 1;
            match be32(&block, 4) {
                Some(KIND_DESCRIPTOR) => used += open.describe(log, &block, at, all.next),
                Some(KIND_REVOCATIONS) => open.revoke(log, &block, at),
                Some(KIND_COMMIT) => {
                    let seconds = be64(&block, COMMIT_SECONDS_AT).unwrap_or(0);
                    let wrong = if log.is_valid_commit(&block) { open.doubtful } else { Some(at) };
                    if let Some(wrong) = wrong {
                        // What stands here from an earlier round has an earlier time.
                        if seconds >= last_commit {
                            all.warn(wrong);
                        }
                        break;
                    }
                    last_commit = seconds;
                    all.commit(std::mem::take(&mut open));
                }
                _ => break,
            }
            at = log.after(at, used);
            passed = passed.saturating_add(used);
        }
        Ok(Some(all))
    }

    fn warn(&mut self, at: u32) {
        self.warnings.push(format!(
            "its journal has a wrong checksum in block {at}: transaction {} and those behind it are missing",
            self.next.0
        ));
    }

    fn commit(&mut self, open: Open) {
        self.copies.extend(open.copies);
        self.revoked.extend(open.revoked.into_iter().map(|block| (block, self.next)));
        self.next = self.next.next();
    }
}

impl Open {
    /// Takes the tags of the descriptor at `at`; returns how many blocks follow it.
    fn describe(&mut self, log: &Log, block: &[u8], at: u32, id: TransactionId) -> u32 {
        let (tags, is_valid) = log.without_tail(block);
        if !is_valid {
            self.doubtful.get_or_insert(at);
        }
        let mut count = 0;
        let mut from = HEADER_BYTES;
        while let Some(bytes) = tags.get(from..from + log.tag_bytes()) {
            let Some((block, checksum, flags)) = log.tag(bytes) else { break };
            count += 1;
            let is_escaped = flags & FLAG_ESCAPED != 0;
            self.copies.push(Copy { block, at: log.after(at, count), id, is_escaped, checksum });
            if flags & FLAG_LAST != 0 {
                break;
            }
            from += bytes.len() + if flags & FLAG_SAME_UUID == 0 { UUID_BYTES } else { 0 };
        }
        count
    }

    /// Takes a block of revocations.
    fn revoke(&mut self, log: &Log, block: &[u8], at: u32) {
        let (body, is_valid) = log.without_tail(block);
        if !is_valid {
            self.doubtful.get_or_insert(at);
        }
        let end = be32(body, HEADER_BYTES).unwrap_or(0) as usize;
        let records = body.get(HEADER_BYTES + 4..end.min(body.len())).unwrap_or_default();
        if log.is_64bit {
            self.revoked.extend(records.chunks_exact(8).filter_map(|r| be64(r, 0)));
        } else {
            self.revoked.extend(records.chunks_exact(4).filter_map(|r| be32(r, 0).map(u64::from)));
        }
    }
}
