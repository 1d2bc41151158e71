//! Which snapshot a user means: an id, a prefix of one, `latest`, `latest~N`, or a time.

use crate::base::calendar::parse_time;
use crate::base::error::{Result, VaultError};
use format::{SnapId, SnapshotEntry, SnapshotState};
use std::collections::BTreeSet;

/// Snapshots that a message lists.
const CANDIDATES_MAX: usize = 8;

/// The snapshot of a disk that `spec` names. `all` are all its snapshots.
pub(crate) fn find_snapshot<'a>(
    all: &'a [SnapshotEntry],
    disk: &str,
    spec: &str,
) -> Result<&'a SnapshotEntry> {
    let none = |why: String| VaultError::NotFound {
        what: format!("{disk}@{spec}: {why}; `sapwood snapshots {disk}` lists what there is"),
    };
    let live = by_time(all);
    if let Some(back) = spec.strip_prefix("latest") {
        let n = match back.strip_prefix('~') {
            Some(n) => n.parse::<usize>().map_err(|_| none(format!("{n:?} is not a number")))?,
            None if back.is_empty() => 0,
            None => return Err(none("not a snapshot".into())),
        };
        let at = n.checked_add(1).and_then(|n| live.len().checked_sub(n));
        let plural = if live.len() == 1 { "" } else { "s" };
        return at
            .map(|i| live[i])
            .ok_or_else(|| none(format!("the disk has {} snapshot{plural}", live.len())));
    }
    let matching: Vec<_> = live.iter().filter(|s| s.id.to_string().starts_with(spec)).collect();
    match matching[..] {
        [one] if !spec.is_empty() => return Ok(one),
        [_, _, ..] if !spec.is_empty() => {
            return Err(none(format!(
                "{} snapshots begin like this: {}",
                matching.len(),
                candidates(&matching)
            )));
        }
        _ => {}
    }
    let time = parse_time(spec).ok_or_else(|| {
        none(
            "there is no such snapshot; write an id, latest, latest~N or a time such as 2026-11-21T22:00"
                .into(),
        )
    })?;
    let before = live.into_iter().rfind(|s| s.time <= time);
    before.ok_or_else(|| none("there is no snapshot that old".into()))
}

/// The snapshot that `spec` names, where the newest ones are enough to tell: all others were stored before, and none of them
/// is of a later time than `latest`.
pub(crate) fn find_recent<'a>(
    recent: &'a [SnapshotEntry],
    latest: Option<i64>,
    spec: &str,
) -> Option<&'a SnapshotEntry> {
    let live = by_time(recent);
    // What is as late as the latest of the others was stored after it.
    let is_later = |s: &&SnapshotEntry| latest.is_none_or(|latest| latest <= s.time);
    if let Some(back) = spec.strip_prefix("latest") {
        let n = if back.is_empty() { 0 } else { back.strip_prefix('~')?.parse::<usize>().ok()? };
        let at = n.checked_add(1).and_then(|n| live.len().checked_sub(n))?;
        return Some(live[at]).filter(is_later);
    }
    if let Some(whole_id) = live.iter().find(|s| s.id.to_string() == spec) {
        return Some(whole_id);
    }
    // Else it may be the beginning of an id.
    let time = parse_time(spec).filter(|_| spec.contains('-'))?;
    live.into_iter().rfind(|s| s.time <= time).filter(is_later)
}

/// The snapshots that users see, oldest first. Of equal times the one that was stored later is the newer one.
pub(crate) fn by_time(all: &[SnapshotEntry]) -> Vec<&SnapshotEntry> {
    let mut live: Vec<&SnapshotEntry> = all.iter().filter(|s| s.state == SnapshotState::Live).collect();
    live.sort_by_key(|s| s.time);
    live
}

/// The same, of those that nobody else needs.
pub(crate) fn live_by_time(mut all: Vec<SnapshotEntry>) -> Vec<SnapshotEntry> {
    all.retain(|s| s.state == SnapshotState::Live);
    all.sort_by_key(|s| s.time);
    all
}

/// The snapshots that may have been meant, the first few.
fn candidates(matching: &[&&SnapshotEntry]) -> String {
    let shown = matching.iter().take(CANDIDATES_MAX).map(|s| s.id.to_string()).collect::<Vec<_>>().join(", ");
    if matching.len() > CANDIDATES_MAX {
        shown + ", …"
    } else {
        shown
    }
}

/// The ids of the snapshots that `specs` name, all by one list.
pub(crate) fn find_ids(all: &[SnapshotEntry], disk: &str, specs: &[&str]) -> Result<BTreeSet<SnapId>> {
    specs.iter().map(|spec| Ok(find_snapshot(all, disk, spec)?.id)).collect()
}

/// The entry of a snapshot that was found before, in a manifest that is being changed: it may be gone by now.
pub(crate) fn find_live<'a>(
    all: &'a mut [SnapshotEntry],
    disk: &str,
    id: SnapId,
) -> Result<&'a mut SnapshotEntry> {
    let live = all.iter_mut().find(|s| s.id == id && s.state == SnapshotState::Live);
    live.ok_or_else(|| VaultError::NotFound {
        what: format!("{disk}@{id}: has just been deleted; `sapwood snapshots {disk}` lists what there is"),
    })
}
