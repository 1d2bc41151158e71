//! What came of a run of a job.

use crate::commands::backup::DiskReport;
use crate::jobs::state::{DiskState, JobState, Outcome};
use crate::terminal::outcome::one_line;
use serde_json::{json, Value};
use vault::{now, VaultError};

/// A run of a job, as far as it is.
pub struct JobReport {
    pub state: JobState,
    /// The backups as `sapwood backup --json` has them, in the order of the disks of the state; null if there
    /// is none.
    backups: Vec<Value>,
    pub copied_snapshots: u64,
    pub deleted_snapshots: u64,
    /// Disks that were verified.
    pub verified_disks: u64,
    pub freed_bytes: u64,
    /// Bytes of containers that were to be compressed again when the time for it was over.
    pub left_bytes: u64,
}

impl JobReport {
    /// Begins now.
    pub fn begin(job: &str, store: &str, last_success: Option<i64>) -> JobReport {
        let state = JobState {
            job: job.to_owned(),
            store: store.to_owned(),
            process: std::process::id(),
            started: now(),
            ended: None,
            outcome: None,
            failures: Vec::new(),
            disks: Vec::new(),
            last_success,
        };
        JobReport {
            state,
            backups: Vec::new(),
            copied_snapshots: 0,
            deleted_snapshots: 0,
            verified_disks: 0,
            freed_bytes: 0,
            left_bytes: 0,
        }
    }

    /// A disk has its snapshot.
    pub fn stored(&mut self, made: &DiskReport) {
        let snapshot = Some(made.report.snapshot.id.to_string());
        let state = DiskState { disk: made.disk.clone(), outcome: Outcome::Done, snapshot, why: None };
        self.state.disks.push(state);
        self.backups.push(made.json());
    }

    /// A disk has none. Returns what is said of it.
    pub fn not_stored(&mut self, disk: &str, e: &anyhow::Error) -> String {
        let why = one_line(e);
        let why = if why.starts_with(disk) { why } else { format!("{disk}: {why}") };
        let outcome = outcome_of(e);
        let state = DiskState { disk: disk.to_owned(), outcome, snapshot: None, why: Some(why.clone()) };
        self.state.disks.push(state);
        self.backups.push(Value::Null);
        self.note(outcome, why.clone());
        why
    }

    /// Something else failed, or was interrupted.
    pub fn note(&mut self, outcome: Outcome, why: String) {
        self.state.failures.push(why);
        // What failed by itself is worth more than that somebody has stopped the rest.
        if self.state.outcome != Some(Outcome::Failed) {
            self.state.outcome = Some(outcome);
        }
    }

    /// What has come of it so far.
    pub fn outcome(&self) -> Outcome {
        self.state.outcome.unwrap_or(Outcome::Done)
    }

    /// Ends now.
    pub fn end(&mut self) {
        self.state.outcome = Some(self.outcome());
        self.state.ended = Some(now());
        if self.outcome() == Outcome::Done {
            self.state.last_success = Some(self.state.started);
        }
    }

    /// How many disks there are of each outcome: done, others.
    pub fn counts(&self) -> (usize, usize) {
        let done = self.state.disks.iter().filter(|d| d.outcome == Outcome::Done).count();
        (done, self.state.disks.len() - done)
    }

    pub fn json(&self) -> Value {
        let disk = |(d, backup): (&DiskState, &Value)| {
            json!({
                "disk": d.disk, "outcome": d.outcome.name(), "snapshot": d.snapshot, "why": d.why, "backup": backup,
            })
        };
        let s = &self.state;
        json!({
            "job": s.job,
            "outcome": self.outcome().name(),
            "started": s.started,
            "ended": s.ended,
            "failures": s.failures,
            "disks": s.disks.iter().zip(&self.backups).map(disk).collect::<Vec<_>>(),
            "copied_snapshots": self.copied_snapshots,
            "deleted_snapshots": self.deleted_snapshots,
            "verified_disks": self.verified_disks,
            "freed_bytes": self.freed_bytes,
            "left_to_recompress_bytes": self.left_bytes,
        })
    }
}

/// What an error makes of a run.
pub fn outcome_of(e: &anyhow::Error) -> Outcome {
    match e.downcast_ref::<VaultError>() {
        Some(VaultError::Cancelled) => Outcome::Interrupted,
        _ => Outcome::Failed,
    }
}
