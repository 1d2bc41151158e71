//! Transactions, put together from their operations, which may lie in several records and between those of others.

use super::record::{Operation, Record};
use super::ring::Ring;
use crate::bytes::{le16, le32};
use crate::error::Result;
use crate::xfs::error::corrupt;
use std::collections::HashMap;

const FLAG_START: u8 = 0x01;
const FLAG_COMMIT: u8 = 0x02;
/// The rest of the data comes with a later operation.
const FLAG_CONTINUES: u8 = 0x04;
/// The data belongs to that of the operation before.
const FLAG_CONTINUED: u8 = 0x08;
const FLAG_UNMOUNT: u8 = super::record::FLAG_UNMOUNT;

const HEADER_MAGIC: u32 = 0x5452_414e;
const HEADER_BYTES: usize = 16;
/// What transactions that are not committed yet may hold. The kernel ends one at 64 MiB.
const MAX_PENDING_BYTES: usize = 256 << 20;
const PER_REGION_BYTES: usize = 64;

/// A thing that was changed: its description, and the new bytes, in regions.
#[derive(Default)]
pub(super) struct Item {
    /// The description first, then what it describes.
    pub regions: Vec<Vec<u8>>,
    total: usize,
}

/// A committed transaction.
pub(super) struct Transaction {
    /// Where it began in the log; metadata on the disk says up to where it is current.
    pub lsn: u64,
    /// What it changed, in order.
    pub items: Vec<Item>,
    header: Vec<u8>,
    bytes: usize,
}

/// Calls `commit` for each transaction from the tail to the end of the newest record, in the order of their commits.
pub(super) fn each(
    ring: &Ring,
    newest: &Record,
    commit: &mut dyn FnMut(Transaction) -> Result<()>,
) -> Result<()> {
    let mut at = newest.tail;
    let is_behind = match newest.at.cycle.wrapping_sub(at.cycle) {
        0 => at.block <= newest.at.block,
        1 => at.block > newest.at.block && at.block < ring.blocks,
        _ => false,
    };
    if !is_behind {
        let (cycle, block) = (at.cycle, at.block);
        return Err(corrupt(format!("the log's tail is at block {block} of round {cycle}")));
    }
    let mut pending = Pending::default();
    while at <= newest.at {
        let record = Record::read(ring, at)?
            .ok_or_else(|| corrupt(format!("the log's record at block {} is damaged", at.block)))?;
        for operation in record.operations() {
            if let Some(transaction) = pending.take(&operation?, record.at.lsn())? {
                commit(transaction)?;
            }
        }
        at = record.end;
    }
    Ok(())
}

/// Transactions whose commit has not come yet.
#[derive(Default)]
struct Pending {
    by_number: HashMap<u32, Transaction>,
    bytes: usize,
}

impl Pending {
    /// Takes an operation; gives the transaction that it commits.
    fn take(&mut self, operation: &Operation<'_>, lsn: u64) -> Result<Option<Transaction>> {
        let number = operation.transaction;
        let flags = operation.flags;
        if flags & FLAG_START != 0 {
            self.bytes += PER_REGION_BYTES;
            let new = Transaction { lsn, items: Vec::new(), header: Vec::new(), bytes: PER_REGION_BYTES };
            self.forget(number);
            self.by_number.insert(number, new);
            return Ok(None);
        }
        if flags & (FLAG_COMMIT | FLAG_UNMOUNT) != 0 {
            let transaction = self.forget(number);
            return Ok(transaction.filter(|_| flags & FLAG_COMMIT != 0));
        }
        // What began before the tail is in its place.
        let Some(transaction) = self.by_number.get_mut(&number) else { return Ok(None) };
        if operation.data.is_empty() && flags & FLAG_CONTINUED == 0 {
            return Ok(None);
        }
        let before = transaction.bytes;
        transaction.add(operation)?;
        self.bytes += transaction.bytes - before;
        if self.bytes > MAX_PENDING_BYTES {
            return Err(corrupt(format!("the log has transactions of more than {MAX_PENDING_BYTES} bytes")));
        }
        Ok(None)
    }

    fn forget(&mut self, number: u32) -> Option<Transaction> {
        let transaction = self.by_number.remove(&number)?;
        self.bytes -= transaction.bytes;
        Some(transaction)
    }
}

impl Transaction {
    fn add(&mut self, operation: &Operation<'_>) -> Result<()> {
        let wrong =
            |why: &str| Err(corrupt(format!("the log's transaction {:#x} {why}", operation.transaction)));
        let data = operation.data;
        self.bytes += data.len();
        if self.header.len() < HEADER_BYTES {
            self.header.extend_from_slice(data);
            return match (le32(&self.header, 0), self.header.len()) {
                (None, _) => Ok(()),
                (Some(HEADER_MAGIC), len) if len <= HEADER_BYTES => Ok(()),
                _ => wrong("has no header"),
            };
        }
        if operation.flags & FLAG_CONTINUED != 0 {
            let Some(region) = self.items.last_mut().and_then(|item| item.regions.last_mut()) else {
                return wrong("goes on where nothing began");
            };
            region.extend_from_slice(data);
            return Ok(());
        }
        self.bytes += PER_REGION_BYTES;
        if self.items.last().is_none_or(|item| item.regions.len() >= item.total) {
            let total = le16(data, 2).unwrap_or_default().into();
            // The description of an item is never cut before its count, but its end may follow.
            if total == 0 || (operation.flags & FLAG_CONTINUES != 0 && data.len() < 4) {
                return wrong("has an item without regions");
            }
            self.items.push(Item { regions: Vec::new(), total });
        }
        if let Some(item) = self.items.last_mut() {
            item.regions.push(data.to_vec());
        }
        Ok(())
    }
}
