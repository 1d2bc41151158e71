//! Backups of a pool's volume, at a snapshot that is there or that is made for the backup. Only what changed since the newest
//! snapshot in the vault is read, if that was made of a snapshot that the pool still has.

use super::limit::limited;
use super::report::{warn_of_future, Consistency, DiskReport};
use super::source_name;
use crate::args::Backup;
use crate::commands::pool::own_snapshot::Prepared;
use crate::commands::pool::snapshot;
use crate::live::{freeze, Freeze, Frozen, THAWED_ITSELF};
use crate::progress::watch;
use crate::tags::{SOURCE_TAG, VOLUME, VOLUME_TAG};
use anyhow::Result;
use image::Changes;
use std::path::Path;
use std::time::Instant;
use vault::{BackupOptions, Scan, Since, Vault, VaultError};

/// Why all of a volume is looked at.
const WITHOUT_BASE: &str =
    "the pool does not have what the newest snapshot was made of, or the volume's size has changed";
/// Why the guest is not frozen where no machine has the disk.
const UNSERVED: &str = "nobody serves the pool";

/// The name of the volume or snapshot, if the source is one.
pub(super) fn name(a: &Backup) -> Option<&str> {
    a.source.to_str().filter(|_| a.from_command.is_none())?.strip_prefix(VOLUME)
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
        return Err(usage(format!("{VOLUME}{name}: which pool? Give --pool, or set SAPWOOD_POOL")).into());
    };
    if name.is_empty() {
        return Err(usage(format!("{VOLUME} names no volume: {VOLUME}NAME")).into());
    }
    let is_snapshot = name.contains('@');
    if is_snapshot && a.agent.is_some() {
        let why = format!("--agent: {name} is there already; {VOLUME}NAME makes a snapshot for the backup");
        return Err(usage(why).into());
    }
    let of_others = [
        ("--since", a.since.is_some()),
        ("--source-format", a.source_format.is_some()),
        ("--stdin-size", a.stdin_size.is_some()),
        ("--scratch", a.scratch.is_some()),
    ];
    if let Some((option, _)) = of_others.iter().find(|(_, given)| *given) {
        return Err(usage(format!("{option} says what a pool tells by itself; leave it out")).into());
    }
    // From here on a signal stops in order: neither a frozen guest nor a snapshot stays behind.
    watch(quiet, &a.disk, |progress| {
        let backup = vault.begin_backup(&a.disk)?;
        warn_of_future(&a.disk, backup.newest());
        let volume = source_name::of_volume(pool, name);
        source_name::check(a, vault, backup.newest(), volume.as_deref())?;
        options.tags.extend(volume.map(|volume| (SOURCE_TAG.to_owned(), volume)));
        let newest = backup.newest().map(|s| s.id);
        let tags = backup.newest().map(|s| s.tags.as_slice()).unwrap_or_default();
        let since = tags.iter().find(|(name, _)| name == VOLUME_TAG).map(|(_, key)| key.clone());
        let is_of_pool = since.is_some();
        let (own, consistency) = if is_snapshot {
            (None, None)
        } else {
            let prepared = Prepared::find(pool, name, vault.id(), backup.disk())?;
            let (own, consistency) = if prepared.is_served {
                while_frozen(a.agent.as_deref(), || prepared.make())?
            } else {
                // No machine can be using it.
                (prepared.make()?, Consistency::of(false, a.agent.as_ref().map(|_| UNSERVED.to_owned())))
            };
            (Some(own), Some(consistency))
        };
        options.tags.extend(consistency.as_ref().map(Consistency::tag));
        let name = own.as_ref().map_or(name, |own| &own.name);
        let (source, told, open_pool) = snapshot::open(pool, name, since)?;
        let (since, why_whole) = match (newest, told.changes()) {
            _ if a.full => (None, Some("as --full says")),
            (None, _) => (None, None),
            (Some(_), _) if !is_of_pool => (None, Some("the newest snapshot was not made of a volume")),
            (Some(_), None) => (None, Some(WITHOUT_BASE)),
            (Some(id), Some(ranges)) => {
                (Some(Since { snapshot: id.to_string(), changes: Changes::new(ranges) }), None)
            }
        };
        options.since = since;
        options.time = options.time.or(Some(told.created));
        options.tags.push((VOLUME_TAG.to_owned(), told.key));
        let mut report = backup.run(limited(a, source), &options, progress)?;
        if let (Scan::Whole, Some(why)) = (&report.scan, why_whole) {
            report.scan = Scan::WholeAlthough(why.to_owned());
        }
        drop(open_pool);
        if let Some(own) = own {
            own.keep();
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(DiskReport { disk: a.disk.clone(), report, source_format: "volume", consistency, seconds })
    })
}

/// Does something while the guest's file systems are frozen, if there is an agent (its socket). Returns what that makes of it.
fn while_frozen<T>(agent: Option<&Path>, work: impl FnOnce() -> Result<T>) -> Result<(T, Consistency)> {
    let (mut frozen, not_frozen) = match agent.map(freeze).transpose()? {
        None => (None, None),
        Some(Freeze::Frozen(frozen)) => (Some(frozen), None),
        Some(Freeze::Not(why)) => (None, Some(why)),
    };
    let done = work();
    // The guest is thawed even after an error.
    let was_frozen = frozen.as_mut().map(Frozen::thaw).transpose()?;
    let consistency = match was_frozen {
        Some(false) => Consistency::of(false, Some(THAWED_ITSELF.to_owned())),
        was_frozen => Consistency::of(was_frozen.is_some(), not_frozen),
    };
    done.map(|done| (done, consistency))
}
