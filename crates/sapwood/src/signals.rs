//! Waiting for a signal to end.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// SIGINT, SIGTERM and SIGHUP, from now on.
pub struct EndSignal {
    caught: UnixStream,
    write: UnixStream,
}

impl EndSignal {
    /// Catches the signals.
    pub fn new() -> Result<EndSignal> {
        let (caught, write) = UnixStream::pair().context("waiting for signals")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let write = write.try_clone().context("waiting for signals")?;
            signal_hook::low_level::pipe::register(signal, write).context("waiting for signals")?;
        }
        Ok(EndSignal { caught, write })
    }

    /// What ends the waiting as a signal would, when it is called.
    pub fn teller(&self) -> Result<impl FnOnce() + Send + 'static> {
        let mut write = self.write.try_clone().context("waiting for signals")?;
        Ok(move || drop(write.write(&[0])))
    }

    /// Returns when one has come.
    pub fn wait(&mut self) {
        // An error would mean that none can come any more.
        drop(self.caught.read(&mut [0]));
    }
}
