//! A file that gets its name when it is complete.
//!
//! It is written beside its name, as `NAME.sapwood-partial`, under a lock that tells a living writer from the remains of
//! a dead one. A reader of `NAME` sees a complete disk, or the old file.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::{fchown, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{fallocate, fstatvfs, renameat_with, FallocateFlags, OFlags, RenameFlags, CWD};
use rustix::io::Errno;

use super::flusher::Flusher;
use super::options::TargetOptions;
use super::replaced::ReplacedFile;
use crate::error::{ImageError, Result};
use crate::file::lock::{claim, Purpose};
use crate::file::random_file::FILE_MODE;

/// What a file is called until it is complete.
const SUFFIX: &str = ".sapwood-partial";

/// How often the partial file is tried for while others make and remove it.
const TRIES: usize = 16;

/// A file being written that has no name yet.
#[derive(Debug)]
pub(crate) struct PartialFile {
    name: String,
    file: File,
    partial: PathBuf,
    path: PathBuf,
    /// The file that this one replaces, whose owner it takes.
    replaced: Option<Metadata>,
    /// Its permissions, where they are known.
    mode: Option<u32>,
    /// That file, locked; `None` where nothing is overwritten, or where the user allows to overwrite a file in use.
    claimed: Option<ReplacedFile>,
    overwrite: bool,
    /// A write or sync failed: what the file holds is unknown from there on.
    failed: AtomicBool,
    flusher: Flusher,
    named: bool,
}

impl PartialFile {
    /// Begins the file that is going to be `path`.
    pub fn create(path: &Path, options: &TargetOptions) -> Result<Self> {
        let name = path.display().to_string();
        let (path, replaced) = place(path, &name, options.overwrite)?;
        let Some(file_name) = path.file_name() else {
            return Err(ImageError::refused(&name, "is not a file name"));
        };
        let mut partial_name = OsString::from(file_name);
        partial_name.push(SUFFIX);
        let is_claimed = options.overwrite && !options.allow_in_use;
        let claimed = is_claimed.then(|| ReplacedFile::claim(&path)).transpose()?;
        let partial = path.with_file_name(partial_name);
        let mode = options.mode.or(replaced.as_ref().map(|old| old.mode() & 0o7777));
        // Users who may not read the finished disk must not read it while it is written either.
        let file_mode = if mode.is_some() { 0o600 } else { FILE_MODE };
        let file = create_locked(&partial, &name, file_mode)?;
        Ok(Self {
            name,
            flusher: Flusher::new(&file),
            file,
            partial,
            path,
            replaced,
            claimed,
            mode,
            overwrite: options.overwrite,
            failed: AtomicBool::new(false),
            named: false,
        })
    }

    /// What errors call it: the name that it is going to have.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the file its size, and room for `ranges` in their order; the rest stays a hole.
    pub fn reserve(&self, size: u64, ranges: &[Range<u64>]) -> Result<()> {
        self.file.set_len(size).map_err(|e| ImageError::io(&self.name, "set the size", e))?;
        let needed: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        let free = || {
            fstatvfs(&self.file).map(|s| {
                // What was reserved so far is going to be given back.
                let kept = self.file.metadata().map_or(0, |m| m.blocks() * 512);
                s.f_bavail.saturating_mul(s.f_frsize).saturating_add(kept)
            })
        };
        // Asked before: reserving takes all there is from everybody else until it fails.
        if let Some(free) = free().ok().filter(|free| *free < needed) {
            return Err(ImageError::Full { path: self.name.clone(), needed, free });
        }
        for range in ranges.iter().filter(|r| !r.is_empty()) {
            let len = range.end - range.start;
            loop {
                match fallocate(&self.file, FallocateFlags::KEEP_SIZE, range.start, len) {
                    Ok(()) => break,
                    Err(Errno::INTR) => {}
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                    Err(Errno::NOSPC | Errno::DQUOT) => {
                        let free = free().unwrap_or(0);
                        return Err(ImageError::Full { path: self.name.clone(), needed, free });
                    }
                    Err(e) => return Err(ImageError::io(&self.name, "reserve space for", e.into())),
                }
            }
        }
        Ok(())
    }

