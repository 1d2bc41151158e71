//! Restores a tar archive that is stored with its headers apart (`docs/flows/mtar.md`).

use crate::args::Restore;
use crate::devices::read_cache;
use crate::progress::{catch_signals, is_stopped, show_while};
use crate::system::new_file::{Existing, NewFile};
use crate::tags::is_tar;
use crate::terminal::streams::Out;
use anyhow::{Context as _, Result};
use archive::mtar::{self, Restored};
use image::ReplacedFile;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use vault::{OpenSnapshot, SnapshotEntry, Vault, VaultError};

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// What `--format` makes of an archive: the archive, or the stream as it is stored.
pub const FORMATS: [&str; 2] = ["tar", "mtar"];

/// Whether a snapshot is restored as an archive. Refuses what is for disks only, and what is for archives only.
pub fn is_wanted(a: &Restore, disk: &str, snapshot: &SnapshotEntry) -> Result<bool> {
    let name = format!("{disk}@{}", snapshot.id);
    let format = a.format.as_deref().filter(|f| FORMATS.contains(f));
    let usage = |why: String| Err(VaultError::Usage(format!("{name}: {why}")).into());
    if !is_tar(snapshot) {
        return match format {
            Some(format) => usage(format!("is a disk, not a tar archive; leave --format {format} out")),
            None => Ok(false),
        };
    }
    if let Some(other) = a.format.as_deref().filter(|_| format.is_none()) {
        return usage(format!("is a tar archive; --format is tar or mtar, not {other}"));
    }
    if format == Some("mtar") {
        return Ok(false);
    }
    if a.in_place {
        return usage("is a tar archive; --in-place is for disks".into());
    }
    Ok(true)
}

/// Writes the archive to a file, or to standard output.
pub fn restore(
    quiet: bool,
    a: &Restore,
    vault: &Vault,
    (disk, snapshot): (&str, &SnapshotEntry),
    target: &Path,
) -> Result<Restored> {
    let open = vault.open_snapshot(disk, &snapshot.id.to_string(), &read_cache(None))?;
    let name = format!("{disk}@{}", snapshot.id);
    let at = AtomicU64::new(0);
    catch_signals();
    show_while(
        quiet,
        &name,
        || (at.load(Ordering::Relaxed), open.size()),
        || {
            let mut reader = Reader { open: &open, at: &at, failure: None };
            let work = |reader: &mut Reader<'_>, to: &mut dyn Write| {
                let done = mtar::restore(reader, &mut BufWriter::with_capacity(WRITE_BYTES, to));
                match (done, reader.failure.take()) {
                    (Err(_), Some(failure)) => Err(failure.into()),
                    (done, _) => done.with_context(|| name.clone()),
                }
            };
            if target.as_os_str() == "-" {
                return work(&mut reader, &mut Out);
            }
            if target.metadata().is_ok_and(|m| !m.is_file()) {
                let why = format!(
                    "{}: is not a file; a tar archive is restored to a file or to -",
                    target.display()
                );
                return Err(VaultError::Refused(why).into());
            }
            if a.force && !a.allow_in_use {
                // For its message, which says what a restore can do about it.
                drop(ReplacedFile::claim(target)?);
            }
            let existing = if a.allow_in_use { Existing::GoesInUse } else { Existing::of(a.force) };
            let mut file = NewFile::create(target, existing)?;
            file.set_mode(a.mode, target)?;
            let done = work(&mut reader, &mut file)?;
            file.finish(None)?;
            Ok(done)
        },
    )
}

/// A snapshot, read in order.
struct Reader<'a> {
    open: &'a OpenSnapshot,
    at: &'a AtomicU64,
    /// Why it could not be read.
    failure: Option<VaultError>,
}

impl Reader<'_> {
    fn next(&mut self, buf: &mut [u8]) -> vault::Result<usize> {
        if is_stopped() {
            return Err(VaultError::Cancelled);
        }
        let at = self.at.load(Ordering::Relaxed);
        let len = (buf.len() as u64).min(self.open.size() - at);
        self.open.read_at(at, &mut buf[..len as usize])?;
        self.at.store(at + len, Ordering::Relaxed);
        Ok(len as usize)
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.next(buf).map_err(|e| {
            let told = io::Error::other(e.to_string());
            self.failure = Some(e);
            told
        })
    }
}
