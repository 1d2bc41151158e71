//! One backup, as its arguments ask for it: of a disk or of a machine.

use super::command_source;
use super::format_tag::SourceFormat;
use super::limit::limited;
use super::live;
use super::machine::Machine;
use super::report::{warn_of_future, DiskReport};
use super::source_name;
use super::tar_source;
use super::volume;
use crate::args::Backup;
use crate::commands::names::{snapshots_of, source_format};
use crate::live::{Definition, LiveSourceName};
use crate::progress::watch;
use crate::system::priority::run_at_idle_priority;
use crate::tags::TAR;
use crate::terminal::streams::{check_in, errln, note_done};
use crate::{tags, times};
use anyhow::{Context as _, Result};
use image::{Changes, ImageError, NbdSource, Source, SourceOptions};
use std::io::ErrorKind;
use std::time::Instant;
use vault::{BackupOptions, Policy, Since, Vault, VaultError};

/// What a backup reads, and how.
pub struct Backed {
    source: Option<LiveSourceName>,
    options: BackupOptions,
}

impl Backed {
    /// Understands what the command line says; looks at nothing.
    pub fn parse(a: &Backup) -> Result<Backed> {
        Ok(Backed { source: LiveSourceName::parse(&a.source).transpose()?, options: options(a)? })
    }

    /// Whether it is all disks of a machine, which go by its name alone.
    pub fn is_machine(&self) -> bool {
        self.source.as_ref().is_some_and(LiveSourceName::is_machine)
    }

    /// Backs it up.
    pub fn back_up(self, quiet: bool, a: &Backup, vault: &Vault) -> Result<Machine> {
        if self.is_machine() {
            if let Some((machine, _)) = a.disk.split_once('/') {
                let why = format!(
                    "{}: {} is a whole machine: name it {machine}, and its disks are called {machine}/…; one disk of a \
                     QEMU is qmp:SOCKET#NODE",
                    a.disk,
                    a.source.display()
                );
                return Err(VaultError::Usage(why).into());
            }
            vault.check_backup_name(&format!("{}/{}", a.disk, Definition::DISK))?
        } else {
            vault.check_backup_name(&a.disk)?
        }
        if a.limit.is_some() {
            // Before there are threads: they inherit it.
            run_at_idle_priority();
        }
        let made = match (&self.source, volume::name(a)) {
            (Some(source), _) => live::run(quiet, a, vault, source, self.options)?,
            (None, Some(name)) => {
                let disk = volume::back_up(quiet, a, vault, name, self.options)?;
                Machine { disks: vec![disk], definition: None }
            }
            (None, None) => {
                Machine { disks: vec![plain_disk(quiet, a, vault, self.options)?], definition: None }
            }
        };
        for made in made.disks.iter().chain(&made.definition) {
            note_done(format!("{}@{} is stored", made.disk, made.report.snapshot.id));
        }
        Ok(made)
    }
}

/// A file, a device, an export, or standard input.
fn plain_disk(quiet: bool, a: &Backup, vault: &Vault, options: BackupOptions) -> Result<DiskReport> {
    let start = Instant::now();
    let live_only = [("--scratch", a.scratch.is_some()), ("--agent", a.agent.is_some())];
    if let Some((option, _)) = live_only.iter().find(|(_, given)| *given) {
        let why = format!("{option} is for the disks of a running machine (qmp:SOCKET#NODE, libvirt:DOMAIN)");
        return Err(VaultError::Usage(why).into());
    }
    if a.bitmap.is_some() && a.source_format.as_deref().is_some_and(|f| f != TAR) {
        return Err(
            VaultError::Usage("--bitmap is for NBD exports, which have no --source-format".into()).into()
        );
    }
    if a.source.as_os_str() == "-" && a.from_command.is_none() {
        check_in()?;
    }
    if a.stdin_size.is_some() && a.source.as_os_str() != "-" && a.from_command.is_none() {
        return Err(VaultError::Usage("--stdin-size is for - and --from-command".into()).into());
    }
    let snapshots = snapshots_of(vault, &a.disk)?;
    let is_tar = match a.source_format.as_deref() {
        Some(said) => said == TAR,
        // Archives stay archives.
        None => snapshots.last().is_some_and(|s| tags::is_tar(&s.entry)),
    };
    let said = if is_tar { None } else { source_format(a.source_format.as_deref())? };
    let file = if a.from_command.is_some() { None } else { source_name::of(&a.source) };
    let before = SourceFormat::of_disk(&snapshots);
    let (source, changes) = match (&a.bitmap, &a.from_command) {
        _ if is_tar => {
            let policy = options.policy.map_or_else(|| vault.policy(), Ok)?;
            (tar_source::open(a, &policy)?, None)
        }
        (_, Some(command)) => (command_source::open(command, said)?, None),
        (None, None) => {
            let how = SourceOptions {
                allow_backing_outside: a.allow_backing_outside,
                allow_in_use: a.allow_in_use,
                format: said,
                expected: before.map(|b| b.format),
                follow_names: before.is_some_and(|b| b.is_said),
            };
            let source = image::open(&a.source, &how).map_err(|e| unknown_source(a, e))?;
            (source, listed_changes(a, quiet)?)
        }
        (Some(bitmap), None) => {
            let mut source = NbdSource::connect(&a.source.to_string_lossy(), Some(bitmap))?;
            let changes = source.changes()?;
            (Box::new(source) as Box<dyn Source>, Some(changes))
        }
    };
    warn_of_future(&a.disk, snapshots.last().map(|s| &s.entry));
    // What is wrong with the file itself comes first.
    source_name::check(a, vault, snapshots.last().map(|s| &s.entry), file.as_deref())?;
    let since = a.since.clone().zip(changes).map(|(snapshot, changes)| Since { snapshot, changes });
    let format = source.format();
    let mut options = BackupOptions { since, ..options };
    let known = SourceFormat::read(format, said, before);
    let known = if is_tar { Some(TAR.to_owned()) } else { known.map(SourceFormat::tag) };
    options.tags.extend(known.map(|tag| (tags::SOURCE_FORMAT_TAG.to_owned(), tag)));
    // The archive's size, which the source compares by itself, is not that of what is stored.
    options.expected_bytes = options.expected_bytes.filter(|_| !is_tar);
    options.tags.extend(file.map(|file| (tags::SOURCE_TAG.to_owned(), file)));
    let source = limited(a, source);
    let report = watch(quiet, &a.disk, |p| vault.backup(&a.disk, source, &options, p))?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(DiskReport { disk: a.disk.clone(), report, source_format: format, consistency: None, seconds })
}

