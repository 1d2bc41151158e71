//! The result of a command: a new file, or standard output.

use super::input::Input;
use crate::system::new_file::{Existing, NewFile};
use crate::terminal::streams::{check_out, note_done, Waiting};
use anyhow::{Context as _, Result};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

/// Where a result is written.
pub enum Destination {
    Standard(File),
    New(NewFile),
}

impl Destination {
    /// The file, if it can be written at any place.
    pub fn as_file(&self) -> Option<&File> {
        match self {
            Destination::Standard(_) => None,
            Destination::New(file) => Some(file.file()),
        }
    }

    /// What it is called in messages.
    pub fn name(&self) -> String {
        match self {
            Destination::Standard(_) => "standard output".into(),
            Destination::New(file) => file.path().display().to_string(),
        }
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Destination::Standard(file) => Waiting(file).write(bytes),
            Destination::New(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Has the result of an input written, to standard output if no path is named. A file gets its name, and owner, permissions and
/// times of the input, when it is complete and durable.
///
/// # Errors
/// Those of the work; refused where the input is the output; if the input has changed meanwhile, or the output cannot be written.
pub fn written<T>(
    input: &Input,
    to: Option<&Path>,
    force: bool,
    work: impl FnOnce(&mut Destination) -> Result<T>,
) -> Result<T> {
    let mut output = match to {
        None => {
            check_out()?;
            let file = File::from(std::io::stdout().as_fd().try_clone_to_owned().context("standard output")?);
            input.differs_from(&file.metadata().context("standard output")?, Path::new("standard output"))?;
            Destination::Standard(file)
        }
        Some(path) => {
            if let Ok(there) = path.metadata() {
                input.differs_from(&there, path)?;
            }
            let create = if input.regular().is_some() { NewFile::create_private } else { NewFile::create };
            Destination::New(create(path, Existing::of(force))?)
        }
    };
    let done = work(&mut output)?;
    input.is_unchanged()?;
    if let (Destination::New(file), Some(path)) = (output, to) {
        file.finish(input.regular().map(|_| input.was()))?;
        note_done(format!("{} is written", path.display()));
    }
    Ok(done)
}
