//! Two runs at once, signals, and kills.

use super::*;
use common::{DONE, REFUSED};
use rustix::process::Signal;

const INTERRUPTED: i32 = 130;

/// A job whose hook `before` waits for the file `go`, at most until it is killed.
const WAITS: &str = r#"
[jobs.web]
schedule = "hourly"
before = "touch DIR/waits; while ! [ -e DIR/go ]; do sleep 0.01; done"
after = "echo $SAPWOOD_OUTCOME > DIR/after"
disks = { "web01/vda" = "DIR/a.raw" }
[jobs.zzz]
disks = { "b/x" = "DIR/b.raw" }
"#;

#[test]
fn a_job_runs_only_once_at_a_time() {
    let jobs = Jobs::new(WAITS);
    let first = jobs.start(&["run", "web"]);
    jobs.wait_for("waits");
    let process = first.pid().as_raw_nonzero();
    let second = jobs.run(&["run", "web"]);
    let said = format!("job web: is running already (process {process})");
    second.expect_failure(REFUSED, &[&said]);
    // A timer that ticks meanwhile finds the job where it should be.
    assert_eq!(jobs.done(&["run", "--due"]), "");
    let status = jobs.json(&["status"]);
    assert_eq!(
        (status["jobs"][0]["state"].as_str(), status["status"].as_str()),
        (Some("running"), Some("OK"))
    );
    jobs.bench.file("go", b"");
    first.wait().expect_done();
    jobs.done(&["run", "web"]);
    assert_eq!(jobs.bench.snapshots("web01/vda").len(), 2);
}

#[test]
fn a_signal_stops_the_run_in_order() {
    let jobs = Jobs::new(WAITS);
    let run = jobs.start(&["run"]);
    jobs.wait_for("waits");
    run.signal(Signal::TERM);
    let ended = run.wait();
    assert_eq!(ended.code(), Some(INTERRUPTED), "{ended}");
    assert!(ended.stderr.contains("the hook before was ended by signal 15"), "{ended}");
    assert_eq!(jobs.text("after"), "interrupted\n");
    assert_eq!(jobs.state("web")["outcome"], "interrupted");
    assert!(!jobs.state_file("zzz").exists(), "jobs after it are not begun");
    assert_eq!(jobs.bench.all_snapshots().len(), 0);
    // It is done again.
    jobs.bench.file("go", b"");
    jobs.done(&["run", "--due"]);
    assert_eq!(jobs.bench.all_snapshots().len(), 1);
}

/// A backup that is under way is ended, and disks after it are not begun.
#[test]
fn a_signal_during_a_backup_stops_the_run() {
    let jobs = Jobs::new(
        r#"
[jobs.web]
limit = "500k"
before = "touch DIR/begun"
after = "echo $SAPWOOD_OUTCOME > DIR/after"
disks = { "a/x" = "DIR/big.raw", "b/x" = "DIR/b.raw" }
"#,
    );
    jobs.bench.file("big.raw", &random(50_000_000, 5));
    let run = jobs.start(&["run"]);
    // The backup has the disk when its name is there.
    let start = Instant::now();
    while common::files_below(&jobs.bench.store.join("objects/names")).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60) && !run.has_ended(), "no backup begins");
        std::thread::sleep(Duration::from_millis(2));
    }
    run.signal(Signal::INT);
    let ended = run.wait();
    assert_eq!(ended.code(), Some(INTERRUPTED), "{ended}");
    assert_eq!(jobs.text("after"), "interrupted\n");
    assert_eq!(jobs.bench.all_snapshots().len(), 0);
    let state = jobs.state("web");
    assert_eq!(
        (state["outcome"].as_str(), state["disks"].as_array().unwrap().len()),
        (Some("interrupted"), 1)
    );
    assert_eq!(state["disks"][0]["outcome"], "interrupted");
}

#[test]
fn a_kill_leaves_a_state_without_an_end() {
    let jobs = Jobs::new(WAITS);
    let run = jobs.start(&["run", "web"]);
    jobs.wait_for("waits");
    run.signal(Signal::KILL);
    let start = Instant::now();
    while !run.has_ended() {
        assert!(start.elapsed() < Duration::from_secs(60), "the run is not killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    // The hook lives on, and has no lock.
    let state = jobs.state("web");
    assert!(state["ended"].is_null() && state["outcome"].is_null() && state["started"].is_i64(), "{state}");
    assert_eq!(jobs.json(&["status"])["jobs"][0]["state"], "killed");
    jobs.bench.file("go", b"");
    assert_eq!(run.wait().code(), None);
    let ended = jobs.run(&["run", "--due"]);
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    assert_eq!(jobs.state("web")["outcome"], "done");
}
