//! The status for people and as JSON.

use super::found::Status;
use super::job_status::JobStatus;
use super::level::Problem;
use crate::commands::names::split;
use crate::jobs::sizes::Growth;
use crate::terminal::output::{age, counted, size, table};
use crate::terminal::streams::outln;
use serde_json::{json, Value};
use vault::{format_time, DiskHealth, DiskVerification, Health, HeldFor, SessionInfo};

/// Digits of ids.
const ID_DIGITS: usize = 8;
/// Problems that the first line names; the rest is counted.
const NAMED_MAX: usize = 3;

/// The line that a monitoring plugin shows, and tables below it unless `quiet`.
pub fn print(status: &Status, quiet: bool) {
    outln!("SAPWOOD {} - {}{}", status.level().name(), summary(status), figures(status));
    if quiet {
        return;
    }
    for problem in status.problems.iter().skip(NAMED_MAX) {
        outln!("{}: {}", problem.level.name(), problem.what);
    }
    if let Some(health) = &status.vault {
        disks(status, health);
        outln!(
            "stored by the snapshots of the last 7 days: {}; of the 7 days before: {}",
            size(health.stored_week_bytes),
            size(health.stored_week_before_bytes)
        );
        if let Some(growth) = status.growth {
            outln!("{}", grown(growth, health.free_bytes));
        }
    }
    jobs(status);
    for health in status.vault.iter() {
        health.sessions.iter().for_each(|session| outln!("{}", holder(session)));
        for DiskHealth { name, held, .. } in health.disks.iter().filter(|d| d.held > 0) {
            outln!(
                "{name}: {} held by users; `sapwood release VM/DISK@SNAPSHOT` ends that",
                counted(*held, "snapshot")
            );
        }
        for HeldFor { snapshot, what } in &health.held_for {
            outln!("{snapshot}: held for {what}; `sapwood release {snapshot}` ends that");
        }
    }
}

/// What came and went, deletions included, and how long the free space lasts.
fn grown(growth: Growth, free: Option<u64>) -> String {
    let over = age(growth.seconds);
    let bytes = size(growth.bytes.unsigned_abs());
    let how = if growth.bytes < 0 { "smaller" } else { "larger" };
    let left = free.and_then(|free| growth.seconds_left(free));
    let left = left.map(|s| format!("; at this rate the free space lasts {}", age(s))).unwrap_or_default();
    format!("all in all {bytes} {how} than {over} ago{left}")
}

fn summary(status: &Status) -> String {
    let (named, more) = status.problems.split_at(status.problems.len().min(NAMED_MAX));
    let mut parts: Vec<String> = named.iter().map(|p| p.what.clone()).collect();
    if !more.is_empty() {
        parts.push(format!("and {} more", more.len()));
    }
    if let Some(health) = &status.vault {
        let free = health.free_bytes.map(|free| format!(", {} free", size(free))).unwrap_or_default();
        let (disks, jobs) = (health.disks.len(), status.jobs.len());
        let (disks, jobs) = (counted(disks, "disk"), counted(jobs, "job"));
        parts.push(format!("{disks}, {jobs}, {} stored{free}", size(health.stored_bytes)));
    }
    // What plugins take for the beginning of figures.
    parts.join("; ").replace('|', "/")
}

/// Figures as plugins have them, behind a bar.
fn figures(status: &Status) -> String {
    let Some(health) = &status.vault else { return String::new() };
    let free = health.free_bytes.map(|free| format!(" free={free}B")).unwrap_or_default();
    let oldest = health.disks.iter().filter_map(|d| d.newest.as_ref()).map(|s| s.time).min();
    let oldest = oldest.map(|t| format!(" oldest={}s", (status.now - t).max(0))).unwrap_or_default();
    format!(" | disks={} stored={}B{free}{oldest}", health.disks.len(), health.stored_bytes)
}

fn disks(status: &Status, health: &Health) {
    let row = |d: &DiskHealth| {
        let (id, time, old) = match &d.newest {
            Some(s) => (s.id.to_string(), format_time(s.time), age(status.now - s.time)),
            None => Default::default(),
        };
        let id = id.chars().take(ID_DIGITS).collect();
        vec![d.name.clone(), d.snapshots.to_string(), id, time, old, verified(d, status.now)]
    };
    if !health.disks.is_empty() {
        let rows: Vec<Vec<String>> = health.disks.iter().map(row).collect();
        table(&["disk", ">snapshots", "newest", "time", ">age", ">verified"], &rows);
    }
}

