//! An object being written piece by piece.

use std::sync::Arc;

use super::temporary::Temporary;
use super::tree::{object_path, Tree};
use crate::file_system::FileSystem;
use crate::{ObjectWriter, Reserve, Result, StoreError};

/// Small pieces are gathered up to this many bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The device is set to work each time this many bytes were written, so that the sync at the end has
/// little left to wait for.
const WRITEBACK_BYTES: u64 = 4 << 20;

/// Writes an object to a temporary file.
pub(super) struct FileWriter<F: FileSystem> {
    tree: Arc<Tree<F>>,
    name: String,
    /// `None` after a failure: its space is given back at once.
    temporary: Option<Temporary<F>>,
    buffer: Vec<u8>,
    written: u64,
    started: u64,
}

impl<F: FileSystem> FileWriter<F> {
    /// Starts an object. Fails where the store cannot be changed or has no space for a file.
    pub fn new(tree: &Arc<Tree<F>>, name: &str, reserve: Reserve) -> Result<Self> {
        tree.check_usable(name)?;
        let temporary = Temporary::create(tree, reserve).map_err(|e| tree.error(name, "create", e))?;
        Ok(Self {
            tree: Arc::clone(tree),
            name: name.to_owned(),
            temporary: Some(temporary),
            buffer: Vec::new(),
            written: 0,
            started: 0,
        })
    }

    /// Makes the bytes durable, then the name.
    pub fn publish(mut self) -> Result<()> {
        self.write(&[])?;
        let Some(temporary) = self.temporary.take() else { return Err(self.poisoned()) };
        let (tree, name) = (&self.tree, self.name.as_str());
        tree.check_usable(name)?;
        temporary.sync(self.written).map_err(|e| tree.error(name, "sync", e))?;
        temporary.rename_new(name)?;
        tree.sync_parents(name).inspect_err(|_| {
            // Nobody was told of it; as far as the system lets us, it was never there.
            let _ = tree.fs.unlink(&object_path(name));
        })
    }

    /// Writes what was gathered, then `data`.
    fn write(&mut self, data: &[u8]) -> Result<()> {
        let poisoned = self.poisoned();
        let temporary = self.temporary.as_mut().ok_or(poisoned)?;
        for part in [&self.buffer[..], data] {
            if let Err(e) = temporary.write(part, self.written) {
                self.temporary = None;
                return Err(self.tree.error(&self.name, "write", e));
            }
            self.written += part.len() as u64;
        }
        self.buffer.clear();
        let unstarted = self.written - self.started;
        if unstarted >= WRITEBACK_BYTES {
            self.tree.fs.start_writeback(temporary.file(), self.started, unstarted);
            self.started = self.written;
        }
        Ok(())
    }

    fn poisoned(&self) -> StoreError {
        StoreError::Poisoned { object: self.name.clone() }
    }
}

impl<F: FileSystem> ObjectWriter for FileWriter<F> {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        if self.buffer.len() + data.len() > BUFFER_BYTES {
            // A piece that would fill the buffer by itself is not copied into it.
            if data.len() >= BUFFER_BYTES {
                return self.write(data);
            }
            self.write(&[])?;
        }
        if self.temporary.is_none() {
            return Err(self.poisoned());
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.publish()
    }
}
