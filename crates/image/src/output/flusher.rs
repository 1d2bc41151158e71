//! Syncing while writing: the device is busy from the start, and the last sync has little left to do.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::thread::JoinHandle;

/// Bytes written between two syncs.
const STEP_BYTES: u64 = 64 << 20;

/// A thread that syncs a file from time to time.
#[derive(Debug)]
pub(crate) struct Flusher {
    wake: Option<SyncSender<()>>,
    /// Ends with the first error: the system tells a failed write-back only once.
    thread: Option<JoinHandle<io::Result<()>>>,
    written: AtomicU64,
}

impl Flusher {
    /// Starts the thread. Without one, the last sync does all the work.
    pub fn new(file: &File) -> Self {
        let (wake, woken) = sync_channel::<()>(1);
        let thread = file.try_clone().and_then(|file| {
            let run = move || woken.iter().try_for_each(|()| file.sync_data());
            std::thread::Builder::new().name("flusher".into()).spawn(run)
        });
        Flusher { wake: Some(wake), thread: thread.ok(), written: AtomicU64::new(0) }
    }

    /// Counts bytes that were written.
    pub fn wrote(&self, bytes: usize) {
        let before = self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        if before / STEP_BYTES != (before + bytes as u64) / STEP_BYTES {
            if let Some(wake) = &self.wake {
                // A full channel: the thread still syncs an earlier step, and the next one includes this.
                let _ = wake.try_send(());
            }
        }
    }

    /// Ends the thread, and returns the error of any of its syncs.
    pub fn end(&mut self) -> io::Result<()> {
        drop(self.wake.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(synced)) => synced,
            Some(Err(_)) => Err(io::Error::other("the thread that syncs it ended unexpectedly")),
            None => Ok(()),
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_cleanly_however_much_was_written() {
        let file = tempfile::tempfile().unwrap();
        for bytes in [0, 1, STEP_BYTES as usize * 3] {
            let mut f = Flusher::new(&file);
            f.wrote(bytes);
            f.end().unwrap();
            f.end().unwrap();
        }
    }
}
