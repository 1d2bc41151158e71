//! Files being written, and what dead processes left of theirs.
//!
//! A temporary file is locked by its writer from its first byte on. So a sweep can tell those that are
//! being written from those that never will be, and a held object is held before it has a name.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::reserve::{self, is_full, wait_at_last, with_room};
use super::tree::{object_path, Tree};
use crate::file_system::{read_full, write_full, Access, FileSystem, Kind, Lock};
use crate::{Reserve, Result, StoreError};

/// Directory of the files being written.
pub(super) const TEMPORARY: &str = "tmp";

/// Names tried before giving up.
const NAME_TRIES: usize = 64;

/// Tries to make the directories of a new file before giving up; a sweep may remove them in between.
const PARENT_TRIES: usize = 16;

/// Bytes copied at a time from a file for which there is no more space.
const PIECE_BYTES: u64 = 1 << 20;

/// A file being written. Dropped before it was renamed, it is removed.
pub(super) struct Temporary<F: FileSystem> {
    tree: Arc<Tree<F>>,
    path: String,
    file: Arc<F::File>,
    reserve: Reserve,
    /// Out of the reserve: longer than what is written to it, until [`Temporary::sync`].
    is_reserved: bool,
    renamed: bool,
}

impl<F: FileSystem> Temporary<F> {
    /// Makes an empty one, locked.
    pub fn create(tree: &Arc<Tree<F>>, reserve: Reserve) -> io::Result<Self> {
        match Self::create_free(tree, reserve) {
            Err(e) if is_full(&e) => match Self::from_reserve(tree, reserve, 0, e) {
                Err(e) if is_full(&e) => {
                    wait_at_last(&tree.fs, &tree.patience, reserve, e, || Self::create_free(tree, reserve))
                }
                taken => taken,
            },
            created => created,
        }
    }

    fn create_free(tree: &Arc<Tree<F>>, reserve: Reserve) -> io::Result<Self> {
        let fs = &tree.fs;
        for _ in 0..NAME_TRIES {
            let path = fresh_path(tree);
            let file = match fs.open(&path, Access::CreateNew) {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            };
            let this = Self {
                tree: Arc::clone(tree),
                path,
                file: Arc::new(file),
                reserve,
                is_reserved: false,
                renamed: false,
            };
            // A sweep may have been between its open and its lock.
            if fs.lock(&this.file, Lock::Exclusive, false)? && fs.metadata(&this.file)?.links > 0 {
                return Ok(this);
            }
        }
        Err(io::Error::other("every temporary file is swept away at once"))
    }

    /// Takes one with room for `len` bytes, or the longest, out of the reserve; fails with `full` where that is empty.
    fn from_reserve(tree: &Arc<Tree<F>>, reserve: Reserve, len: u64, full: io::Error) -> io::Result<Self> {
        let path = fresh_path(tree);
        let file = Arc::new(reserve::take(&tree.fs, &tree.patience, reserve, len, &path)?.ok_or(full)?);
        Ok(Self { tree: Arc::clone(tree), path, file, reserve, is_reserved: true, renamed: false })
    }

    /// Makes one of `data`, its bytes durable.
    pub fn leased(tree: &Arc<Tree<F>>, data: &[u8], reserve: Reserve) -> io::Result<Self> {
        let mut this = Self::create(tree, reserve)?;
        this.write(data, 0)?;
        this.sync(data.len() as u64)?;
        Ok(this)
    }

    /// Writes all of `data` behind the `offset` bytes that were written before.
    pub fn write(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        match write_full(&self.tree.fs, &self.file, data, offset) {
            Err(e) if is_full(&e) => self.write_to_reserve(data, offset, e),
            written => written,
        }
    }

    fn write_to_reserve(&mut self, data: &[u8], offset: u64, full: io::Error) -> io::Result<()> {
        if !self.is_reserved {
            let fresh = match Self::from_reserve(&self.tree, self.reserve, offset + data.len() as u64, full) {
                Err(e) if is_full(&e) => {
                    let (fs, file) = (&self.tree.fs, &self.file);
                    return wait_at_last(fs, &self.tree.patience, self.reserve, e, || {
                        write_full(fs, file, data, offset)
                    });
                }
                taken => taken?,
            };
            fresh.copy(&self.file, offset)?;
            // The old one goes, and gives back what it took.
            *self = fresh;
        }
        let fs = &self.tree.fs;
        with_room(fs, &self.tree.patience, self.reserve, || write_full(fs, &self.file, data, offset))
    }

    /// Copies the first `len` bytes of another file.
    fn copy(&self, from: &F::File, len: u64) -> io::Result<()> {
        let fs = &self.tree.fs;
        let mut piece = vec![0; len.min(PIECE_BYTES) as usize];
        let mut at = 0;
        while at < len {
            let piece = &mut piece[..(len - at).min(PIECE_BYTES) as usize];
            if read_full(fs, from, piece, at)? < piece.len() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            with_room(fs, &self.tree.patience, self.reserve, || write_full(fs, &self.file, piece, at))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes its `len` bytes durable.
    pub fn sync(&self, len: u64) -> io::Result<()> {
        if self.is_reserved {
            self.tree.fs.set_len(&self.file, len)?;
        }
        self.tree.fs.sync(&self.file)
    }

    /// The open file.
    pub fn file(&self) -> &F::File {
        &self.file
    }

    /// What its name may use of the reserve.
    pub fn reserve(&self) -> Reserve {
        self.reserve
    }

    /// Gives the file an object's name, which must be free. Durable after [`Tree::sync_parents`].
    pub fn rename_new(self, name: &str) -> Result<Arc<F::File>> {
        self.rename(name, F::rename_new)
    }

    /// Lets the file take an object's place. Durable after [`Tree::sync_parents`].
    pub fn rename_over(self, name: &str) -> Result<Arc<F::File>> {
        self.rename(name, F::rename)
    }

    fn rename(mut self, name: &str, step: fn(&F, &str, &str) -> io::Result<()>) -> Result<Arc<F::File>> {
        let (tree, target) = (Arc::clone(&self.tree), object_path(name));
        for _ in 0..PARENT_TRIES {
            match with_room(&tree.fs, &tree.patience, self.reserve, || step(&tree.fs, &self.path, &target)) {
                Ok(()) => {
                    self.renamed = true;
                    return Ok(Arc::clone(&self.file));
                }
                Err(e) if e.kind() == ErrorKind::NotFound => tree.make_parents(name, self.reserve)?,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    // Who hears "exists" may rely on it, so it must be durable.
                    tree.sync_parents(name)?;
                    return Err(StoreError::AlreadyExists { object: name.to_owned() });
                }
                Err(e) => return Err(tree.error(name, "create", e)),
            }
        }
        Err(StoreError::Io { object: name.to_owned(), op: "create", source: ErrorKind::NotFound.into() })
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

fn fresh_path<F: FileSystem>(tree: &Tree<F>) -> String {
    let count = tree.temporaries.fetch_add(1, Ordering::Relaxed);
    format!("{TEMPORARY}/{}-{count}-{:016x}", std::process::id(), tree.fs.nonce())
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
