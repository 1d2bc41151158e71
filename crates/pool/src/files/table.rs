//! The table of nodes and names, in one open transaction.

use std::sync::Arc;

use format::pool::{FileRecord, VolumeId};
use redb::{Builder, Database, ReadableTable, TableDefinition, WriteTransaction};

use super::storage::Storage;
use crate::error::{PoolError, Result};
use crate::volume::Volume;

/// Number of a node: its record.
const NODES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("nodes");
/// Number of a directory, big endian, and a name: number of the node (8 bytes, little endian) and its kind.
pub(super) const NAMES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("names");
/// Number of a node, big endian, and the name of an extended attribute: its value.
pub(super) const ATTRIBUTES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("attributes");
/// Nodes without a name, which somebody had open.
const ORPHANS: TableDefinition<'_, u64, ()> = TableDefinition::new("orphans");
/// Files that may have content behind their end.
const TRIMS: TableDefinition<'_, u64, ()> = TableDefinition::new("trims");
/// Numbers by name: `next`, the number of the next node.
const SETTINGS: TableDefinition<'_, &str, u64> = TableDefinition::new("settings");
/// The first number that a node gets; 1 is the root.
const FIRST: u64 = 2;
/// Memory for pages of the database.
const CACHE_BYTES: usize = 16 << 20;

/// Why a step of a transaction failed. Boxed: the library's error is large.
pub(super) struct Unusable(Box<redb::Error>);

impl From<redb::TableError> for Unusable {
    fn from(error: redb::TableError) -> Self {
        Unusable(Box::new(error.into()))
    }
}

impl From<redb::StorageError> for Unusable {
    fn from(error: redb::StorageError) -> Self {
        Unusable(Box::new(error.into()))
    }
}

/// What has been changed since the last commit, and everything before.
pub(super) struct Table {
    /// None after an error: what is in it is uncertain. Dropped before the database, which waits for it.
    open: Option<WriteTransaction>,
    database: Database,
    is_changed: bool,
    /// Bytes of names and attributes that were added since.
    added: u64,
    /// Volumes that nothing leads to when what is open is durable.
    dead: Vec<VolumeId>,
}

impl Table {
    /// Opens the table in a volume; an empty one is made in an empty volume.
    pub fn open(volume: Arc<Volume>) -> Result<Self> {
        let database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .create_with_file_format_v3(true)
            .create_with_backend(Storage::open(volume)?)
            .map_err(failed)?;
        let open = begin(&database)?;
        Ok(Table { open: Some(open), database, is_changed: false, added: 0, dead: Vec::new() })
    }

    /// Runs a step of the open transaction. After an error nothing more is done with it.
    pub(super) fn with<T>(
        &self,
        body: impl FnOnce(&WriteTransaction) -> std::result::Result<T, Unusable>,
    ) -> Result<T> {
        let Some(open) = &self.open else {
            return Err(PoolError::Failed("the table of names could not be written".into()));
        };
        body(open).map_err(|Unusable(error)| failed(*error))
    }

    /// The same, for a step that changes something.
    pub(super) fn changing<T>(
        &mut self,
        body: impl FnOnce(&WriteTransaction) -> std::result::Result<T, Unusable>,
    ) -> Result<T> {
        self.is_changed = true;
        let done = self.with(body);
        if done.is_err() {
            // A half of what belongs together must not be committed.
            self.open = None;
        }
        done
    }

    /// Ends the transaction and begins the next one. Returns the volumes that can be deleted once it is durable.
    pub fn commit(&mut self) -> Result<Vec<VolumeId>> {
        if self.is_changed {
            let open = self.open.take();
            let open =
                open.ok_or_else(|| PoolError::Failed("the table of names could not be written".into()))?;
            open.commit().map_err(failed)?;
            self.open = Some(begin(&self.database)?);
            self.is_changed = false;
            self.added = 0;
        }
        Ok(std::mem::take(&mut self.dead))
    }

    /// Whether there are volumes that can be deleted at the next commit.
    pub fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// Notes that a name or an attribute of so many bytes was added.
    pub fn add(&mut self, bytes: usize) {
        /// Of a record, of keys and of the slots of pages.
        const BESIDE: u64 = 256;
        self.added += bytes as u64 + BESIDE;
    }

    /// Bytes of names and attributes that were added since the last commit.
    pub fn added_bytes(&self) -> u64 {
        self.added
    }

    /// A number that no node has had.
    pub fn new_number(&mut self) -> Result<u64> {
        self.changing(|open| {
            let mut settings = open.open_table(SETTINGS)?;
            let number = settings.get("next")?.map_or(FIRST, |next| next.value());
            settings.insert("next", number + 1)?;
            Ok(number)
        })
    }

