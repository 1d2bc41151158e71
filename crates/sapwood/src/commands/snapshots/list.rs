//! `sapwood snapshots`

use crate::args::{Args, Snapshots};
use crate::commands::names::open;
use crate::commands::snapshots::pattern::{self, Named};
use crate::tags::is_reserved;
use crate::terminal::outcome::with_damage;
use crate::terminal::output::{age, size, table, JsonText};
use anyhow::Result;
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use vault::{
    format_time, now, LastVerifications, Listing, SnapshotInfo, SnapshotVerification, Vault, HELD_FOR,
};

/// Digits of an id that are shown, where they tell the snapshots of a disk apart.
const ID_DIGITS: usize = 8;

pub fn run(args: &Args, a: &Snapshots) -> Result<ExitCode> {
    let vault = open(args)?;
    let Listing { mut snapshots, damaged } = listed(&vault, &a.names)?;
    let ids = Ids::of(&snapshots);
    snapshots.retain(|s| is_wanted(a, s));
    if let Some(n) = a.last {
        snapshots = newest_of_each(snapshots, n);
    }
    let last = vault.last_verifications();
    if args.json {
        print(&snapshots, &last, &damaged)?;
    } else {
        show(&snapshots, &ids, &last);
    }
    Ok(with_damage(&damaged))
}

/// Prints JSON, one snapshot after the other: as values they would take kilobytes each.
fn print(snapshots: &[SnapshotInfo], last: &LastVerifications, damaged: &[String]) -> Result<()> {
    let mut text = JsonText::new();
    text.push("{\"snapshots\":[")?;
    for (n, s) in snapshots.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        text.push(&format!("{comma}{}", to_json(s, last.of_snapshot(s))))?;
    }
    text.push(&format!("],\"damaged\":{}}}", json!(damaged)))?;
    text.print()
}

/// The snapshots of the disks that are named, or of all.
fn listed(vault: &Vault, names: &[String]) -> Result<Listing> {
    if names.is_empty() {
        return Ok(vault.snapshots(None)?);
    }
    let Named { disks, damaged } = pattern::find(vault, names, false)?;
    let mut listing = Listing { damaged, ..Listing::default() };
    for disk in disks {
        let of_disk = vault.snapshots(Some(&disk))?;
        listing.snapshots.extend(of_disk.snapshots);
        listing.damaged.extend(of_disk.damaged);
    }
    listing.damaged.sort_unstable();
    listing.damaged.dedup();
    Ok(listing)
}

fn is_wanted(a: &Snapshots, s: &SnapshotInfo) -> bool {
    let e = &s.entry;
    let has = |wanted: &String| {
        let (name, value) = wanted.split_once('=').map_or((wanted.as_str(), None), |(n, v)| (n, Some(v)));
        e.tags.iter().any(|(n, v)| n == name && value.is_none_or(|value| v == value))
    };
    a.tag.iter().all(has)
        && (e.held || !a.held)
        && a.from.is_none_or(|from| e.time >= from)
        && a.until.is_none_or(|until| e.time <= until)
}

/// Of each disk the `n` newest; they are listed oldest first.
fn newest_of_each(mut snapshots: Vec<SnapshotInfo>, n: u32) -> Vec<SnapshotInfo> {
    let mut left: HashMap<String, u32> = HashMap::new();
    snapshots.reverse();
    snapshots.retain(|s| {
        let left = left.entry(s.disk.clone()).or_insert(n);
        let stays = *left > 0;
        *left = left.saturating_sub(1);
        stays
    });
    snapshots.reverse();
    snapshots
}

fn to_json(s: &SnapshotInfo, verified: Option<SnapshotVerification>) -> Value {
    let e = &s.entry;
    json!({
        "disk": s.disk,
        "snapshot": e.id.to_string(),
        "time": e.time,
        "parent": e.parent.map(|p| p.to_string()),
        "policy": e.policy,
        "size": e.size,
        "data_bytes": e.data_bytes,
        "changed_bytes": e.changed_bytes,
        "new_bytes": e.new_bytes,
        "stored_bytes": e.stored_bytes,
        "held": e.held,
        "tags": e.tags.iter().cloned().collect::<BTreeMap<_, _>>(),
        "verified_time": verified.map(|v| v.time),
        "data_verified_time": verified.and_then(|v| v.data_time),
        "is_damaged": verified.is_some_and(|v| v.is_damaged),
    })
}

/// A table, in which the disks of a machine at one instant stand together, with one time.
fn show(snapshots: &[SnapshotInfo], ids: &Ids, last: &LastVerifications) {
    let machine = |s: &SnapshotInfo| s.disk.split_once('/').map_or(String::new(), |(vm, _)| vm.to_owned());
    let mut sorted: Vec<&SnapshotInfo> = snapshots.iter().collect();
    sorted.sort_by_cached_key(|s| (machine(s), s.entry.time));
    let now = now();
    let mut before = None;
    let row = |s: &&SnapshotInfo| {
        let e = &s.entry;
        let instant = Some((machine(s), e.time));
        let time = if before == instant { String::new() } else { format_time(e.time) };
        before = instant;
        vec![
            time,
            s.disk.clone(),
            ids.shown(s),
            size(e.size),
            size(e.stored_bytes),
            last.of_snapshot(s).map(|v| verified(&v, now)).unwrap_or_default(),
            notes(s),
        ]
    };
    let rows: Vec<Vec<String>> = sorted.iter().map(row).collect();
    table(&["time", "disk", "snapshot", ">size", ">stored", ">verified", "tags"], &rows);
}

fn verified(v: &SnapshotVerification, now: i64) -> String {
    match v {
        SnapshotVerification { is_damaged: true, .. } => "DAMAGED".into(),
        SnapshotVerification { data_time: Some(time), .. } => age(now - time),
        SnapshotVerification { time, .. } => format!("({})", age(now - time)),
    }
}

/// Whether it is held, and for what, and the tags that users have given it.
fn notes(s: &SnapshotInfo) -> String {
    let tags = &s.entry.tags;
    let what = tags.iter().find(|(name, _)| name == HELD_FOR).map(|(_, what)| format!("held for {what}"));
    let held = s.entry.held.then(|| what.unwrap_or_else(|| "held".into()));
    let given =
        tags.iter().filter(|(name, _)| !is_reserved(name)).map(|(name, value)| format!("{name}={value}"));
    held.into_iter().chain(given).collect::<Vec<_>>().join(" ")
}

/// How ids are shown.
struct Ids(HashMap<(String, String), u32>);

impl Ids {
    fn of(snapshots: &[SnapshotInfo]) -> Ids {
        let mut ids = Ids(HashMap::new());
        for s in snapshots {
            *ids.0.entry(Self::key(s)).or_default() += 1;
        }
        ids
    }

    fn key(s: &SnapshotInfo) -> (String, String) {
        (s.disk.clone(), s.entry.id.to_string().chars().take(ID_DIGITS).collect())
    }

    /// The first digits; all of them where another snapshot of the disk begins like it.
    fn shown(&self, s: &SnapshotInfo) -> String {
        let (disk, short) = Self::key(s);
        match self.0.get(&(disk, short.clone())) {
            Some(1) => short,
            _ => s.entry.id.to_string(),
        }
    }
}
