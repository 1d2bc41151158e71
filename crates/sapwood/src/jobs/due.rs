//! Whether a job is due, and whether it is overdue.

use super::settings::Job;
use super::state::{JobState, Outcome};

/// Whether the last run counts: it ended by itself, and not in the future. One that was killed or interrupted
/// is done again; with a clock that was put back nothing can be said.
fn last_run(state: Option<&JobState>, now: i64) -> Option<&JobState> {
    let ended = |s: &&JobState| matches!(s.outcome, Some(Outcome::Done | Outcome::Failed));
    state.filter(ended).filter(|s| s.started <= now)
}

/// Whether a job is due: its last run began before the last due time. A job that never ran is due.
pub fn is_due(job: &Job, state: Option<&JobState>, now: i64) -> bool {
    let Some(schedule) = &job.schedule else { return false };
    match (last_run(state, now), schedule.previous(now, job.zone.rules())) {
        (None, _) => true,
        (Some(last), Some(due)) => last.started < due,
        (Some(_), None) => false,
    }
}

/// When a job should have run and has not, in seconds since 1970; `None` where it is in time, or not late
/// enough to tell. A job that never ran is overdue since a due time in the past.
pub fn overdue_since(job: &Job, state: Option<&JobState>, now: i64) -> Option<i64> {
    let late = now.saturating_sub_unsigned(job.overdue_after);
    let due = job.schedule.as_ref()?.previous(late, job.zone.rules())?;
    let is_missed = last_run(state, now).is_none_or(|last| last.started < due);
    is_missed.then_some(due)
}
