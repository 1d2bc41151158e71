//! `status`: its four exit codes, what it names, and the file for Prometheus.

use super::*;
use crate::common;
use crate::common::FAILED;

const OK: i32 = 0;
const WARNING: i32 = 1;
const CRITICAL: i32 = 2;
const UNKNOWN: i32 = 3;

/// Runs `status`. Returns its first line.
fn first_line(jobs: &Jobs, args: &[&str], code: i32) -> String {
    let ended = jobs.run(&[&["status"], args].concat());
    assert_eq!(ended.code(), Some(code), "{ended}");
    assert_eq!(ended.stderr, "", "{ended}");
    String::from_utf8(ended.stdout).unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn all_is_well() {
    let jobs = Jobs::new(TWO_DISKS);
    jobs.done(&["run"]);
    let line = first_line(&jobs, &[], OK);
    assert!(line.starts_with("SAPWOOD OK - 2 disks, 1 job, "), "{line}");
    assert!(line.contains(" free | disks=2 stored="), "{line}");
    let said = jobs.done(&["status"]);
    let snapshot = &jobs.bench.snapshots("web01/vda")[0];
    for words in ["web01/vda", "web01/vdb", &snapshot[..8], "done", "T02:30:00Z"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(jobs.done(&["-q", "status"]).lines().count(), 1);
    let json = jobs.json(&["status"]);
    assert_eq!((json["status"].as_str(), json["problems"].as_array().unwrap().len()), (Some("OK"), 0));
    assert_eq!(json["vault"]["disks"][0]["newest_snapshot"].as_str().unwrap(), snapshot);
    let stats = jobs.bench.json(&["stats"]);
    let stored = json["vault"]["stored_bytes"].as_u64().unwrap();
    assert!(stored > 600_000 && stored < 2_000_000, "{json} {stats}");
    assert!(json["vault"]["free_bytes"].as_u64().unwrap() > 0);
    assert_eq!(json["jobs"][0]["last"]["outcome"], "done");
}

/// The configuration is not needed.
#[test]
fn a_vault_alone_has_a_status() {
    let bench = Bench::new("balanced");
    bench.backup("a/x", &bench.file("a.raw", &random(1000, 1)));
    let said = String::from_utf8(bench.done(&["status"]).stdout).unwrap();
    assert!(said.starts_with("SAPWOOD OK - 1 disk, 0 jobs, ") && !said.contains("held"), "{said}");
    bench.done(&["hold", "a/x@latest"]);
    let said = String::from_utf8(bench.done(&["status"]).stdout).unwrap();
    assert!(said.contains("a/x: 1 snapshot held by users; `sapwood release"), "{said}");
}

#[test]
fn what_is_late_is_a_warning() {
    let jobs = Jobs::new(TWO_DISKS);
    let line = first_line(&jobs, &[], WARNING);
    assert!(line.starts_with("SAPWOOD WARNING - job web: overdue: it should have run at "), "{line}");
    jobs.done(&["run"]);
    first_line(&jobs, &[], OK);
    jobs.change_state("web", |s| s["started"] = (now() - 3 * 86_400).into());
    first_line(&jobs, &[], WARNING);
    // Three days late is allowed here.
    jobs.configure(&format!("{TWO_DISKS}overdue_after = \"8w\""));
    first_line(&jobs, &[], OK);
}

#[test]
fn an_old_snapshot_is_a_warning() {
    let jobs = Jobs::new("");
    let (a, b) = (jobs.bench.arg("a.raw"), jobs.bench.arg("b.raw"));
    jobs.bench.done(&["-q", "backup", "old/x", &a, "--time", "2026-01-01T00:00"]);
    jobs.bench.done(&["-q", "backup", "new/x", &b]);
    first_line(&jobs, &[], OK);
    let line = first_line(&jobs, &["--warn-age", "48h"], WARNING);
    assert!(line.contains("old/x: newest snapshot is ") && !line.contains("new/x"), "{line}");
    assert!(line.contains("2026-01-01T00:00:00Z"), "{line}");
    // A job says otherwise for its disks; that of a machine, too.
    let job = "[jobs.x]\nwarn_age = \"9999w\"\ndisks = { old = \"libvirt:old\" }";
    jobs.configure(job);
    first_line(&jobs, &["--warn-age", "48h"], OK);
    jobs.configure(&job.replace("9999w", "48h"));
    first_line(&jobs, &[], WARNING);
    // And that of all machines that fit a pattern.
    jobs.configure("[jobs.x]\nwarn_age = \"9999w\"\ndisks = { \"*\" = \"libvirt:o*\" }");
    first_line(&jobs, &["--warn-age", "48h"], OK);
}

#[test]
fn a_failed_job_is_critical() {
    let jobs = Jobs::new(
        r#"
[jobs.bad]
disks = { "a/x" = "DIR/missing.raw", "b/x" = "DIR/missing.raw" }
[jobs.late]
schedule = "hourly"
disks = { "c/x" = "DIR/b.raw" }
"#,
    );
    assert_eq!(jobs.run(&["run", "bad"]).code(), Some(FAILED));
    let line = first_line(&jobs, &[], CRITICAL);
    assert!(line.starts_with("SAPWOOD CRITICAL - job bad: failed: a/x: "), "{line}");
    assert!(line.contains("and 1 more") && line.contains("job late: overdue"), "{line}");
    let json = jobs.json(&["status"]);
    let levels: Vec<&str> =
        json["problems"].as_array().unwrap().iter().map(|p| p["status"].as_str().unwrap()).collect();
    assert_eq!(levels, ["CRITICAL", "WARNING"]);
}

#[test]
fn damage_is_critical() {
    let jobs = Jobs::new(TWO_DISKS);
    jobs.done(&["run"]);
    let data = &jobs.bench.data_objects()[0];
    let mut bytes = std::fs::read(data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(data, bytes).unwrap();
    // It is not known before it is found.
    first_line(&jobs, &[], OK);
    jobs.bench.run(&["verify", "--data"]);
    let line = first_line(&jobs, &[], CRITICAL);
    assert!(
        line.contains("web01/vd") && line.contains("1 damaged container; `sapwood verify web01/vd"),
        "{line}"
    );
    // A manifest that cannot be read hides nothing else.
    let manifests = common::files_below(&jobs.bench.store.join("objects/disks"));
    let manifest = manifests.iter().find(|f| f.ends_with("manifest")).unwrap();
    std::fs::write(manifest, b"x").unwrap();
    let json = jobs.json(&["status"]);
    assert_eq!(json["vault"]["damage"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(json["vault"]["disks"].as_array().unwrap().len(), 1, "{json}");
}

#[test]
fn a_vault_that_cannot_be_read_is_unknown() {
    let jobs = Jobs::new(TWO_DISKS);
    jobs.done(&["run"]);
    std::fs::rename(jobs.bench.path("vault"), jobs.bench.path("away")).unwrap();
    let line = first_line(&jobs, &[], UNKNOWN);
    assert!(line.starts_with("SAPWOOD UNKNOWN - ") && line.contains("/vault"), "{line}");
    let json = jobs.json(&["status"]);
    assert!(json["vault"].is_null() && json["jobs"][0]["state"] == "done", "{json}");
    // So is a configuration that cannot be understood; it is said once.
    jobs.configure("x = 1");
    let line = first_line(&jobs, &[], UNKNOWN);
    assert_eq!(line.matches("sapwood.toml").count(), 1, "{line}");
}

#[test]
fn who_has_a_disk_is_named() {
    let jobs = Jobs::new("[jobs.slow]\nlimit = \"500k\"\ndisks = { \"a/x\" = \"DIR/big.raw\" }");
    jobs.bench.file("big.raw", &random(50_000_000, 5));
    let run = jobs.start(&["run"]);
    let process = u64::try_from(run.pid().as_raw_nonzero().get()).unwrap();
    let start = Instant::now();
    let session = loop {
        let sessions = jobs.json(&["status"])["vault"]["sessions"].clone();
        match &sessions[0] {
            session if session["work"] == "backup" && session["disk"].is_string() => break session.clone(),
            _ => assert!(start.elapsed() < Duration::from_secs(60), "no session is listed: {sessions}"),
        }
    };
    assert_eq!(session["disk"], "a/x");
    assert_eq!(session["process"], process);
    assert!((now() - session["since"].as_i64().unwrap()).abs() < 600, "{session}");
    let said = String::from_utf8(jobs.run(&["status"]).stdout).unwrap();
    assert!(said.contains("a/x: locked by a backup (host "), "{said}");
    run.signal(rustix::process::Signal::KILL);
    run.wait();
    let sessions = jobs.json(&["status"])["vault"]["sessions"].clone();
    assert_eq!(sessions.as_array().unwrap().len(), 0, "a dead session holds nothing");
}

#[test]
fn prometheus_has_the_same_figures() {
    let jobs = Jobs::new(TWO_DISKS);
    jobs.done(&["run"]);
    let file = jobs.bench.arg("sapwood.prom");
    jobs.done(&["status", "--prometheus", &file]);
    let text = jobs.text("sapwood.prom");
    let newest = jobs.json(&["status"])["vault"]["disks"][0]["newest_time"].clone();
    for line in [
        "sapwood_status 0\n",
        &format!("sapwood_newest_snapshot_time_seconds{{disk=\"web01/vda\"}} {newest}\n"),
        "sapwood_snapshots{disk=\"web01/vdb\"} 1\n",
        "sapwood_job_failed{job=\"web\"} 0\n",
        "sapwood_job_overdue{job=\"web\"} 0\n",
        "# TYPE sapwood_stored_bytes gauge\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!jobs.bench.path("sapwood.prom.tmp").exists());
    // Where the vault cannot be read, the file says so; old figures do not stay.
    std::fs::rename(jobs.bench.path("vault"), jobs.bench.path("away")).unwrap();
    first_line(&jobs, &["--prometheus", &file], UNKNOWN);
    let text = jobs.text("sapwood.prom");
    assert!(text.contains("sapwood_status 3\n") && !text.contains("disk="), "{text}");
    let ended = jobs.run(&["status", "--prometheus", "/none/x.prom"]);
    ended.expect_failure(UNKNOWN, &["/none/x.prom: cannot write"]);
}

/// Jobs keep the vault's size, so that deletions count too.
#[test]
fn growth_is_what_all_commands_left() {
    let jobs = Jobs::new(TWO_DISKS);
    jobs.done(&["run"]);
    assert!(jobs.json(&["status"])["growth"].is_null());
    let file = jobs.bench.path("state/vault-sizes.jsonl");
    let kept = std::fs::read_to_string(&file).unwrap();
    let mut point: Value = serde_json::from_str(kept.trim()).unwrap();
    let stored = jobs.json(&["status"])["vault"]["stored_bytes"].as_u64().unwrap();
    // The state of the job is newer by nothing: it is not in the vault.
    assert_eq!(point["stored_bytes"].as_u64(), Some(stored), "{kept}");
    // Ten days ago there was half of it; a second run on the same day keeps nothing.
    point["time"] = (now() - 10 * 86_400).into();
    point["stored_bytes"] = (stored / 2).into();
    std::fs::write(&file, format!("{point}\n")).unwrap();
    jobs.done(&["run"]);
    jobs.done(&["run"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().filter(|l| !l.is_empty()).count(), 2);
    let json = jobs.json(&["status"]);
    let stored_now = json["vault"]["stored_bytes"].as_u64().unwrap();
    let (growth, free) = (&json["growth"], json["vault"]["free_bytes"].as_u64().unwrap());
    assert_eq!(growth["bytes"].as_u64(), Some(stored_now - stored / 2), "{json}");
    assert!((864_000..864_100).contains(&growth["seconds"].as_i64().unwrap()), "{json}");
    let lasts = growth["free_space_lasts_seconds"].as_f64().unwrap();
    let expected = free as f64 * 864_000.0 / (stored_now - stored / 2) as f64;
    assert!((lasts / expected - 1.0).abs() < 0.01, "{lasts} {expected}");
    let said = jobs.done(&["status"]);
    assert!(said.contains(" larger than 10 d ago; at this rate the free space lasts "), "{said}");
    // A vault that has shrunk lasts.
    point["stored_bytes"] = (stored_now * 3).into();
    std::fs::write(&file, format!("{point}\n")).unwrap();
    let said = jobs.done(&["status"]);
    assert!(said.contains(" smaller than 10 d ago\n"), "{said}");
    // Who cannot read it sees no growth, and no failure.
    std::fs::write(&file, [0xff; 100]).unwrap();
    assert!(jobs.json(&["status"])["growth"].is_null());
}

/// A disk whose snapshots are all gone, and one whose snapshot is of next year, are not well.
#[test]
fn empty_disks_and_times_to_come_are_warnings() {
    let bench = Bench::new("balanced");
    let file = bench.file("a.raw", &random(1000, 1));
    bench.backup("a/x", &file);
    bench.backup("b/x", &file);
    bench.done(&["delete", "a/x@latest"]);
    let first = |args: &[&str]| {
        let ended = bench.run(args);
        (ended.code(), String::from_utf8(ended.stdout).unwrap().lines().next().unwrap().to_owned())
    };
    let (code, line) = first(&["status", "--warn-age", "1h"]);
    assert!(code == Some(WARNING) && line.contains("a/x: has no snapshot"), "{line}");
    bench.done(&["remove", "a/x", "--yes"]);
    assert_eq!(first(&["status", "--warn-age", "1h"]).0, Some(OK));
    let year = 365 * 86_400;
    let to_come = vault::format_time(now() + year).to_string();
    bench.done(&["backup", "b/x", &file, "--time", &to_come, "--force"]);
    let (code, line) = first(&["status", "--warn-age", "1h"]);
    assert!(code == Some(WARNING) && line.contains("in the future"), "{line}");
    let ended = bench.run(&["backup", "b/x", &file]);
    assert!(ended.code() == Some(0) && ended.stderr.contains("in the future"), "{ended}");
}
