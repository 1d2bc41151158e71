//! Waiting for a signal to end.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// SIGINT, SIGTERM and SIGHUP, from now on.
pub struct EndSignal {
    caught: UnixStream,
    write: UnixStream,
    has_come: bool,
}

impl EndSignal {
    /// Catches the signals.
    pub fn new() -> Result<EndSignal> {
        let (caught, write) = UnixStream::pair().context("waiting for signals")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let write = write.try_clone().context("waiting for signals")?;
            signal_hook::low_level::pipe::register(signal, write).context("waiting for signals")?;
        }
        Ok(EndSignal { caught, write, has_come: false })
    }

    /// What ends the waiting as a signal would, when it is called.
    pub fn teller(&self) -> Result<impl FnOnce() + Send + 'static> {
        let mut write = self.write.try_clone().context("waiting for signals")?;
        Ok(move || drop(write.write(&[0])))
    }

    /// Waits for one, for that long at most. Returns whether one has come.
    pub fn wait_for(&mut self, time: Duration) -> bool {
        if !self.has_come {
            drop(self.caught.set_read_timeout(Some(time)));
            let came = self.caught.read(&mut [0]);
            // Any other error would mean that none can come any more.
            self.has_come =
                !matches!(came, Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted));
        }
        self.has_come
    }
}