    /// Writes all of `data` at `offset`.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_whole()?;
        self.file.write_all_at(data, offset).map_err(|e| {
            self.failed.store(true, Ordering::Release);
            ImageError::io(&self.name, "write", e)
        })?;
        self.flusher.wrote(data.len());
        Ok(())
    }

    /// Makes the content durable.
    pub fn sync(&self) -> Result<()> {
        self.check_whole()?;
        self.file.sync_all().map_err(|e| {
            self.failed.store(true, Ordering::Release);
            ImageError::io(&self.name, "sync", e)
        })
    }

    /// Makes the content durable, then gives the file its name, durably.
    pub fn finish(mut self) -> Result<()> {
        let name = self.name.clone();
        let failed = |op, e| ImageError::io(&name, op, e);
        if let Some(old) = &self.replaced {
            // Only root may change the owner. Where that fails, the permissions still hold for the new owner.
            let _ = fchown(&self.file, Some(old.uid()), Some(old.gid()));
        }
        if let Some(mode) = self.mode {
            self.file
                .set_permissions(fs::Permissions::from_mode(mode))
                .map_err(|e| failed("set the permissions of", e))?;
        }
        self.flusher.end().map_err(|e| failed("sync", e))?;
        self.sync()?;
        self.rename()?;
        self.named = true;
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| failed("sync the folder of", e))
    }

    fn rename(&mut self) -> Result<()> {
        if let Some(claimed) = &mut self.claimed {
            claimed.claim_again()?;
        }
        let exists = || refuse_existing(&self.name);
        let renamed = if self.overwrite {
            fs::rename(&self.partial, &self.path)
        } else {
            match renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => return Err(exists()),
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    if self.path.symlink_metadata().is_ok() {
                        return Err(exists());
                    }
                    fs::rename(&self.partial, &self.path)
                }
                other => other.map_err(Into::into),
            }
        };
        renamed.map_err(|e| ImageError::io(&self.name, "give its name to", e))
    }

    fn check_whole(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(ImageError::refused(
                &self.name,
                "an earlier write failed, so that the file cannot be completed",
            ));
        }
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.named {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

fn refuse_existing(name: &str) -> ImageError {
    ImageError::refused(name, "exists already; choose another name, or give --force")
}

/// Where the file is going to stand, and what stands there now.
fn place(path: &Path, name: &str, overwrite: bool) -> Result<(PathBuf, Option<Metadata>)> {
    let failed = |e| ImageError::io(name, "look at", e);
    let meta = match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok((path.to_owned(), None)),
        Err(e) => return Err(failed(e)),
        Ok(meta) => meta,
    };
    // A link stays, and what it leads to is replaced.
    let (path, meta) = if meta.is_symlink() {
        let path = path.canonicalize().map_err(|e| match e.kind() {
            ErrorKind::NotFound => ImageError::refused(name, "is a symbolic link to nothing"),
            _ => failed(e),
        })?;
        let meta = path.metadata().map_err(failed)?;
        (path, meta)
    } else {
        (path.to_owned(), meta)
    };
    let kind = meta.file_type();
    if kind.is_dir() {
        return Err(ImageError::refused(name, "is a directory; name a file in it"));
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_char_device() {
        return Err(ImageError::refused(
            name,
            "is neither a file nor a block device; to write into a pipe, use standard output with the path -",
        ));
    }
    if !overwrite {
        return Err(refuse_existing(name));
    }
    Ok((path, Some(meta)))
}

/// Makes `partial` anew and locks it; what a dead writer left under that name is removed.
fn create_locked(partial: &Path, name: &str, mode: u32) -> Result<File> {
    let failed = |e| ImageError::io(name, "create", e);
    for _ in 0..TRIES {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(mode).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let (file, is_new) = match options.clone().create_new(true).open(partial) {
            Ok(file) => (file, true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => match options.open(partial) {
                Ok(file) => (file, false),
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(failed(e)),
            },
            Err(e) => return Err(failed(e)),
        };
        claim(&file, &partial.display().to_string(), Purpose::Write)?;
        // Between opening and locking, its writer may have given it its name, or another may have removed it.
        let meta = file.metadata().map_err(failed)?;
        let is_same =
            partial.symlink_metadata().is_ok_and(|m| (m.dev(), m.ino()) == (meta.dev(), meta.ino()));
        if !is_same {
            continue;
        }
        if is_new {
            return Ok(file);
        }
        fs::remove_file(partial).map_err(failed)?;
    }
    Err(ImageError::refused(name, format!("other processes keep making {}", partial.display())))
}
