//! Packs containers again at a higher level of zstd: for hours in which nothing else is to be done.
//!
//! Each container's entry says at which level it was packed last, so none is packed twice. The disk's maintenance is
//! held for some seconds at a time, so a deletion need not wait longer, and what was replaced gives room for the next.

use super::write_again::Due;
use super::{compact_batch, CompactReport};
use crate::base::error::{Result, VaultError};
use crate::base::progress::Progress;
use crate::base::threads::cores;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::reclaim::released::end_and_delete_released;
use format::{ContainerEntry, ContainerId};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use store::Reserve;

/// Levels that can be asked for.
pub const LEVELS: RangeInclusive<u8> = 1..=19;

/// Containers that each core packs before they take effect: what is not finished is lost if the command is killed.
const CONTAINERS_PER_CORE: usize = 1;
/// How long a disk's maintenance is held. Who waits for it gets it in the pause.
const HELD_FOR: Duration = Duration::from_secs(10);
/// The same in containers that are packed.
const HELD_FOR_CONTAINERS: u64 = 32;
/// Where so many containers of a disk are damaged, the others are left as well: `repair` comes first.
const DAMAGED_MAX: u64 = 1000;
/// See [`HELD_FOR`]. Who waits looks every 20 ms.
const PAUSE: Duration = Duration::from_millis(100);
/// Objects that are replaced and cannot be deleted yet, because a reader or a backup is at work, before it is put off: all of
/// the disk would be stored twice.
const WAITING_MAX: usize = 256;

/// Packs all containers of a disk again whose level is lower. A batch that begins before `until` is still done. Returns
/// whether none is left.
///
/// # Errors
/// `Busy` where a reader or a backup needs too much of what was replaced; `Cancelled`.
pub(crate) fn recompress(
    folder: &Folder,
    level: u8,
    until: Option<Instant>,
    progress: &Progress,
    compacted: &mut CompactReport,
    freed_bytes: &mut u64,
) -> Result<bool> {
    // It gives space back, so it must be able to end where none is left.
    let folder = &folder.with_reserve(Reserve::Whole);
    let first =
        Containers::new(folder.clone(), &folder.load_root()?).first_behind(None, 1, |e| is_due(e, level))?;
    let mut from = first.first().map(|_| None);
    let (mut waited_before, mut damaged) = (None, 0);
    let is_over = || until.is_some_and(|until| Instant::now() >= until);
    while let Some(after) = from {
        progress.check()?;
        if is_over() {
            return Ok(false);
        }
        let session = Session::begin_recompression(folder)?;
        from = pack_some(&session, after, level, until, progress, compacted, &mut damaged)?;
        *freed_bytes += end_and_delete_released(session)?.1;
        let m = folder.load_root()?;
        let waiting = m.released.len();
        if from.is_some() && !is_over() && waiting > *waited_before.get_or_insert(waiting) + WAITING_MAX {
            let holder = "a reader or a backup that still needs what was packed again".into();
            return Err(VaultError::Busy { disk: m.name, holder });
        }
        if from.is_some() {
            std::thread::sleep(PAUSE);
        }
    }
    // A signal may have come during the last of it.
    progress.check().map(|()| true)
}

/// Bytes of the containers that are to be packed again.
pub(crate) fn bytes_due(folder: &Folder, level: u8) -> Result<u64> {
    let mut bytes = 0u64;
    Containers::new(folder.clone(), &folder.load_root()?).each(|e| {
        bytes = bytes.saturating_add(if is_due(e, level) { e.stored_bytes } else { 0 });
        Ok(())
    })?;
    Ok(bytes)
}

fn is_due(e: &ContainerEntry, level: u8) -> bool {
    e.id.is_own() && e.level < level
}

/// Packs containers behind `after` whose level is lower, for [`HELD_FOR`], or until the time is over or `progress` says to
/// stop. Returns behind which one to go on; `None` if there is none left.
fn pack_some(
    session: &Session,
    mut after: Option<ContainerId>,
    level: u8,
    until: Option<Instant>,
    progress: &Progress,
    report: &mut CompactReport,
    damaged: &mut u64,
) -> Result<Option<Option<ContainerId>>> {
    let containers = Containers::new(session.folder.clone(), &session.folder.load_root()?);
    let end = Instant::now() + HELD_FOR;
    let (end, mut packed) = (until.map_or(end, |until| until.min(end)), 0);
    loop {
        let due = containers.first_behind(after, CONTAINERS_PER_CORE * cores(), |e| is_due(e, level))?;
        let Some(last) = due.last() else { return Ok(None) };
        let batch: Vec<Due> =
            due.iter().map(|entry| Due { entry: *entry, dead: None, level: Some(level) }).collect();
        let done = match compact_batch(session, &batch) {
            // What this round has replaced gives room when it is deleted.
            Err(e) if e.is_full() && packed > 0 => return Ok(Some(after)),
            done => done?,
        };
        packed += done.containers;
        *damaged += done.damaged;
        report.add(done);
        due.iter().for_each(|entry| progress.add(entry.stored_bytes));
        after = Some(last.id);
        if *damaged >= DAMAGED_MAX {
            return Ok(None);
        }
        let is_over = Instant::now() >= end || packed >= HELD_FOR_CONTAINERS;
        if is_over || progress.check().is_err() {
            return Ok(Some(after));
        }
    }
}
