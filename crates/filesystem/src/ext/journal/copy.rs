//! Copies of blocks in the journal, and the transactions that they belong to.

use std::cmp::Ordering;

/// The number of a transaction. It counts round and round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransactionId(pub u32);

impl TransactionId {
    /// The one that follows.
    pub fn next(self) -> TransactionId {
        TransactionId(self.0.wrapping_add(1))
    }
}

impl PartialOrd for TransactionId {
    fn partial_cmp(&self, other: &TransactionId) -> Option<Ordering> {
        Some((self.0.wrapping_sub(other.0) as i32).cmp(&0))
    }
}

/// A block's copy in the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// The block of the volume.
    pub block: u64,
    /// The block of the journal.
    pub at: u32,
    /// The transaction that wrote it.
    pub id: TransactionId,
    /// Whether its first four bytes, the journal's magic number, were replaced by zeros.
    pub is_escaped: bool,
    /// The checksum that the descriptor has for it.
    pub checksum: u32,
}