/// How long ago it was verified, and what came of it.
fn verified(d: &DiskHealth, now: i64) -> String {
    match (&d.verified, &d.data_verified) {
        (Some(last), _) if last.damaged_objects > 0 => "DAMAGED".into(),
        (_, Some(data)) => age(now - data.time),
        (Some(last), None) => format!("({})", age(now - last.time)),
        (None, None) => "never".into(),
    }
}

fn jobs(status: &Status) {
    let row = |j: &JobStatus| {
        let started = j.last.as_ref().map(|s| format_time(s.started)).unwrap_or_default();
        vec![j.name.clone(), j.word().to_owned(), started, j.next_due_text.clone()]
    };
    if !status.jobs.is_empty() {
        let rows: Vec<Vec<String>> = status.jobs.iter().map(row).collect();
        table(&["job", "last run", "started", "next due"], &rows);
    }
}

fn holder(s: &SessionInfo) -> String {
    let disk = s.disk.as_ref().map(|d| format!("{d}: ")).unwrap_or_default();
    format!(
        "{disk}locked by a {} (host {}, process {}, since {})",
        s.work,
        s.host,
        s.process,
        format_time(s.since)
    )
}

/// The one object of `--json`.
pub fn json(status: &Status) -> Value {
    let problem = |p: &Problem| json!({ "status": p.level.name(), "what": p.what });
    json!({
        "status": status.level().name(),
        "time": status.now,
        "summary": summary(status),
        "problems": status.problems.iter().map(problem).collect::<Vec<_>>(),
        "growth": status.growth.map(|g| growth_json(status, g)),
        "vault": status.vault.as_ref().map(|health| vault_json(status, health)),
        "jobs": status.jobs.iter().map(job_json).collect::<Vec<_>>(),
    })
}

fn growth_json(status: &Status, growth: Growth) -> Value {
    let free = status.vault.as_ref().and_then(|health| health.free_bytes);
    json!({
        "seconds": growth.seconds,
        "bytes": growth.bytes,
        "free_space_lasts_seconds": free.and_then(|free| growth.seconds_left(free)),
    })
}

fn vault_json(status: &Status, health: &Health) -> Value {
    let disk = |d: &DiskHealth| {
        json!({
            "disk": d.name,
            "snapshot_count": d.snapshots,
            "held_count": d.held,
            "newest_snapshot": d.newest.as_ref().map(|s| s.id.to_string()),
            "newest_time": d.newest.as_ref().map(|s| s.time),
            "age_seconds": d.newest.as_ref().map(|s| status.now - s.time),
            "damaged_containers": d.damaged_containers,
            "verified": d.verified.as_ref().map(verification_json),
            "data_verified": d.data_verified.as_ref().map(verification_json),
        })
    };
    let session = |s: &SessionInfo| json!({ "work": s.work, "disk": s.disk, "host": s.host, "process": s.process, "since": s.since });
    json!({
        "disks": health.disks.iter().map(disk).collect::<Vec<_>>(),
        "damage": health.damaged,
        "damaged_popular_containers": health.damaged_popular,
        "sessions": health.sessions.iter().map(session).collect::<Vec<_>>(),
        "held_for": health.held_for.iter().map(held_json).collect::<Vec<_>>(),
        "stored_bytes": health.stored_bytes,
        "stored_last_7_days_bytes": health.stored_week_bytes,
        "stored_7_days_before_bytes": health.stored_week_before_bytes,
        "free_bytes": health.free_bytes,
    })
}

fn held_json(h: &HeldFor) -> Value {
    let (disk, id) = split(&h.snapshot);
    json!({ "disk": disk, "snapshot": id, "what": h.what })
}

fn verification_json(v: &DiskVerification) -> Value {
    json!({
        "time": v.time,
        "read_chunks": v.read_chunks,
        "damaged_count": v.damaged_objects,
        "damaged_snapshot_count": v.damaged_snapshots,
    })
}

fn job_json(j: &JobStatus) -> Value {
    json!({
        "job": j.name,
        "state": j.word(),
        "is_running": j.is_running,
        "overdue_since": j.overdue_since,
        "next_due": j.next_due,
        "last_success": j.last.as_ref().and_then(|s| s.last_success),
        "last": j.last,
    })
}
