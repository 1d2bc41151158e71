//! A tar archive as a disk: its headers are moved out of the way of its data while it is read (`docs/flows/mtar.md`).

use super::command_source::{self, EndOnDrop};
use crate::args::Backup;
use crate::tags::TAR;
use anyhow::{Context as _, Result};
use archive::mtar::{self, Migrated, MtarError};
use image::{ImageError, Source, Stream};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::JoinHandle;
use vault::{Policy, VaultError};

/// Bytes that are handed on at a time, and how many times so much waits for the backup.
const PART_BYTES: usize = 1 << 20;
const PARTS: usize = 4;
/// Where files begin if chunks are cut by content: alignment is of no use then.
const NOT_ALIGNED: u32 = 512;

/// Opens the archive that a backup names: a file, standard input, or what a command writes.
pub fn open(a: &Backup, policy: &Policy) -> Result<Box<dyn Source>> {
    if let Some((option, _)) = [("--changed", a.changed.is_some()), ("--bitmap", a.bitmap.is_some())]
        .iter()
        .find(|(_, given)| *given)
    {
        let why = format!("{option} is for disks; a tar archive is read whole");
        return Err(VaultError::Usage(why).into());
    }
    let mut command_end = None;
    let (name, input): (String, Box<dyn Read + Send>) = match &a.from_command {
        Some(command) => {
            let output = command_source::run(command)?;
            command_end = Some(output.end_on_drop());
            (command_source::name(command), Box::new(output))
        }
        None if a.source.as_os_str() == "-" => {
            if !a.allow_in_use {
                image::check_stream(&io::stdin(), "-")?;
            }
            ("-".into(), Box::new(io::stdin()))
        }
        None => {
            let name = a.source.display().to_string();
            let file = File::open(&a.source).with_context(|| format!("{name}: cannot open"))?;
            if !a.allow_in_use {
                image::claim_source(&file, &name)?;
            }
            (name, Box::new(file))
        }
    };
    let migration = Migration::start(input, policy.fixed_chunk_bytes().unwrap_or(NOT_ALIGNED))?;
    let (disk, expected, may_be_empty) = (a.disk.clone(), a.stdin_size, a.force);
    let stream = Stream::new(migration, name);
    Ok(Box::new(TarSource { stream, disk, expected, may_be_empty, _command_end: command_end }))
}

/// The archive's stream, and how long the archive must be.
struct TarSource {
    stream: Stream<Migration>,
    disk: String,
    expected: Option<u64>,
    may_be_empty: bool,
    /// The thread may still wait for the command.
    _command_end: Option<EndOnDrop>,
}

impl Source for TarSource {
    fn format(&self) -> &'static str {
        TAR
    }

    fn size(&self) -> Option<u64> {
        self.stream.size()
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.stream.next_data(from)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        self.stream.read_at(offset, buf)
    }

    /// The stream of an archive is longer than the archive, so only here it is known whether that was what it must be.
    fn finish(&mut self) -> image::Result<()> {
        let bytes = self.stream.get_ref().tar_bytes;
        let why = match self.expected {
            Some(expected) if expected != bytes => format!(
                "the source has {bytes} bytes, not the {expected} that it must have; nothing was stored"
            ),
            _ if bytes == 0 && !self.may_be_empty => {
                "the source is empty. Nothing was stored; --force stores it".to_owned()
            }
            _ => return Ok(()),
        };
        Err(ImageError::Refused { path: self.disk.clone(), why })
    }
}

/// A thread that reads an archive, and what it makes of it.
struct Migration {
    parts: Receiver<Vec<u8>>,
    part: io::Cursor<Vec<u8>>,
    thread: Option<JoinHandle<mtar::Result<Migrated>>>,
    /// Of the archive, when it has ended.
    tar_bytes: u64,
}

impl Migration {
    fn start(mut input: Box<dyn Read + Send>, align: u32) -> Result<Migration> {
        let (sender, parts) = sync_channel(PARTS);
        let work = move || {
            let mut output = BufWriter::with_capacity(PART_BYTES, Parts(sender));
            mtar::migrate(&mut input, &mut output, align)
        };
        let thread = std::thread::Builder::new().name("migrate".into()).spawn(work);
        let thread = Some(thread.context("cannot start a thread")?);
        Ok(Migration { parts, part: io::Cursor::default(), thread, tar_bytes: 0 })
    }

    /// What became of the archive.
    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        match thread.join() {
            Ok(Ok(done)) => self.tar_bytes = done.tar_bytes,
            Ok(Err(MtarError::Read(e) | MtarError::Write(e))) => return Err(e),
            Ok(Err(e)) => return Err(io::Error::other(e)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(())
    }
}

impl Read for Migration {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let got = self.part.read(buf)?;
            if got > 0 || buf.is_empty() {
                return Ok(got);
            }
            match self.parts.recv() {
                Ok(part) => self.part = io::Cursor::new(part),
                Err(_) => return self.end().map(|()| 0),
            }
        }
    }
}

/// Hands parts on. If nobody takes them, the backup has failed.
struct Parts(SyncSender<Vec<u8>>);

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
