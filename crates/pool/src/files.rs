//! A file system whose files are volumes of a pool (LiveDFS, sections 2.1 and 3).
//!
//! Each file with content has a volume of its own. Names, attributes and links are in a table, an embedded database in one
//! more volume (`docs/format/pool.md`). Whatever is changed there between two syncs is one transaction of the database, and
//! the pool's journal brings back what was done before a power cut in the order in which it was done: so names and content
//! fit each other without a journal of their own.
//!
//! What always holds:
//! - After a power cut everything is as it was at the last [`export::files::Files::sync`] or later, names all at one moment.
//! - What lies behind the end of a file reads as zeros when the file grows over it.
//! - The volume of a file is deleted after it is durable that the file has no name any more.

mod attached;
mod attributes;
mod clones;
mod content;
mod error;
mod names;
mod node;
mod requests;
mod storage;
mod table;
mod volumes;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::sync::{Arc, OnceLock};

use export::files::{Caching, Stat};
use export::NodeId;
use format::pool::{FileKind, FileRecord, VolumeId};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::error::{PoolError, Result};
use crate::pool::Pool;
use error::{Answer, Refusal};
use node::{now, Node, VOLUMES_NAME};
use table::Table;

pub use attached::AttachedFile;

/// How often a request is tried again while space is being freed, and the pause before.
const SPACE_TRIES: u32 = 100;
const SPACE_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// How many bytes of pages the database may write for one that is added: it copies the pages on the way.
const TABLE_COPIES: u64 = 4;

/// A file system in a pool. A pool has one.
pub struct FileSystem {
    pool: Arc<Pool>,
    /// The lock of all names. Content is read and written without it.
    table: Mutex<Table>,
    /// Nodes that somebody has looked up.
    nodes: Mutex<HashMap<u64, Arc<Node>>>,
    /// Nodes whose record in the table is out of date.
    dirty: Mutex<HashSet<u64>>,
    /// User and group of what nobody else made.
    owner: (u32, u32),
    /// Whether the directory of volumes is there.
    has_volumes: bool,
    /// Called with what something else than the kernel has changed.
    on_change: OnceLock<Box<dyn Fn(NodeId) + Send + Sync>>,
}

impl FileSystem {
    /// Opens the file system of a pool; the first time it is made, with an empty directory that `user` and `group` own.
    /// What a crash left behind is removed.
    pub fn open(pool: Arc<Pool>, user: u32, group: u32) -> Result<Self> {
        pool.keep_room_for_names();
        let mut table = Table::open(pool.names_volume()?)?;
        if table.record(NodeId::ROOT.0)?.is_none() {
            let root = FileRecord {
                links: 2,
                parent: NodeId::ROOT.0,
                ..node::record(FileKind::Directory, 0o755, (user, group))
            };
            table.put(NodeId::ROOT.0, &root)?;
        }
        let has_volumes = table.find(NodeId::ROOT.0, OsStr::new(VOLUMES_NAME))?.is_none();
        let system = FileSystem {
            pool,
            table: Mutex::new(table),
            nodes: Mutex::default(),
            dirty: Mutex::default(),
            owner: (user, group),
            has_volumes,
            on_change: OnceLock::new(),
        };
        system.clear_up()?;
        system.make_durable()?;
        Ok(system)
    }

    /// Removes nodes without a name, content behind the ends of files, and volumes of files that are gone.
    fn clear_up(&self) -> Result<()> {
        let mut used = HashSet::new();
        {
            let mut table = self.table.lock();
            for id in table.orphans()? {
                table.remove_node(id)?;
            }
            for (id, record) in table.trims()? {
                if record.volume != 0 {
                    let volume = self.pool.file_volume(VolumeId(record.volume))?;
                    // A file may be longer than its volume: nothing was written there.
                    let end = volume.size();
                    volume.zero(record.size.min(end), end.saturating_sub(record.size))?;
                }
                table.set_trim(id, false)?;
            }
            table.each_volume(&mut |volume| {
                used.insert(volume);
            })?;
        }
        for volume in self.pool.file_volumes() {
            if !used.contains(&volume.0) {
                self.pool.delete_file_volume(volume)?;
            }
        }
        Ok(())
    }

