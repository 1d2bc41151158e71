//! Backups of a libvirt domain that is off: from its images, under the names that they have while it runs.

use super::format_tag::SourceFormat;
use super::limit::limited;
use super::machine::{define, instant_tag, Machine};
use super::report::{Consistency, DiskReport};
use crate::args::Backup;
use crate::commands::names::{snapshots_of, source_format};
use crate::live::{DomainDisk, LiveSourceName};
use crate::progress::watch;
use crate::tags::SOURCE_FORMAT_TAG;
use anyhow::{Context as _, Result};
use image::{Format, ImageError, Source, SourceOptions};
use std::ops::Range;
use std::time::Instant;
use vault::{BackupOptions, OpenBackup, Progress, Vault, VaultError};

/// How the disks of a domain that is off are consistent.
const OFF: &str = "off";

/// Backs up all `disks` of the domain, and its definition.
pub(super) fn run(
    quiet: bool,
    a: &Backup,
    vault: &Vault,
    domain: &LiveSourceName,
    disks: &[DomainDisk],
    mut options: BackupOptions,
) -> Result<Machine> {
    options.tags.push(("consistency".into(), OFF.into()));
    watch(quiet, &a.disk, |progress| {
        let definition = domain.definition()?;
        // All are open until the last is stored: nobody can start the domain meanwhile, so they are of one instant.
        let named = disks.iter().map(|disk| (format!("{}/{}", a.disk, disk.target), disk));
        let named: Vec<(String, &DomainDisk)> = named.collect();
        let _kept =
            named.iter().map(|(name, disk)| open(a, vault, name, disk)).collect::<Result<Vec<Image>>>()?;
        let mut made: Vec<DiskReport> = Vec::new();
        let mut options = options;
        for (name, disk) in &named {
            let done = made.len();
            let backup = vault.begin_backup(name)?;
            if done == 0 {
                options.tags.push(instant_tag(backup.snapshot()));
            }
            let report = one(a, backup, (vault, name), domain, disk, &options, progress).with_context(
                || match done {
                    0 => name.clone(),
                    _ => {
                        format!("{name}, after {done} of {} disks of the machine were backed up", disks.len())
                    }
                },
            )?;
            made.push(report);
        }
        let targets: Vec<&str> = disks.iter().map(|disk| disk.target.as_str()).collect();
        let definition = Some(define(a, vault, definition, &targets, &options, progress)?);
        Ok(Machine { disks: made, definition })
    })
}

/// One disk, from its image.
fn one(
    a: &Backup,
    backup: OpenBackup<'_>,
    (vault, name): (&Vault, &str),
    domain: &LiveSourceName,
    disk: &DomainDisk,
    options: &BackupOptions,
    progress: &Progress,
) -> Result<DiskReport> {
    let start = Instant::now();
    let Image { source, said, before } = open(a, vault, name, disk)?;
    let source = OffSource { inner: source, domain: domain.clone() };
    let format = source.format();
    let mut options = options.clone();
    let known = SourceFormat::read(format, said, before);
    options.tags.extend(known.map(|f| (SOURCE_FORMAT_TAG.to_owned(), f.tag())));
    let report = backup.run(limited(a, Box::new(source)), &options, progress)?;
    let seconds = start.elapsed().as_secs_f64();
    let consistency = Some(Consistency { kind: OFF, not_frozen: None });
    Ok(DiskReport { disk: name.to_owned(), report, source_format: format, consistency, seconds })
}

/// An image that was opened.
struct Image {
    source: Box<dyn Source>,
    /// Its format, as the definition says.
    said: Option<Format>,
    /// That of the snapshot before.
    before: Option<SourceFormat>,
}

/// The image of a disk, in the format that the definition says, or else that its content shows.
fn open(a: &Backup, vault: &Vault, name: &str, disk: &DomainDisk) -> Result<Image> {
    let refused =
        |why: &str| VaultError::Refused(format!("{name}: {why}: start the machine and back it up then"));
    if disk.is_transformed {
        return Err(refused("the machine is off, and its disk is encrypted, or a part of its image").into());
    }
    let image = disk.image().ok_or_else(|| {
        refused("the machine is off, and the image of this disk is not a file or device of this host")
    })?;
    let said = source_format(disk.format.as_deref())?;
    let before = SourceFormat::of_disk(&snapshots_of(vault, name)?);
    let how = SourceOptions {
        // As QEMU follows them, by the same definition.
        allow_backing_outside: a.allow_backing_outside || said.is_some(),
        format: said,
        expected: before.map(|b| b.format),
        follow_names: said.is_some(),
        ..SourceOptions::default()
    };
    let source = image::open(image, &how).with_context(|| name.to_owned())?;
    Ok(Image { source, said, before })
}

/// An image that is complete only if its domain is still off when it has been read.
struct OffSource {
    inner: Box<dyn Source>,
    domain: LiveSourceName,
}

impl Source for OffSource {
    fn format(&self) -> &'static str {
        self.inner.format()
    }

    fn size(&self) -> Option<u64> {
        self.inner.size()
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.inner.next_data(from)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        self.inner.read_at(offset, buf)
    }

    fn finish(&mut self) -> image::Result<()> {
        self.inner.finish()?;
        let refused = |why: &str| ImageError::Refused { path: self.domain.to_string(), why: why.to_owned() };
        match self.domain.disks_if_off() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(refused("was started while it was backed up; run it again")),
            Err(e) => Err(refused(&format!("cannot be asked whether it is still off: {e:#}"))),
        }
    }
}
