//! Files that are open for writing: the kernel may have pages of them that it has not written yet.
//!
//! The kernel keeps what programs write, and sends it later. It knows lengths and times meanwhile, and sends what it has
//! before most requests that depend on it. It does not when a program asks where a file's holes are: a hole may be one no
//! more. So the kernel is made to send those pages, which it does for those that are to leave its cache.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

use fuser::{FileHandle, INodeNo, Notifier, OpenAccMode, OpenFlags};
use parking_lot::Mutex;

/// The handles of files that are open for reading only, and of the others.
const READER: FileHandle = FileHandle(0);
const WRITER: FileHandle = FileHandle(1);

/// A question for data or a hole.
#[derive(Clone, Copy)]
pub(super) struct Seek {
    pub ino: INodeNo,
    pub offset: u64,
    /// Else data.
    pub hole: bool,
}

/// How often each file is open for writing.
#[derive(Default)]
pub(super) struct Writers {
    open: Mutex<HashMap<u64, u64>>,
    notifier: OnceLock<Notifier>,
}

impl Writers {
    /// The kernel can be told something from now on.
    pub fn begin(&self, notifier: Notifier) {
        // Once.
        let _ = self.notifier.set(notifier);
    }

    /// Notes that a file was opened.
    pub fn open(&self, ino: INodeNo, flags: OpenFlags) -> FileHandle {
        if flags.acc_mode() == OpenAccMode::O_RDONLY {
            return READER;
        }
        *self.open.lock().entry(ino.0).or_default() += 1;
        WRITER
    }

    /// Whether a file is open for writing.
    pub fn has(&self, ino: INodeNo) -> bool {
        self.open.lock().contains_key(&ino.0)
    }

    /// Notes that a file was closed. The kernel has written all of it then; what it knows of its space is older.
    pub fn release(&self, ino: INodeNo, handle: FileHandle) {
        if handle != WRITER {
            return;
        }
        let is_last = {
            let mut open = self.open.lock();
            let left = open.get_mut(&ino.0).map(|count| {
                *count -= 1;
                *count
            });
            left == Some(0) && open.remove(&ino.0).is_some()
        };
        if is_last {
            self.forget(ino);
        }
    }

    /// Has the kernel forget what it knows of a file, but for its pages.
    pub fn forget(&self, ino: INodeNo) {
        if let Some(notifier) = self.notifier.get() {
            // One that the kernel does not know any more is no error.
            let _ = notifier.inval_inode(ino, -1, 0);
        }
    }

    /// Which pages the kernel has to write before it is certain what was found; none if it is.
    pub fn unwritten(&self, seek: &Seek, found: &io::Result<u64>) -> Option<Range<u64>> {
        if !self.open.lock().contains_key(&seek.ino.0) {
            return None;
        }
        match (seek.hole, found) {
            // Data stays data: what makes holes is sent at once.
            (false, Ok(found)) => Some(seek.offset..*found).filter(|range| !range.is_empty()),
            (true, Ok(found)) => Some(*found..u64::MAX),
            (_, Err(_)) => Some(seek.offset..u64::MAX),
        }
    }

    /// Makes the kernel write pages. The caller is no thread that answers requests.
    pub fn write_out(&self, ino: INodeNo, pages: Range<u64>) {
        let Some(notifier) = self.notifier.get() else { return };
        let start = i64::try_from(pages.start).unwrap_or(i64::MAX);
        // 0 is all.
        let length = i64::try_from(pages.end - pages.start).unwrap_or(0);
        // A node that the kernel does not know any more has no pages; others may have been changed again.
        let _ = notifier.inval_inode(ino, start, length);
    }

    /// Makes the kernel write all that it has. `syncfs` would not wait for it.
    pub fn write_out_all(&self) {
        let files: Vec<u64> = self.open.lock().keys().copied().collect();
        files.into_iter().for_each(|ino| self.write_out(INodeNo(ino), 0..u64::MAX));
    }
}
