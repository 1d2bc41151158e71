//! Files being written, and what dead processes left of theirs.
//!
//! A temporary file is locked by its writer from its first byte on. So a sweep can tell those that are
//! being written from those that never will be, and a held object is held before it has a name.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::tree::Tree;
use crate::file_system::{write_full, Access, FileSystem, Kind, Lock};
use crate::Result;

/// Directory of the files being written.
pub(super) const TEMPORARY: &str = "tmp";

/// Names tried before giving up.
const NAME_TRIES: usize = 64;

/// A file being written. Dropped before it was renamed, it is removed.
pub(super) struct Temporary<F: FileSystem> {
    tree: Arc<Tree<F>>,
    path: String,
    file: Arc<F::File>,
    renamed: bool,
}

impl<F: FileSystem> Temporary<F> {
    /// Makes an empty one, locked.
    pub fn create(tree: &Arc<Tree<F>>) -> io::Result<Self> {
        let fs = &tree.fs;
        for _ in 0..NAME_TRIES {
            let count = tree.temporaries.fetch_add(1, Ordering::Relaxed);
            let path = format!("{TEMPORARY}/{}-{count}-{:016x}", std::process::id(), fs.nonce());
            let file = match fs.open(&path, Access::CreateNew) {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            };
            let this = Self { tree: Arc::clone(tree), path, file: Arc::new(file), renamed: false };
            // A sweep may have been between its open and its lock.
            if fs.lock(&this.file, Lock::Exclusive, false)? && fs.metadata(&this.file)?.links > 0 {
                return Ok(this);
            }
        }
        Err(io::Error::other("every temporary file is swept away at once"))
    }

    /// Makes one of `data`, its bytes durable.
    pub fn holding(tree: &Arc<Tree<F>>, data: &[u8]) -> io::Result<Self> {
        let this = Self::create(tree)?;
        write_full(&tree.fs, &this.file, data, 0)?;
        tree.fs.sync(&this.file)?;
        Ok(this)
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn file(&self) -> &F::File {
        &self.file
    }

    /// The file, which has another name now and keeps its lock until it is closed.
    pub fn renamed(mut self) -> Arc<F::File> {
        self.renamed = true;
        Arc::clone(&self.file)
    }
}

impl<F: FileSystem> Drop for Temporary<F> {
    fn drop(&mut self) {
        if !self.renamed {
            // What cannot be removed now is swept later.
            let _ = self.tree.fs.unlink(&self.path);
        }
    }
}

/// Removes the temporary files whose writers do not live. Returns the bytes freed.
pub(super) fn sweep<F: FileSystem>(tree: &Tree<F>) -> Result<u64> {
    let error = |e| tree.error(TEMPORARY, "sweep", e);
    let mut freed = 0;
    for entry in tree.fs.entries(TEMPORARY).map_err(error)? {
        let (name, kind) = entry.map_err(error)?;
        if kind == Kind::File {
            freed += sweep_file(&tree.fs, &format!("{TEMPORARY}/{name}")).map_err(error)?;
        }
    }
    Ok(freed)
}

fn sweep_file<F: FileSystem>(fs: &F, path: &str) -> io::Result<u64> {
    let file = match fs.open(path, Access::Write) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e),
    };
    if !fs.lock(&file, Lock::Exclusive, false)? {
        return Ok(0);
    }
    let opened = fs.metadata(&file)?;
    match fs.stat(path) {
        Ok(now) if now.identity == opened.identity => {}
        Ok(_) => return Ok(0),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e),
    }
    match fs.unlink(path) {
        // A crash can leave an object its temporary name beside its own; its bytes stay.
        Ok(()) => Ok(if opened.links == 1 { opened.allocated } else { 0 }),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(0),
        Err(e) => Err(e),
    }
}
