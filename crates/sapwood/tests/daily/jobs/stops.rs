//! Two runs at once, signals, and kills.

use super::*;
use crate::common;
use crate::common::{DONE, FAILED, REFUSED, USAGE};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;

const INTERRUPTED: i32 = 130;

/// A job whose command `before` waits for the file `go`, at most until it is killed.
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
    let said = format!("job web: is running already, by process {process} (sapwood, since 2");
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
    assert!(ended.stderr.contains("the command before was ended by signal 15"), "{ended}");
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
    // The command lives on, and has no lock.
    let state = jobs.state("web");
    assert!(state["ended"].is_null() && state["outcome"].is_null() && state["started"].is_i64(), "{state}");
    assert_eq!(jobs.json(&["status"])["jobs"][0]["state"], "killed");
    jobs.bench.file("go", b"");
    assert_eq!(run.wait().code(), None);
    let ended = jobs.run(&["run", "--due"]);
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    assert_eq!(jobs.state("web")["outcome"], "done");
}

/// A command that hangs must not keep the backups of all nights to come from running.
#[test]
fn a_command_has_a_time_limit() {
    let jobs = Jobs::new(
        r#"
[jobs.web]
command_timeout = "1s"
before = "sleep 1000 & echo $! >DIR/sleeping; wait"
after = "echo $SAPWOOD_OUTCOME >DIR/after"
disks = { "a/x" = "DIR/a.raw" }
"#,
    );
    let ended = jobs.run(&["run"]);
    ended.expect_failure(FAILED, &["job web: ", "the command before", "command_timeout"]);
    assert_eq!(jobs.bench.snapshots("a/x").len(), 0, "nothing is backed up");
    assert_eq!(jobs.text("after"), "failed\n");
    // With all that it has started.
    let pid = jobs.text("sleeping");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    for wrong in ["0s", "1", "1d", "x"] {
        jobs.configure(&format!(
            "[jobs.a]\ncommand_timeout = '{wrong}'\ndisks = {{ 'a/x' = 'DIR/a.raw' }}\n"
        ));
        jobs.run(&["config", "check"]).expect_failure(USAGE, &["command_timeout", "90s, 10m, 2h"]);
    }
}

/// Commands run with the rights of whoever runs the job: others must not be able to write them.
#[test]
fn hooks_that_others_may_write_are_refused() {
    let jobs = Jobs::new("[jobs.web]\nbefore = \"touch DIR/ran\"\ndisks = { \"a/x\" = \"DIR/a.raw\" }\n");
    let chmod = |name: &str, mode| {
        std::fs::set_permissions(jobs.bench.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |why: &str| {
        for args in [&["run"][..], &["run", "--due"], &["config", "check"]] {
            jobs.run(args).expect_failure(REFUSED, &["sapwood.toml", "has commands", why]);
        }
        assert!(!jobs.bench.path("ran").exists());
    };
    chmod("sapwood.toml", 0o666);
    refused("all users");
    chmod("sapwood.toml", 0o664);
    refused("its group");
    chmod("sapwood.toml", 0o644);
    chmod("", 0o777);
    refused("others may replace it");
    // Only its owner can replace a file there.
    chmod("", 0o1777);
    jobs.done(&["run"]);
    assert!(jobs.bench.path("ran").exists());
    // Without one nobody's command is run.
    jobs.configure("[jobs.web]\ndisks = { \"a/x\" = \"DIR/a.raw\" }\n");
    chmod("sapwood.toml", 0o666);
    jobs.done(&["run"]);
}
