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

    /// Writes of these lengths, and the end.
    fn run(file: &File, writes: &[u64]) -> io::Result<()> {
        let mut flusher = Flusher::new(file);
        writes.iter().for_each(|bytes| flusher.wrote(*bytes as usize));
        let ended = flusher.end();
        assert!(flusher.end().is_ok(), "an error is told once");
        ended
    }

    #[test]
    fn it_syncs_once_a_step_is_written() {
        // It cannot be synced: an error tells that it was tried.
        let null = File::options().write(true).open("/dev/null").unwrap();
        for too_little in [&[][..], &[STEP_BYTES - 1], &[1000; 20]] {
            run(&null, too_little).unwrap();
        }
        for enough in [&[STEP_BYTES][..], &[STEP_BYTES - 1, 1], &[3 * STEP_BYTES + 1], &[STEP_BYTES / 4; 5]] {
            assert_eq!(run(&null, enough).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        run(&tempfile::tempfile().unwrap(), &[STEP_BYTES; 5]).unwrap();
    }
}
