//! How a job stands.

use super::level::{Level, Problem};
use crate::jobs::due::overdue_since;
use crate::jobs::settings::Job;
use crate::jobs::state::{JobState, Outcome, StateDir};
use crate::terminal::outcome::one_line;

/// A run that takes longer probably hangs: seconds. First backups of large disks take as long.
const HANGS_AFTER: i64 = 24 * 3600;

/// A job and its last run.
pub struct JobStatus {
    pub name: String,
    /// `None` if there was no run, or if the state cannot be read.
    pub last: Option<JobState>,
    /// Whether a process runs it now.
    pub is_running: bool,
    /// When it should have run and has not.
    pub overdue_since: Option<i64>,
    pub next_due: Option<i64>,
    /// The same for people, in the job's zone.
    pub next_due_text: String,
    overdue_text: String,
    /// For how many seconds it has been running, if that is long.
    hangs_since: Option<i64>,
    /// Why its state cannot be read.
    unreadable: Option<String>,
}

impl JobStatus {
    pub fn of(job: &Job, states: &StateDir, now: i64) -> JobStatus {
        // The lock first: a run that ends in between has written its state.
        let is_running = states.is_running(&job.name);
        let (last, unreadable) = match states.read(&job.name) {
            Ok(last) => (last, None),
            Err(e) => (None, Some(one_line(&e))),
        };
        let overdue_since = overdue_since(job, last.as_ref(), now).filter(|_| !is_running);
        let running_for = last.as_ref().filter(|_| is_running).map(|s| now - s.started);
        let hangs_since = running_for.filter(|seconds| *seconds > HANGS_AFTER);
        let next_due = job.schedule.as_ref().and_then(|s| s.next(now, job.zone.rules()));
        let show = |time: Option<i64>| time.map(|t| job.zone.show(t)).unwrap_or_default();
        JobStatus {
            name: job.name.clone(),
            last,
            is_running,
            overdue_since,
            next_due,
            next_due_text: show(next_due),
            overdue_text: show(overdue_since),
            hangs_since,
            unreadable,
        }
    }

    /// The worst thing there is to say of it.
    pub fn problem(&self) -> Option<Problem> {
        let problem =
            |level, what: String| Some(Problem { level, what: format!("job {}: {what}", self.name) });
        if let Some(why) = &self.unreadable {
            return problem(Level::Unknown, why.clone());
        }
        if self.has_failed() {
            let why = self.last.as_ref().map(|s| s.failures.as_slice()).unwrap_or_default();
            let more = match why.len() {
                0 | 1 => String::new(),
                n => format!(", and {} more", n - 1),
            };
            let why = why.first().map(String::as_str).unwrap_or_default();
            return problem(Level::Critical, format!("failed: {why}{more}"));
        }
        if let Some(since) = self.hangs_since {
            return problem(Level::Warning, format!("has been running for more than {} hours", since / 3600));
        }
        self.overdue_since?;
        problem(Level::Warning, format!("overdue: it should have run at {}", self.overdue_text))
    }

    /// Whether the last run that ended by itself failed.
    pub fn has_failed(&self) -> bool {
        self.last.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Failed))
    }

    /// The state in one word.
    pub fn word(&self) -> &'static str {
        match &self.last {
            _ if self.is_running => "running",
            None => "never run",
            Some(JobState { outcome: Some(outcome), .. }) => outcome.name(),
            Some(_) => "killed",
        }
    }
}
