//! Backups of a snapshot of a pool's volume. Only what changed since the newest snapshot in the vault is read, if that was
//! made of a snapshot that the pool still has.

use super::limit::limited;
use super::report::DiskReport;
use crate::args::Backup;
use crate::commands::pool::snapshot;
use crate::progress::watch;
use crate::tags::VOLUME_TAG;
use anyhow::Result;
use image::Changes;
use std::time::Instant;
use vault::{BackupOptions, Scan, Since, Vault, VaultError};

/// What such a source begins with.
const PREFIX: &str = "volume:";

/// The name of the snapshot, if the source is one.
pub(super) fn name(a: &Backup) -> Option<&str> {
    a.source.to_str().filter(|_| a.from_command.is_none())?.strip_prefix(PREFIX)
}

pub(super) fn back_up(
    quiet: bool,
    a: &Backup,
    vault: &Vault,
    name: &str,
    mut options: BackupOptions,
) -> Result<DiskReport> {
    let start = Instant::now();
    let usage = |why: String| VaultError::Usage(why);
    let Some(pool) = &a.pool else {
        return Err(usage(format!("{PREFIX}{name}: which pool? Give --pool, or set SAPWOOD_POOL")).into());
    };
    if !name.contains('@') {
        let why = format!(
            "{PREFIX}{name}: a volume may be written while it is read; make a snapshot \
             (`sapwood volume snapshot {name}@NAME`), and give {PREFIX}{name}@NAME"
        );
        return Err(usage(why).into());
    }
    let of_others = [
        ("--since", a.since.is_some()),
        ("--source-format", a.source_format.is_some()),
        ("--stdin-size", a.stdin_size.is_some()),
        ("--scratch", a.scratch.is_some()),
        ("--agent", a.agent.is_some()),
    ];
    if let Some((option, _)) = of_others.iter().find(|(_, given)| *given) {
        return Err(usage(format!("{option} says what a pool tells by itself; leave it out")).into());
    }
    let backup = vault.begin_backup(&a.disk)?;
    let newest = backup.newest().map(|s| s.id);
    let tags = backup.newest().map(|s| s.tags.as_slice()).unwrap_or_default();
    let since = tags.iter().find(|(name, _)| name == VOLUME_TAG).map(|(_, key)| key.clone());
    let is_of_pool = since.is_some();
    let (source, told, _pool) = snapshot::open(pool, name, since)?;
    let (since, why_whole) = match (newest, told.changes()) {
        _ if a.full => (None, Some("as --full says")),
        (None, _) => (None, None),
        (Some(_), _) if !is_of_pool => (None, Some("the newest snapshot was not made of a volume")),
        (Some(_), None) => (None, Some("the pool does not have what the newest snapshot was made of")),
        (Some(id), Some(ranges)) => {
            (Some(Since { snapshot: id.to_string(), changes: Changes::new(ranges) }), None)
        }
    };
    options.since = since;
    options.time = options.time.or(Some(told.created));
    options.tags.push((VOLUME_TAG.to_owned(), told.key));
    let mut report = watch(quiet, &a.disk, |p| backup.run(limited(a, source), &options, p))?;
    if let (Scan::Whole, Some(why)) = (&report.scan, why_whole) {
        report.scan = Scan::WholeAlthough(why.to_owned());
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(DiskReport { disk: a.disk.clone(), report, source_format: "volume", consistency: None, seconds })
}
