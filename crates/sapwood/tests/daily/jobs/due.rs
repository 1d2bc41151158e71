//! `run --due`: what is due, what is caught up, what is not done twice.

use super::*;
use crate::common::FAILED;

/// How many snapshots `run --due` has made so far.
fn count_after_due(jobs: &Jobs) -> usize {
    jobs.done(&["run", "--due"]);
    jobs.bench.snapshots("web01/vda").len()
}

#[test]
fn a_job_runs_once_for_each_due_time() {
    let jobs = Jobs::new(TWO_DISKS);
    assert_eq!(count_after_due(&jobs), 1, "a job that never ran is due");
    assert_eq!(count_after_due(&jobs), 1, "it ran since its last due time");
    assert_eq!(jobs.done(&["run", "--due"]), "", "cron sends no mail");
    // The machine was off for three days: one run catches up.
    jobs.change_state("web", |s| s["started"] = (now() - 3 * 86_400).into());
    assert_eq!(count_after_due(&jobs), 2);
    assert_eq!(count_after_due(&jobs), 2);
    // By name it runs whenever it is told to.
    jobs.done(&["run", "web"]);
    assert_eq!(count_after_due(&jobs), 3);
}

#[test]
fn a_failed_run_counts_and_a_killed_one_does_not() {
    let jobs = Jobs::new(TWO_DISKS);
    let runs = [
        (serde_json::json!("failed"), 0),
        (serde_json::json!("done"), 0),
        (serde_json::json!("interrupted"), 1),
        (Value::Null, 1),
    ];
    let mut expected = count_after_due(&jobs);
    for (outcome, more) in runs {
        jobs.change_state("web", |s| s["outcome"] = outcome.clone());
        expected += more;
        assert_eq!(count_after_due(&jobs), expected, "{outcome}");
    }
}

#[test]
fn a_state_that_makes_no_sense_delays_nothing() {
    let jobs = Jobs::new(TWO_DISKS);
    count_after_due(&jobs);
    // The clock was wrong when it ran.
    jobs.change_state("web", |s| s["started"] = (now() + 400 * 86_400).into());
    assert_eq!(count_after_due(&jobs), 2);
    std::fs::write(jobs.state_file("web"), "{").unwrap();
    let ended = jobs.run(&["run", "--due"]);
    ended.expect_one_line(&["job web: ", "web.json: not the state of a job", "it counts as never run"]);
    assert_eq!(jobs.bench.snapshots("web01/vda").len(), 3);
}

#[test]
fn a_job_without_a_schedule_is_never_due() {
    let jobs = Jobs::new("[jobs.x]\ndisks = { \"a/x\" = \"DIR/a.raw\" }");
    jobs.done(&["run", "--due"]);
    assert_eq!(jobs.bench.all_snapshots().len(), 0);
    jobs.done(&["run"]);
    assert_eq!(jobs.bench.all_snapshots().len(), 1);
}

/// One job that fails keeps no other from its time.
#[test]
fn all_due_jobs_have_their_turn() {
    let jobs = Jobs::new(
        r#"
[defaults]
schedule = "every 4h"
[jobs.first]
disks = { "a/x" = "DIR/missing.raw" }
[jobs.second]
disks = { "b/x" = "DIR/b.raw" }
"#,
    );
    let ended = jobs.run(&["run", "--due"]);
    ended.expect_failure(FAILED, &["job first: ", "missing.raw"]);
    assert_eq!(jobs.bench.snapshots("b/x").len(), 1);
}
