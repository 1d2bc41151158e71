//! What the commit lock protects: the batch that is being filled, and which pages are dirty.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::pool::{BatchNo, JournalRecord, JournalWriter, PoolBlock};

use super::page::Page;

/// The open batch of the journal.
pub(super) struct Commit {
    /// Its records so far.
    pub writer: JournalWriter,
    /// Its number.
    pub batch: BatchNo,
    /// Pages with changes that are not in their places on the device.
    pub dirty: BTreeMap<PoolBlock, Arc<Page>>,
    /// What was freed in this batch.
    pub freed: Vec<PoolBlock>,
    /// Pages go to their places behind this batch: it must count.
    pub writes_back: bool,
    /// Bytes of a page that were set last and are not yet in `writer`: their neighbours often follow.
    open: Option<OpenSet>,
}

struct OpenSet {
    page: PoolBlock,
    offset: usize,
    bytes: Vec<u8>,
}

impl Commit {
    /// Begins with a batch.
    pub fn new(batch: BatchNo) -> Self {
        Commit {
            writer: JournalWriter::default(),
            batch,
            dirty: BTreeMap::new(),
            freed: Vec::new(),
            writes_back: false,
            open: None,
        }
    }

    /// Changes bytes of a page, and records it.
    pub fn set(&mut self, page: &Arc<Page>, offset: usize, bytes: &[u8]) {
        if page.change(offset, bytes, self.batch) {
            self.dirty.insert(page.block, Arc::clone(page));
        }
        if let Some(open) = &mut self.open {
            if open.page == page.block && open.offset + open.bytes.len() == offset {
                open.bytes.extend_from_slice(bytes);
                return;
            }
        }
        self.close_set();
        self.open = Some(OpenSet { page: page.block, offset, bytes: bytes.to_vec() });
    }

    /// Records anything else.
    pub fn record(&mut self, record: JournalRecord<'_>) {
        self.close_set();
        self.writes_back |= matches!(record, JournalRecord::WriteBack { .. });
        self.writer.push(record);
    }

    /// A block is no page any more: what it holds in memory never goes to the device.
    pub fn forget(&mut self, page: PoolBlock) {
        self.record(JournalRecord::Forget { page });
        if let Some(page) = self.dirty.remove(&page) {
            page.set_dirty_since(None);
        }
    }

    /// Records what is still open.
    pub fn close_set(&mut self) {
        if let Some(OpenSet { page, offset, bytes }) = self.open.take() {
            self.writer.push(JournalRecord::Set { page, offset, bytes: &bytes });
        }
    }

    /// Whether there is anything to write.
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty() && self.open.is_none()
    }
}
