//! A raw disk into a pipe.

use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use super::options::check_write;
use crate::disk::Target;
use crate::error::{ImageError, Result};

/// Zeros to write where nothing was.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Writes a disk in address order to any [`Write`], with zeros where nothing was written.
#[derive(Debug)]
pub struct PipeTarget<W> {
    name: String,
    size: u64,
    pipe: Mutex<Pipe<W>>,
}

#[derive(Debug)]
struct Pipe<W> {
    inner: W,
    position: u64,
    failed: bool,
}

impl PipeTarget<File> {
    /// A target of `size` bytes that goes to standard output.
    ///
    /// # Errors
    /// `Refused` where standard output is a terminal.
    pub fn stdout(size: u64) -> Result<Self> {
        let stdout = io::stdout();
        if stdout.is_terminal() {
            return Err(ImageError::refused(
                "-",
                "standard output is a terminal; send it to a file or a pipe",
            ));
        }
        // The library's own handle looks for line ends in what it writes.
        let file = stdout.as_fd().try_clone_to_owned().map_err(|e| ImageError::io("-", "open", e))?;
        Ok(Self::new(File::from(file), "-", size))
    }
}

impl<W: Write + Send> PipeTarget<W> {
    /// A target of `size` bytes that goes to `inner`; errors call it `name`.
    pub fn new(inner: W, name: impl Into<String>, size: u64) -> Self {
        Self { name: name.into(), size, pipe: Mutex::new(Pipe { inner, position: 0, failed: false }) }
    }
}

impl<W: Write> Pipe<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.failed = true;
        self.inner.write_all(data)?;
        self.failed = false;
        self.position += data.len() as u64;
        Ok(())
    }

    fn zeros_to(&mut self, end: u64) -> io::Result<()> {
        while self.position < end {
            let n = (end - self.position).min(ZEROS.len() as u64);
            self.write(&ZEROS[..n as usize])?;
        }
        Ok(())
    }
}

impl<W: Write + Send> Target for PipeTarget<W> {
    fn in_order(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_write(&self.name, self.size, offset, data.len())?;
        let mut pipe = self.pipe.lock();
        if pipe.failed {
            return Err(ImageError::refused(&self.name, "an earlier write failed"));
        }
        if offset < pipe.position {
            return Err(ImageError::refused(
                &self.name,
                format!("a pipe is written in order: offset {offset} came at position {}", pipe.position),
            ));
        }
        pipe.zeros_to(offset)
            .and_then(|()| pipe.write(data))
            .map_err(|e| ImageError::io(&self.name, "write", e))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut pipe = self.pipe.into_inner();
        if pipe.failed {
            return Err(ImageError::refused(&self.name, "an earlier write failed"));
        }
        pipe.zeros_to(self.size)
            .and_then(|()| pipe.inner.flush())
            .map_err(|e| ImageError::io(&self.name, "write", e))
    }
}
