//! What a run does, says and keeps.

use super::*;
use crate::common::{files_below, DAMAGED, DONE, FAILED};

#[test]
fn a_run_backs_all_disks_up_and_keeps_what_came_of_it() {
    let jobs = Jobs::new(TWO_DISKS);
    let said = jobs.done(&["run"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].starts_with("web01/vda@") && lines[1].starts_with("web01/vdb@"), "{said}");
    assert!(lines[2].starts_with("1 job, 0 failed; 2 disks backed up, 0 not; "), "{said}");
    let state = jobs.state("web");
    assert_eq!((state["job"].as_str(), state["outcome"].as_str()), (Some("web"), Some("done")));
    assert_eq!(state["disks"][0]["snapshot"].as_str().unwrap(), jobs.bench.snapshots("web01/vda")[0]);
    assert_eq!(state["last_success"], state["started"]);
    assert!((now() - state["ended"].as_i64().unwrap()).abs() < 600, "{state}");
    assert_eq!(jobs.bench.restored("web01/vdb"), random(300_000, 2));
    let quiet = jobs.done(&["-q", "run"]);
    assert_eq!(quiet, "");
}

#[test]
fn a_failed_disk_does_not_stop_the_others() {
    let jobs = Jobs::new(
        r#"
[jobs.mixed]
retain = { last = 1 }
disks = { "a/x" = "DIR/a.raw", "b/x" = "DIR/missing.raw", "c/x" = "DIR/b.raw" }
[jobs.other]
disks = { "d/x" = "DIR/a.raw" }
"#,
    );
    let ended = jobs.run(&["run"]);
    ended.expect_failure(FAILED, &["job mixed: ", "missing.raw"]);
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("2 jobs, 1 failed; 3 disks backed up, 1 not; "), "{said}");
    let state = jobs.state("mixed");
    let outcomes: Vec<&str> =
        state["disks"].as_array().unwrap().iter().map(|d| d["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["done", "failed", "done"]);
    assert!(state["disks"][1]["why"].as_str().unwrap().contains("missing.raw"), "{state}");
    assert!(state["last_success"].is_null() && state["outcome"] == "failed", "{state}");
    assert_eq!(jobs.state("other")["outcome"], "done");
    // A run that is good again says so, and a later failure keeps when that was.
    jobs.bench.file("missing.raw", &random(1000, 3));
    jobs.done(&["run", "mixed"]);
    let good = jobs.state("mixed")["last_success"].clone();
    assert!(good.is_i64());
    std::fs::remove_file(jobs.bench.path("missing.raw")).unwrap();
    assert_eq!(jobs.run(&["run", "mixed"]).code(), Some(FAILED));
    assert_eq!(jobs.state("mixed")["last_success"], good);
    assert_eq!(["a/x", "b/x", "c/x"].map(|disk| jobs.bench.snapshots(disk).len()), [1, 1, 1]);
}

/// A job that meets damage has failed, though its disks are backed up.
#[test]
fn damage_that_its_backups_meet_is_a_failure() {
    let jobs = Jobs::new(TWO_DISKS);
    jobs.done(&["run"]);
    let objects = files_below(&jobs.bench.store.join("objects"));
    let pages = objects.iter().find(|file| file.extension().is_some_and(|e| e == "pages")).unwrap();
    std::fs::remove_file(pages).unwrap();
    let ended = jobs.run(&["run"]);
    ended.expect_failure(FAILED, &["job web: ", ": the vault is damaged: "]);
    let state = jobs.state("web");
    let outcomes = state["disks"].as_array().unwrap().iter().map(|d| d["outcome"].as_str().unwrap());
    assert_eq!(outcomes.collect::<Vec<_>>(), ["done", "done"]);
    assert!(state["failures"][0].as_str().unwrap().contains(".pages"), "{state}");
    assert_eq!(jobs.bench.restored("web01/vda"), random(300_000, 1));
    assert_eq!(jobs.bench.restored("web01/vdb"), random(300_000, 2));
}

#[test]
fn json_is_one_object_whatever_hooks_print() {
    let jobs = Jobs::new(
        r#"
[jobs.web]
before = "echo from the command"
disks = { "a/x" = "DIR/a.raw", "b/x" = "DIR/missing.raw" }
"#,
    );
    let ended = jobs.run(&["--json", "run"]);
    assert_eq!(ended.code(), Some(FAILED), "{ended}");
    assert!(ended.stderr.contains("from the command"), "{ended}");
    let json = ended.json();
    let job = &json["jobs"][0];
    assert_eq!((json["outcome"].as_str(), job["outcome"].as_str()), (Some("failed"), Some("failed")));
    assert_eq!(job["disks"][0]["backup"]["snapshot"], job["disks"][0]["snapshot"]);
    assert!(job["disks"][1]["backup"].is_null() && job["disks"][1]["why"].is_string(), "{job}");
    assert_eq!(job["failures"].as_array().unwrap().len(), 1);
}

#[test]
fn settings_have_their_effect() {
    let jobs = Jobs::new(
        r#"
[defaults]
tags = { site = "a", by = "defaults" }
retain = { last = 2 }
gc = true
[jobs.web]
tags = { by = "job" }
limit = "100M"
isolate = true
codec = "none"
policy = "conventional"
verify = "data"
disks = { "a/x" = { source = "DIR/a.raw", source_format = "raw" } }
"#,
    );
    for version in 0..4 {
        jobs.bench.file("a.raw", &random(200_000, 10 + version));
        jobs.done(&["run"]);
    }
    let listed = jobs.bench.json(&["snapshots"]);
    let all = listed["snapshots"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{listed}");
    assert_eq!((all[1]["tags"]["site"].as_str(), all[1]["tags"]["by"].as_str()), (Some("a"), Some("job")));
    assert_eq!(all[1]["policy"], "conventional");
    assert!(all[1]["stored_bytes"].as_u64() >= Some(200_000), "{listed}");
    let json = jobs.json(&["run"]);
    assert_eq!(json["jobs"][0]["deleted_snapshots"], 1);
}

#[test]
fn a_job_compresses_again() {
    let jobs = Jobs::new(
        "[jobs.web]\nrecompress = 9\nrecompress_for = '10m'\ncodec = 'lz4'\ndisks = { 'a/x' = 'DIR/a.raw', 'b/x' = 'DIR/b.raw' }\n",
    );
    let text = |from: u32| {
        (from..from + 200_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect::<Vec<_>>()
    };
    jobs.bench.file("a.raw", &text(0));
    jobs.bench.file("b.raw", &text(500_000));
    jobs.bench.done(&["backup", "c/x", &jobs.bench.arg("b.raw"), "--isolate", "--codec", "lz4"]);
    let packed = |disk: &[&str]| {
        let args = [&["compact", "--recompress", "9"], disk].concat();
        jobs.bench.json(&args)["compacted_containers"].as_u64().unwrap()
    };
    let json = jobs.json(&["run"]);
    assert_eq!(json["jobs"][0]["left_to_recompress_bytes"], 0, "{json}");
    assert_eq!((packed(&["a/x"]), packed(&["b/x"])), (0, 0), "the job has done it");
    assert!(packed(&[]) > 0, "but for disks that are not its own");
    for (disk, source) in [("a/x", "a.raw"), ("b/x", "b.raw"), ("c/x", "b.raw")] {
        let target = jobs.bench.path("restored");
        jobs.bench.done(&["restore", disk, &jobs.bench.arg("restored"), "--force"]);
        assert!(std::fs::read(target).unwrap() == std::fs::read(jobs.bench.path(source)).unwrap(), "{disk}");
    }
}

#[test]
fn hooks_know_what_happens() {
    let jobs = Jobs::new(
        r#"
[defaults]
before = "env | grep ^SAPWOOD_ | sort > DIR/$SAPWOOD_JOB.before"
after = "env | grep ^SAPWOOD_ | sort > DIR/$SAPWOOD_JOB.after"
[jobs.bad]
disks = { "a/x" = "DIR/a.raw", "b/x" = "DIR/missing.raw" }
[jobs.good]
disks = { "c/x" = "DIR/a.raw" }
"#,
    );
    assert_eq!(jobs.run(&["run"]).code(), Some(FAILED));
    let before = jobs.text("bad.before");
    let store = format!("SAPWOOD_STORE={}\n", jobs.bench.arg("vault"));
    for line in ["SAPWOOD_COMMAND=before\n", "SAPWOOD_JOB=bad\n", "SAPWOOD_OUTCOME=\n", &store] {
        assert!(before.contains(line), "{line}: {before}");
    }
    let after = jobs.text("bad.after");
    for line in ["SAPWOOD_COMMAND=after\n", "SAPWOOD_OUTCOME=failed\n", "SAPWOOD_FAILED_DISKS=b/x\n", &store]
    {
        assert!(after.contains(line), "{line}: {after}");
    }
    let after = jobs.text("good.after");
    assert!(after.contains("SAPWOOD_OUTCOME=done\n") && after.contains("SAPWOOD_FAILED_DISKS=\n"), "{after}");
}

#[test]
fn a_failed_command_fails_the_job() {
    let jobs = Jobs::new(
        r#"
[jobs.x]
before = "exit 3"
after = "echo $SAPWOOD_OUTCOME > DIR/after"
disks = { "a/x" = "DIR/a.raw" }
"#,
    );
    let ended = jobs.run(&["run"]);
    let said = ["job x: the command before ended with exit code 3; nothing was done"];
    ended.expect_failure(FAILED, &said);
    assert_eq!((jobs.text("after").as_str(), jobs.bench.all_snapshots().len()), ("failed\n", 0));
    jobs.configure("[jobs.x]\nafter = \"kill -9 $$\"\ndisks = { \"a/x\" = \"DIR/a.raw\" }");
    jobs.run(&["run"]).expect_failure(FAILED, &["job x: the command after was ended by signal 9"]);
    assert_eq!(jobs.bench.all_snapshots().len(), 1);
    assert_eq!(jobs.state("x")["outcome"], "failed");
}

/// A command may also make the vault available.
#[test]
fn a_vault_that_cannot_be_opened_fails_the_job() {
    let jobs = Jobs::new(TWO_DISKS);
    std::fs::rename(jobs.bench.path("vault"), jobs.bench.path("away")).unwrap();
    jobs.run(&["run"]).expect_failure(FAILED, &["job web: ", "vault"]);
    assert_eq!(jobs.state("web")["outcome"], "failed");
    jobs.configure(&format!("{TWO_DISKS}before = \"mv DIR/away DIR/vault\""));
    jobs.done(&["run"]);
}

#[test]
fn damage_that_verification_finds_fails_the_job() {
    let jobs = Jobs::new(&format!("{TWO_DISKS}verify = \"data\""));
    jobs.done(&["run"]);
    let mut first = jobs.bench.data_objects();
    // The first snapshots alone need what was stored first.
    jobs.bench.file("a.raw", &random(300_000, 3));
    jobs.bench.file("b.raw", &random(300_000, 4));
    jobs.done(&["run"]);
    first.retain(|f| f.exists());
    let mut bytes = std::fs::read(&first[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&first[0], bytes).unwrap();
    let ended = jobs.run(&["run"]);
    ended.expect_failure(
        FAILED,
        &[
            "job web: verification found 1 damaged object, in snapshots of web01/vd",
            "`sapwood verify web01/vd",
        ],
    );
    assert_eq!(jobs.bench.run(&["verify", "--data"]).code(), Some(DAMAGED));
}

/// It looks after disks that no job backs up, too. What `[defaults]` says of jobs' own disks is not meant for them.
#[test]
fn a_job_of_all_disks_looks_after_the_whole_vault() {
    let jobs = Jobs::new(&format!(
        "[defaults]\nretain = {{ last = 1 }}\n{TWO_DISKS}[jobs.upkeep]\ndisks = \"all\"\nverify = \"data\"\ngc = true\n\
         [jobs.copies]\ndisks = \"all\"\ncopy_to = \"DIR/second\"\n[jobs.second]\ndisks = \"all\"\nstore = \"DIR/second\"\nretain = {{ last = 1 }}\n"
    ));
    let (bench, second) = (&jobs.bench, jobs.bench.arg("second"));
    bench.done(&["--store", &second, "init"]);
    let snapshots = |store: &str, disk: &str| {
        let listed = bench.json(&["--store", store, "snapshots", disk]);
        listed["snapshots"].as_array().unwrap().len()
    };
    let by_hand = bench.file("c.raw", &random(300_000, 3));
    for _ in 0..3 {
        bench.done(&["-q", "backup", "db/vda", &by_hand, "--force"]);
    }
    let vault = bench.arg("vault");
    jobs.done(&["run", "web"]);
    let said = jobs.done(&["run", "copies", "upkeep"]);
    assert!(said.contains("0 failed; 3 disks verified; "), "{said}");
    assert_eq!(["web01/vda", "db/vda"].map(|disk| snapshots(&vault, disk)), [1, 3]);
    assert_eq!(["web01/vda", "db/vda"].map(|disk| snapshots(&second, disk)), [1, 3]);
    let report = jobs.json(&["run", "second"]);
    assert_eq!((&report["outcome"], &report["jobs"][0]["deleted_snapshots"]), (&"done".into(), &2.into()));
    assert_eq!(["web01/vda", "db/vda"].map(|disk| snapshots(&second, disk)), [1, 1]);
    assert_eq!(snapshots(&vault, "db/vda"), 3);
    let checked = jobs.done(&["config", "check"]);
    assert!(checked.lines().any(|line| line.split_whitespace().take(2).eq(["upkeep", "all"])), "{checked}");
    assert!(checked.contains(&format!("all in {second}")), "{checked}");
    let object =
        bench.data_objects().into_iter().max_by_key(|f| std::fs::metadata(f).unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    jobs.run(&["run", "upkeep"]).expect_failure(FAILED, &["job upkeep: verification found 1 damaged object"]);
    jobs.done(&["run", "second"]);
    std::fs::rename(&second, bench.path("away")).unwrap();
    jobs.run(&["run", "second"]).expect_failure(FAILED, &["job second: ", "second"]);
}

/// Temporary files of states do not pile up, and no lock is left.
#[test]
fn a_run_leaves_one_state_one_lock_and_a_size() {
    let jobs = Jobs::new(TWO_DISKS);
    for _ in 0..2 {
        assert_eq!(jobs.run(&["run"]).code(), Some(DONE));
    }
    let mut left: Vec<_> =
        files_below(&jobs.bench.path("state")).iter().map(|f| f.file_name().unwrap().to_owned()).collect();
    left.sort();
    assert_eq!(left, ["vault-sizes.jsonl", "web.json", "web.lock"]);
}

/// The second vault gets what earlier runs could not bring, before anything is deleted here.
#[test]
fn disks_are_copied_to_a_second_vault() {
    let jobs = Jobs::new("");
    let second = jobs.bench.arg("second");
    let job =
        "[jobs.web]\ncopy_to = \"DIR/second\"\nretain = { last = 1 }\ndisks = { \"a/x\" = \"DIR/a.raw\" }\n";
    jobs.configure(job);
    // It is not there yet.
    let ended = jobs.run(&["run"]);
    ended.expect_failure(FAILED, &["job web: nothing was copied", "second"]);
    assert_eq!(jobs.run(&["run"]).code(), Some(FAILED));
    assert_eq!(jobs.bench.snapshots("a/x").len(), 2, "what is not there yet stays here");
    // Where it was to be copied to itself, old snapshots were deleted.
    jobs.configure(&job.replace("second", "state/../vault"));
    jobs.run(&["run"])
        .expect_failure(FAILED, &["job web: nothing was copied", "is the vault that is copied"]);
    assert_eq!(jobs.bench.snapshots("a/x").len(), 3);
    jobs.configure(job);
    jobs.bench.done(&["--store", &second, "init"]);
    jobs.bench.file("a.raw", &random(300_000, 9));
    let ran = &jobs.json(&["run"])["jobs"][0];
    assert_eq!((ran["copied_snapshots"].as_u64(), ran["deleted_snapshots"].as_u64()), (Some(4), Some(3)));
    assert_eq!(jobs.bench.snapshots("a/x").len(), 1);
    let there = jobs.bench.json(&["--store", &second, "snapshots", "a/x"]);
    assert_eq!(there["snapshots"].as_array().unwrap().len(), 4, "what goes here stays there");
    // What an earlier run has left is copied although the disk cannot be read now.
    std::fs::remove_file(jobs.bench.path("a.raw")).unwrap();
    jobs.bench.done(&["backup", "a/x", &jobs.bench.file("b.raw", &random(300_000, 10))]);
    let ran = &jobs.json(&["run"])["jobs"][0];
    assert_eq!((ran["outcome"].as_str(), ran["copied_snapshots"].as_u64()), (Some("failed"), Some(1)));
    let restored = jobs.bench.run(&["--store", &second, "-q", "restore", "a/x", "-"]);
    assert!(restored.stdout == random(300_000, 10));
}

/// A day of a zone, not of UTC.
#[test]
fn retention_counts_in_the_zone_of_the_job() {
    let jobs = Jobs::new("");
    // In Auckland, 13 hours ahead, the second and the third are of one day; in UTC the first and the second.
    let back_up_all = || {
        for time in ["2026-01-10T10:00", "2026-01-10T12:00", "2026-01-11T09:00"] {
            jobs.bench.done(&["-q", "backup", "a/x", &jobs.bench.arg("a.raw"), "--time", time]);
        }
    };
    let kept = |zone: &str| {
        back_up_all();
        jobs.configure(&format!("[defaults]\nzone = '{zone}'\n"));
        let config = jobs.bench.arg("sapwood.toml");
        let args = ["--config", &config, "--json", "retain", "a/x", "--daily", "9"];
        let report = jobs.bench.run(&args).json();
        let stays = |s: &Value| s["stays"].as_bool().unwrap();
        let kept: Vec<bool> = report["disks"][0]["snapshots"].as_array().unwrap().iter().map(stays).collect();
        jobs.bench.done(&["-q", "remove", "a/x", "--yes"]);
        kept
    };
    assert_eq!(kept("UTC"), [false, true, true]);
    assert_eq!(kept("Pacific/Auckland"), [true, false, true]);

    back_up_all();
    jobs.configure(
        "[jobs.a]\nzone = 'Pacific/Auckland'\nretain = { daily = 9 }\ndisks = { 'a/x' = 'DIR/a.raw' }\n",
    );
    jobs.done(&["run"]);
    let listed = jobs.bench.json(&["snapshots", "a/x"]);
    let times = listed["snapshots"].as_array().unwrap().iter().map(|s| s["time"].as_i64().unwrap());
    // With the one that the run has made.
    assert_eq!(times.take(2).collect::<Vec<_>>(), [1_768_039_200, 1_768_122_000]);
}