    /// What is known of a node.
    pub fn record(&self, id: u64) -> Result<Option<FileRecord>> {
        let bytes =
            self.with(|open| Ok(open.open_table(NODES)?.get(id)?.map(|bytes| bytes.value().to_vec())))?;
        bytes.map(|bytes| decode(id, &bytes)).transpose()
    }

    /// Notes what is known of a node.
    pub fn put(&mut self, id: u64, record: &FileRecord) -> Result<()> {
        self.changing(|open| {
            open.open_table(NODES)?.insert(id, &*record.encode())?;
            Ok(())
        })
    }

    /// Notes whether a node has no name any more.
    pub fn set_orphan(&mut self, id: u64, is_one: bool) -> Result<()> {
        self.mark(ORPHANS, id, is_one)
    }

    /// Notes whether there may be content behind the end of a file.
    pub fn set_trim(&mut self, id: u64, is_one: bool) -> Result<()> {
        self.mark(TRIMS, id, is_one)
    }

    fn mark(&mut self, table: TableDefinition<'_, u64, ()>, id: u64, is_one: bool) -> Result<()> {
        self.changing(|open| {
            let mut table = open.open_table(table)?;
            if is_one {
                table.insert(id, ())?;
            } else {
                table.remove(id)?;
            }
            Ok(())
        })
    }

    /// Nodes without a name.
    pub fn orphans(&self) -> Result<Vec<u64>> {
        self.marked(ORPHANS)
    }

    /// Files that may have content behind their end.
    pub fn trims(&self) -> Result<Vec<(u64, FileRecord)>> {
        let mut trims = Vec::new();
        for id in self.marked(TRIMS)? {
            trims.extend(self.record(id)?.map(|record| (id, record)));
        }
        Ok(trims)
    }

    fn marked(&self, table: TableDefinition<'_, u64, ()>) -> Result<Vec<u64>> {
        self.with(|open| {
            // A table that is missing is made, so that it can be read.
            let table = open.open_table(table)?;
            let ids: std::result::Result<_, redb::StorageError> =
                table.iter()?.map(|entry| Ok(entry?.0.value())).collect();
            Ok(ids?)
        })
    }

    /// Removes a node, with its attributes and, once that is durable, with its content.
    pub fn remove_node(&mut self, id: u64) -> Result<()> {
        if let Some(record) = self.record(id)? {
            self.let_go(record.volume);
        }
        self.changing(|open| {
            open.open_table(NODES)?.remove(id)?;
            open.open_table(ORPHANS)?.remove(id)?;
            open.open_table(TRIMS)?.remove(id)?;
            let mut attributes = open.open_table(ATTRIBUTES)?;
            attributes.retain_in(range(id).start.as_slice()..range(id).end.as_slice(), |_, _| false)?;
            Ok(())
        })
    }

    /// A volume that nothing leads to any more.
    pub fn let_go(&mut self, volume: u32) {
        self.dead.extend(Some(VolumeId(volume)).filter(|id| id.0 != 0));
    }

    /// Reports the volumes of all files.
    pub fn each_volume(&self, each: &mut dyn FnMut(u32)) -> Result<()> {
        let malformed = self.with(|open| {
            for entry in open.open_table(NODES)?.iter()? {
                let (id, bytes) = entry?;
                match decode(id.value(), bytes.value()) {
                    Ok(record) => each(record.volume),
                    Err(error) => return Ok(Some(error)),
                }
            }
            Ok(None)
        })?;
        malformed.map_or(Ok(()), Err)
    }
}

fn begin(database: &Database) -> Result<WriteTransaction> {
    database.begin_write().map_err(failed)
}

fn decode(id: u64, bytes: &[u8]) -> Result<FileRecord> {
    FileRecord::decode(bytes).map_err(|why| PoolError::damaged(format!("node {id} of the file system"), why))
}

/// A key of a node's number and a name.
pub(super) fn key(id: u64, name: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes(), name].concat()
}

/// All keys of a node's number.
pub(super) fn range(id: u64) -> std::ops::Range<Vec<u8>> {
    key(id, b"")..key(id + 1, b"")
}

fn failed(error: impl Into<redb::Error>) -> PoolError {
    match error.into() {
        redb::Error::Io(source) => PoolError::from_io(source),
        redb::Error::Corrupted(why) => {
            PoolError::Damaged { what: "the table of names of the file system".into(), why }
        }
        other => PoolError::Failed(format!("the table of names: {other}")),
    }
}