/// What to do where a source begins like a URL and is no file either.
fn unknown_source(a: &Backup, e: ImageError) -> anyhow::Error {
    let name = a.source.to_string_lossy();
    let is_missing =
        matches!(&e, ImageError::Io { op: "open", source, .. } if source.kind() == ErrorKind::NotFound);
    let Some((scheme, rest)) = name.split_once(':').filter(|_| is_missing) else { return e.into() };
    let why = match scheme {
        "rbd" => format!(
            "Ceph images are read as devices: `rbd snap create {rest}@backup`, `rbd map --read-only {rest}@backup`, and \
             give /dev/rbd…; what has changed tells `rbd diff --format json` (--changed)"
        ),
        "qemu" | "ssh" | "http" | "https" | "iscsi" => {
            format!(
                "is not read directly; serve it with `qemu-nbd --read-only --persistent --socket=/run/disk.sock {name}`, and \
                 give nbd+unix:///?socket=/run/disk.sock"
            )
        }
        _ => "is not a file; the other kinds of sources are nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH, \
              nbds://HOST/EXPORT?tls-certificates=DIR, qmp:SOCKET#NODE, qmp:SOCKET, libvirt:DOMAIN and volume:NAME"
            .to_owned(),
    };
    VaultError::Usage(format!("{name}: {why}")).into()
}

/// The list that `--changed` names. An empty one is told on standard error: the program that writes it may have failed.
fn listed_changes(a: &Backup, quiet: bool) -> Result<Option<Changes>> {
    let Some(path) = &a.changed else { return Ok(None) };
    let text = std::fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?;
    if text.is_empty() && !quiet {
        errln!(
            "sapwood: {}: the list of changes is empty: nothing has changed, if the command that wrote it succeeded",
            path.display()
        );
    }
    Ok(Some(Changes::parse(&path.display().to_string(), &text)?))
}

fn options(a: &Backup) -> Result<BackupOptions> {
    let tags = a.tag.iter().map(|t| tags::parse(t)).collect::<vault::Result<Vec<_>>>()?;
    let time = a.time.as_ref().map(|t| point_in_time(t, a.force)).transpose()?;
    Ok(BackupOptions {
        policy: a.policy.as_deref().map(Policy::by_name).transpose()?,
        isolate: a.isolate,
        codec: a.codec.as_deref().map(str::parse).transpose()?,
        time,
        tags,
        since: None,
        expected_bytes: a.stdin_size,
        refuse_doubtful: !a.force,
    })
}

/// The time that `--time` says.
fn point_in_time(text: &str, force: bool) -> Result<i64> {
    let usage = |why| VaultError::Usage(format!("--time {text}: {why}"));
    let time = vault::parse_time(text).ok_or_else(|| usage(times::FORMS.to_owned()))?;
    // Today, which has not ended.
    if time > vault::now() && times::beginning(text).map_err(usage)? <= vault::now() {
        return Ok(vault::now());
    }
    if force || !times::is_future(time) {
        return Ok(time);
    }
    let why = format!(
        "--time {text}: is in the future: the snapshot would be the latest until then, and retention would keep it instead \
         of newer ones; nothing was stored; --force stores it"
    );
    Err(VaultError::Refused(why).into())
}
