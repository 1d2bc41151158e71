//! Backups of a running machine: one of its disks, or all of them at one instant, with its definition.

use super::format_tag::SourceFormat;
use super::limit::limited;
use super::machine::{define, instant_tag, Machine};
use super::off;
use super::report::{Consistency, DiskReport};
use crate::args::Backup;
use crate::commands::names::snapshots_of;
use crate::live::{Definition, DiskFormat, DiskRequest, LiveOptions, LiveSourceName, WatchedPoint};
use crate::progress::watch;
use crate::system::own_directory::scratch;
use crate::tags::SOURCE_FORMAT_TAG;
use crate::terminal::streams::errln;
use anyhow::{Context as _, Result};
use std::time::Instant;
use vault::{now, BackupOptions, BackupReport, OpenBackup, Progress, Scan, Since, Vault, VaultError};

/// Backs up what `source` names. All disks have the same point in time; each has its snapshot as soon as it is done.
pub(super) fn run(
    quiet: bool,
    a: &Backup,
    vault: &Vault,
    source: &LiveSourceName,
    mut options: BackupOptions,
) -> Result<Machine> {
    if a.since.is_some() || a.source_format.is_some() {
        let why = "--since and --source-format say what a running machine tells by itself; leave them out";
        return Err(VaultError::Usage(why.into()).into());
    }
    if a.stdin_size.is_some() {
        return Err(VaultError::Usage("--stdin-size is for - and --from-command".into()).into());
    }
    if a.allow_in_use {
        let why = "--unsafe is for files that a machine has open; a machine that is asked itself needs none";
        return Err(VaultError::Usage(why.into()).into());
    }
    // Name of the disk in the vault, and in the machine.
    let disks: Vec<(String, String)> = if source.is_machine() {
        source.disks()?.into_iter().map(|id| (format!("{}/{id}", a.disk), id)).collect()
    } else {
        source.disks()?.into_iter().map(|node| (a.disk.clone(), node)).collect()
    };
    let definition = format!("{}/{}", a.disk, Definition::DISK);
    for (name, _) in &disks {
        vault.check_backup_name(name)?;
        if *name == definition {
            let why = format!(
                "{name}: this name is reserved for the machine's definition; back that disk up by itself"
            );
            return Err(VaultError::Usage(why).into());
        }
    }
    let how = LiveOptions { scratch: scratch(a.scratch.as_deref()), agent: a.agent.clone() };
    options.time = options.time.or_else(|| Some(now()));
    // The machine says itself which disk is which.
    options.refuse_doubtful = false;
    if let Some(disks) = source.disks_if_off()? {
        return off::run(quiet, a, vault, source, &disks, options);
    }
    // From here on a signal stops in order: neither a frozen guest nor a job in QEMU stays behind.
    watch(quiet, &a.disk, |progress| {
        let mut backups: Vec<OpenBackup<'_>> = Vec::new();
        let mut wanted = Vec::new();
        for (name, node) in &disks {
            let backup = vault.begin_backup(name)?;
            let newest = backup.newest();
            wanted.push(DiskRequest {
                node: node.clone(),
                newest: newest.map(|s| s.id),
                tags: newest.map(|s| s.tags.clone()).unwrap_or_default(),
                snapshot: backup.snapshot(),
            });
            backups.push(backup);
        }
        // The disks are backed up even without it.
        let definition = if source.is_machine() {
            source.definition().map_err(|e| errln!("sapwood: {definition} is not kept: {e:#}")).ok()
        } else {
            None
        };
        let point = source.take(&how, vault.id(), &wanted)?;
        let consistency = Consistency::of(point.frozen(), point.not_frozen().map(str::to_owned));
        options.tags.push(consistency.tag());
        if let Some(first) = wanted.first().filter(|_| source.is_machine()) {
            options.tags.push(instant_tag(first.snapshot));
        }
        let point = WatchedPoint::new(point)?;
        let mut made: Vec<DiskReport> = Vec::new();
        for (n, backup) in backups.into_iter().enumerate() {
            let disk = &disks[n].0;
            let start = Instant::now();
            let done = made.len();
            let report =
                one(a, (vault, disk), &point, n, backup, &options, progress).with_context(|| match done {
                    0 => disk.clone(),
                    _ => {
                        format!("{disk}, after {done} of {} disks of the machine were backed up", disks.len())
                    }
                })?;
            let seconds = start.elapsed().as_secs_f64();
            let consistency = Some(consistency.clone());
            made.push(DiskReport { disk: disk.clone(), report, source_format: "qemu", consistency, seconds });
        }
        drop(point);
        let nodes: Vec<&str> = disks.iter().map(|(_, node)| node.as_str()).collect();
        let definition =
            definition.map(|text| define(a, vault, text, &nodes, &options, progress)).transpose()?;
        Ok(Machine { disks: made, definition })
    })
}

/// One disk of a point in time.
fn one(
    a: &Backup,
    (vault, disk): (&Vault, &str),
    point: &WatchedPoint,
    n: usize,
    backup: OpenBackup<'_>,
    options: &BackupOptions,
    progress: &Progress,
) -> Result<BackupReport> {
    let newest = backup.newest().map(|s| s.id);
    let (source, changes) = point.source(n)?;
    let (since, why_whole) = match (newest, changes) {
        _ if a.full => (None, Some("as --full says".to_owned())),
        (_, Err(why)) => (None, Some(why)),
        (None, Ok(_)) => (None, None),
        (Some(id), Ok(changes)) => (Some(Since { snapshot: id.to_string(), changes }), None),
    };
    let mut options = BackupOptions { since, ..options.clone() };
    options.tags.extend(point.tags(n));
    let DiskFormat { format, is_defined } = point.format(n);
    let before = SourceFormat::of_disk(&snapshots_of(vault, disk)?);
    let known = format.and_then(|f| SourceFormat::read(f.name(), Some(f).filter(|_| is_defined), before));
    options.tags.extend(known.map(|f| (SOURCE_FORMAT_TAG.to_owned(), f.tag())));
    let mut report = backup.run(limited(a, Box::new(source)), &options, progress)?;
    if let (Scan::Whole, Some(why)) = (&report.scan, why_whole) {
        report.scan = Scan::WholeAlthough(why);
    }
    // The snapshot is committed, whatever the machine answers now; the next backup removes the remains.
    if let Err(e) = point.commit(n) {
        errln!("sapwood: {}: {e:#}", a.source.display());
    }
    Ok(report)
}