    /// Makes durable all that was done before.
    fn make_durable(&self) -> Result<()> {
        let dead = {
            let mut table = self.table.lock();
            let dirty = std::mem::take(&mut *self.dirty.lock());
            for id in dirty {
                let node = self.nodes.lock().get(&id).cloned();
                if let Some(node) = node {
                    table.put(id, &node.state.lock().record)?;
                }
            }
            table.commit()?
        };
        // One journal has the table and the content, in the order in which they were written.
        let flushed = self.pool.flush();
        let mut failed = flushed.err();
        for volume in dead {
            let is_gone = failed.is_none() && {
                let deleted = self.pool.delete_file_volume(volume);
                deleted.unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                })
            };
            if !is_gone {
                // Somebody still reads it, or it could not be deleted: at the next sync.
                self.table.lock().let_go(volume.0);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Runs a request that needs space; again, if what was removed since the last sync gives it some.
    fn with_space<T>(&self, body: impl Fn() -> Answer<T>) -> Answer<T> {
        let mut answer = body();
        for _ in 0..SPACE_TRIES {
            match &answer {
                Err(Refusal::Pool(PoolError::Full | PoolError::CatalogFull))
                    if self.table.lock().has_dead() || self.pool.is_reaping() => {}
                _ => break,
            }
            self.make_durable()?;
            self.pool.go_on_reaping();
            std::thread::sleep(SPACE_PAUSE);
            answer = body();
        }
        answer
    }

    /// Fails where names can only be removed: those who add some leave room for that. The caller does not have the table.
    fn check_room_for_names(&self) -> Answer<()> {
        let added = self.table.lock().added_bytes();
        if added > self.pool.kept_for_names() / 16 {
            self.make_durable()?;
        }
        if !self.pool.has_room_for_names(added * TABLE_COPIES) {
            return Err(PoolError::Full.into());
        }
        Ok(())
    }

    /// A node, which somebody may not have looked up yet. The caller has the table.
    fn node_of(&self, table: &Table, id: u64) -> Answer<Arc<Node>> {
        if let Some(node) = self.nodes.lock().get(&id) {
            return Ok(Arc::clone(node));
        }
        let record = table.record(id)?.ok_or(Errno::NOENT)?;
        let node = Arc::new(Node::new(id, record));
        self.nodes.lock().insert(id, Arc::clone(&node));
        Ok(node)
    }

    /// A node that somebody uses.
    fn node(&self, id: NodeId) -> Answer<Arc<Node>> {
        if let Some(node) = self.nodes.lock().get(&id.0) {
            return Ok(Arc::clone(node));
        }
        let table = self.table.lock();
        self.node_of(&table, id.0)
    }

    /// What is known of a node, with the space that its content takes.
    fn stat_node(&self, node: &Node) -> Answer<Stat> {
        let mut stat = node.stat();
        let volume = node.state.lock().record.volume;
        if volume != 0 {
            stat.stored = self.pool.file_bytes(VolumeId(volume))?;
        }
        Ok(stat)
    }

    /// Tells the kernel that something else has changed a node. The caller has no lock.
    fn tell(&self, id: NodeId) {
        if let Some(tell) = self.on_change.get() {
            tell(id);
        }
    }

    /// Opens a file. One that is a device cannot be written besides.
    fn open_file(&self, id: NodeId, write: bool) -> Answer<Caching> {
        let node = self.node(id)?;
        let users = &mut node.state.lock().users;
        if !users.open(write) {
            return Err(Errno::BUSY.into());
        }
        Ok(if users.is_device() { Caching::Never } else { Caching::Keep })
    }

    /// Closes a file.
    fn close_file(&self, id: NodeId, write: bool) {
        let Ok(node) = self.node(id) else { return };
        let is_done = {
            let state = &mut *node.state.lock();
            state.users.close(write);
            state.has_tail && !state.users.is_written_as_file()
        };
        if is_done {
            // Nobody waits for an answer. What stays is removed when the file system is opened again.
            let _ = self.drop_tail(&node);
        }
    }

    /// Changes what is known of a node. It goes to the table with the next sync.
    fn update<T>(&self, node: &Node, body: impl FnOnce(&mut FileRecord) -> T) -> T {
        let mut state = node.state.lock();
        let result = body(&mut state.record);
        self.dirty.lock().insert(node.id);
        result
    }

    /// Changes what is known of a node, and when it changed.
    fn touch<T>(&self, node: &Node, body: impl FnOnce(&mut FileRecord) -> T) -> T {
        self.update(node, |record| {
            record.changed = now();
            body(record)
        })
    }
}
