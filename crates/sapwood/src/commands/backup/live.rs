//! Backups of a running QEMU: one of its disks, or all of them at one instant.

use super::super::scratch;
use super::{limited, Consistency, Made};
use crate::args::{Args, Backup};
use crate::live::{disks_of, LiveOptions, LiveSourceName, PointInTime, Wanted, Watched};
use crate::progress::watch;
use anyhow::{Context as _, Result};
use std::time::Instant;
use vault::{now, BackupOptions, OpenBackup, Scan, Since, Vault, VaultError};

/// Backs up what `source` names. All disks have the same point in time; each has its snapshot as soon as it is done.
pub(super) fn run(
    args: &Args,
    a: &Backup,
    vault: &Vault,
    source: &LiveSourceName,
    mut options: BackupOptions,
) -> Result<Vec<Made>> {
    if a.since.is_some() || a.source_format.is_some() {
        let why = "--since and --source-format say what a running QEMU tells by itself; leave them out";
        return Err(VaultError::Usage(why.into()).into());
    }
    // Name of the disk in the vault, and in QEMU.
    let disks: Vec<(String, String)> = match &source.node {
        Some(node) => vec![(a.disk.clone(), node.clone())],
        None => disks_of(&source.socket)?.into_iter().map(|id| (format!("{}/{id}", a.disk), id)).collect(),
    };
    for (name, _) in &disks {
        vault::check_disk_name(name)?;
    }
    let how = LiveOptions { scratch: scratch(a.scratch.as_deref()), agent: a.agent.clone() };
    options.time = options.time.or_else(|| Some(now()));
    // From here on a signal stops in order: neither a frozen guest nor a job in QEMU stays behind.
    watch(args, &a.disk, |progress| {
        let mut backups: Vec<OpenBackup<'_>> = Vec::new();
        let mut wanted = Vec::new();
        for (name, node) in &disks {
            let backup = vault.begin_backup(name)?;
            wanted.push(Wanted { node: node.clone(), newest: backup.newest(), snapshot: backup.snapshot() });
            backups.push(backup);
        }
        let point = PointInTime::take(&source.socket, &how, vault.id(), &wanted)?;
        let kind = if point.frozen { "application" } else { "crash" };
        let consistency = Consistency { kind, not_frozen: point.not_frozen.clone() };
        options.tags.push(("consistency".into(), kind.into()));
        let point = Watched::new(point);
        let mut made: Vec<Made> = Vec::new();
        for (n, backup) in backups.into_iter().enumerate() {
            let disk = &disks[n].0;
            let start = Instant::now();
            let done = made.len();
            let report = one(a, &point, n, backup, &options, progress).with_context(|| match done {
                0 => disk.clone(),
                _ => format!("{disk}, after {done} of {} disks of the machine were backed up", disks.len()),
            })?;
            let seconds = start.elapsed().as_secs_f64();
            let consistency = Some(consistency.clone());
            made.push(Made { disk: disk.clone(), report, source_format: "qemu", consistency, seconds });
        }
        Ok(made)
    })
}

/// One disk of a point in time.
fn one(
    a: &Backup,
    point: &Watched,
    n: usize,
    backup: OpenBackup<'_>,
    options: &BackupOptions,
    progress: &vault::Progress,
) -> Result<vault::BackupReport> {
    let newest = backup.newest();
    let (source, changes) = point.source(n)?;
    let (since, why_whole) = match (newest, changes) {
        _ if a.full => (None, Some("as --full says".to_owned())),
        (_, Err(why)) => (None, Some(why)),
        (None, Ok(_)) => (None, None),
        (Some(id), Ok(changes)) => (Some(Since { snapshot: id.to_string(), changes }), None),
    };
    let options = BackupOptions { since, ..options.clone() };
    let mut report = backup.run(limited(a, Box::new(source)), &options, progress)?;
    if let (Scan::Whole, Some(why)) = (&report.scan, why_whole) {
        report.scan = Scan::WholeAlthough(why);
    }
    // The snapshot stands whatever QEMU says now; the next backup clears away what is left.
    if let Err(e) = point.commit(n) {
        eprintln!("sapwood: {}: {e:#}", a.source.display());
    }
    Ok(report)
}
