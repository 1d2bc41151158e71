//! Whether the queues of a guest may go on where they are, remembered beyond the server.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// That the guest of a disk began with it as it is: nothing that it has written was lost since. A file says so to later servers. It lies
/// beside the socket, where it need not live longer than guests do.
pub(super) struct Permission {
    path: PathBuf,
    /// Another one whenever something may have been lost.
    lineage: String,
    is_given: AtomicBool,
}

impl Permission {
    /// As a server before may have left it.
    pub fn new(path: PathBuf, lineage: &str) -> Permission {
        let is_given = fs::read_to_string(&path).is_ok_and(|found| found == lineage);
        Permission { path, lineage: lineage.to_owned(), is_given: AtomicBool::new(is_given) }
    }

    /// Whether queues that were in use before may go on.
    pub fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Acquire)
    }

    /// They may from now on.
    pub fn give(&self) {
        if !self.is_given.swap(true, Ordering::AcqRel) {
            // Where it cannot be written, or only in part, the next server refuses the guest, which is no harm to its data.
            let _ = fs::write(&self.path, &self.lineage);
        }
    }

    /// They may not any more, until the guest begins anew.
    pub fn take_back(&self) {
        self.is_given.store(false, Ordering::Release);
        self.forget();
    }

    /// Removes what later servers would find.
    pub fn forget(&self) {
        // It may never have been written.
        let _ = fs::remove_file(&self.path);
    }
}
