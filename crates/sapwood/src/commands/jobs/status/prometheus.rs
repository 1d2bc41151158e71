//! The status as a text file for the textfile collector of Prometheus' node exporter.

use super::found::Status;
use super::job_status::JobStatus;
use std::fmt::Write;
use vault::DiskHealth;

/// All figures, each with its help.
pub fn text(status: &Status) -> String {
    let mut text = Text(String::new());
    text.one("sapwood_status", "0 OK, 1 warning, 2 critical, 3 unknown", Some(status.level().code().into()));
    text.one("sapwood_status_time_seconds", "When this was written", Some(status.now));
    if let Some(health) = &status.vault {
        let free = health.free_bytes.map(|bytes| bytes as i64);
        text.one(
            "sapwood_stored_bytes",
            "Bytes of all objects of the vault",
            Some(health.stored_bytes as i64),
        );
        text.one("sapwood_free_bytes", "Free bytes of the vault's file system", free);
        text.one(
            "sapwood_stored_last_7_days_bytes",
            "What the snapshots of the last 7 days stored",
            Some(health.stored_week_bytes as i64),
        );
        text.one("sapwood_sessions", "Processes that change the vault", Some(health.sessions.len() as i64));
        text.one("sapwood_damaged_objects", "Damaged names and manifests", Some(health.damaged.len() as i64));
        let each = |name, help, value: fn(&DiskHealth) -> Option<i64>, text: &mut Text| {
            text.each(name, help, "disk", health.disks.iter().map(|d| (d.name.as_str(), value(d))));
        };
        let newest = |d: &DiskHealth| d.newest.as_ref().map(|s| s.time);
        each("sapwood_newest_snapshot_time_seconds", "Time of a disk's newest snapshot", newest, &mut text);
        each("sapwood_snapshots", "Snapshots of a disk", |d| Some(d.snapshots as i64), &mut text);
        let verified = |d: &DiskHealth| d.verified.map(|v| v.time);
        each("sapwood_verified_time_seconds", "Begin of a disk's last verification", verified, &mut text);
        let verified = |d: &DiskHealth| d.data_verified.map(|v| v.time);
        each(
            "sapwood_data_verified_time_seconds",
            "Begin of the last one that read all chunks",
            verified,
            &mut text,
        );
        let verified = |d: &DiskHealth| d.verified.map(|v| v.damaged_objects as i64);
        each("sapwood_verified_damaged_objects", "Damaged objects that it found", verified, &mut text);
        let damaged = |d: &DiskHealth| Some(d.damaged_containers as i64);
        each("sapwood_damaged_containers", "Containers that are recorded as damaged", damaged, &mut text);
    }
    if let Some(growth) = status.growth {
        let a_day = growth.bytes as f64 / growth.seconds as f64 * 86_400.0;
        text.one(
            "sapwood_growth_bytes_per_day",
            "How the vault has grown in the last 30 days, deletions included",
            Some(a_day as i64),
        );
    }
    let each = |name, help, value: fn(&JobStatus) -> Option<i64>, text: &mut Text| {
        text.each(name, help, "job", status.jobs.iter().map(|j| (j.name.as_str(), value(j))));
    };
    let success = |j: &JobStatus| j.last.as_ref().and_then(|s| s.last_success);
    each("sapwood_job_last_success_time_seconds", "Start of a job's last good run", success, &mut text);
    each("sapwood_job_failed", "Whether a job's last run failed", |j| Some(j.has_failed().into()), &mut text);
    let overdue = |j: &JobStatus| Some(j.overdue_since.is_some().into());
    each("sapwood_job_overdue", "Whether a job should have run and has not", overdue, &mut text);
    each("sapwood_job_running", "Whether a job runs now", |j| Some(j.is_running.into()), &mut text);
    text.0
}

struct Text(String);

impl Text {
    fn one(&mut self, name: &str, help: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.head(name, help);
            let _ = writeln!(self.0, "{name} {value}");
        }
    }

    fn each<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'a str, Option<i64>)>,
    ) {
        let mut values = values.filter_map(|(of, value)| Some((of, value?))).peekable();
        if values.peek().is_some() {
            self.head(name, help);
        }
        for (of, value) in values {
            let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}");
        }
    }

    fn head(&mut self, name: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} gauge");
    }
}
