//! The report of `sapwood backup` on each disk.

use crate::terminal::output::{rate, size};
use crate::terminal::streams::{errln, outln, toldln};
use crate::times;
use serde_json::{json, Value};
use vault::{format_time, BackupReport, Scan, SnapshotEntry};

/// A snapshot and how its backup went.
pub struct DiskReport {
    pub disk: String,
    pub report: BackupReport,
    pub source_format: &'static str,
    pub consistency: Option<Consistency>,
    pub seconds: f64,
}

/// What a snapshot of a running machine is.
#[derive(Clone)]
pub struct Consistency {
    /// `application` or `crash`.
    pub kind: &'static str,
    /// Why the guest was not frozen, although an agent was named.
    pub not_frozen: Option<String>,
}

impl Consistency {
    /// That of a guest whose file systems were frozen, or were not.
    pub fn of(is_frozen: bool, not_frozen: Option<String>) -> Consistency {
        Consistency { kind: if is_frozen { "application" } else { "crash" }, not_frozen }
    }

    /// The tag of its snapshots.
    pub fn tag(&self) -> (String, String) {
        ("consistency".into(), self.kind.into())
    }
}

impl DiskReport {
    pub fn json(&self) -> Value {
        let (report, s) = (&self.report, &self.report.snapshot);
        json!({
            "disk": self.disk,
            "snapshot": s.id.to_string(),
            "time": s.time,
            "parent": s.parent.map(|p| p.to_string()),
            "source_format": self.source_format,
            "consistency": self.consistency.as_ref().map(|c| c.kind),
            "not_frozen": self.consistency.as_ref().and_then(|c| c.not_frozen.as_ref()),
            "policy": s.policy,
            "size": s.size,
            "data_bytes": s.data_bytes,
            "changed_bytes": s.changed_bytes,
            "new_bytes": s.new_bytes,
            "rewritten_bytes": report.rewritten_bytes,
            "scan": scan_json(&report.scan),
            "stored_bytes": s.stored_bytes,
            "source_bytes": {
                "read": report.source.read,
                "hashed": report.source.hashed,
                "known": report.source.known,
            },
            "seconds": self.seconds,
            "stage_seconds": {
                "read": report.stages.read,
                "analyse": report.stages.analyse,
                "look_up": report.stages.look_up,
                "place": report.stages.place,
                "pack": report.stages.pack,
                "write": report.stages.write,
                "sync": report.stages.sync,
            },
            "reverse": {
                "snapshot_count": report.reverse.snapshots,
                "redirected_chunks": report.reverse.redirected_chunks,
                "compacted_containers": report.reverse.compacted,
                "freed_bytes": report.reverse.freed_bytes,
                "held_up": report.reverse.held_up,
                "seconds": report.reverse_seconds,
            },
        })
    }

    /// What came of it, in one line.
    pub fn line(&self) -> String {
        let s = &self.report.snapshot;
        let again = match self.report.rewritten_bytes {
            0 => String::new(),
            bytes => format!(" and {} written again", size(bytes)),
        };
        let read = match &self.report.scan {
            Scan::Whole => String::new(),
            Scan::Changed { bytes } => format!("; read: {}, what may have changed", size(*bytes)),
            Scan::WholeAlthough(why) => format!("; read: all of it: {why}"),
        };
        format!(
            "{}@{}: {} ({} not zero), {} changed, {} new{again}, {} stored, {:.1} s, {}{read}",
            self.disk,
            s.id,
            size(s.size),
            size(s.data_bytes),
            size(s.changed_bytes),
            size(s.new_bytes),
            size(s.stored_bytes),
            self.seconds,
            rate(s.size, self.seconds),
        )
    }

    pub fn print(&self, quiet: bool) {
        toldln!(quiet, "{}", self.line());
        if let Some(why) = self.consistency.as_ref().and_then(|c| c.not_frozen.as_ref()) {
            outln!("crash-consistent: the guest was not frozen: {why}");
        }
        // The backup is whole; the next one, or `gc`, does the rest.
        if let Some(why) = &self.report.reverse.held_up {
            outln!("chunks that older snapshots share with it are removed later: {why}");
        }
    }
}

/// Says so if the newest snapshot of a disk is of a time to come: what is stored now is not the latest then.
pub fn warn_of_future(disk: &str, newest: Option<&SnapshotEntry>) {
    if let Some(newest) = newest.filter(|s| times::is_future(s.time)) {
        errln!(
            "sapwood: {disk}: its snapshot {0} is of {1}, in the future: what is stored now is not the latest; if that time is \
             wrong, delete {disk}@{0}",
            newest.id,
            format_time(newest.time)
        );
    }
}

fn scan_json(scan: &Scan) -> Value {
    let (kind, bytes, why) = match scan {
        Scan::Whole => ("whole", None, None),
        Scan::WholeAlthough(why) => ("whole", None, Some(why)),
        Scan::Changed { bytes } => ("changed", Some(bytes), None),
    };
    json!({ "kind": kind, "bytes": bytes, "why": why })
}
