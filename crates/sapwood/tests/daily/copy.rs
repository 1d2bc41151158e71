//! `sapwood copy`: what it says, and that copies which are killed again and again arrive equal.

use crate::common::{
    change, files_below, fresh, from_env, random, Bench, Child, DAMAGED, DONE, FAILED, INTERRUPTED, REFUSED,
    USAGE,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// Snapshots, and kills, of the test that kills. `make soak` asks for 100 and 200.
const SNAPSHOTS: u64 = 25;
const KILLS: u64 = 40;

/// A second vault beside the first one.
fn second(bench: &Bench, policy: &str) -> String {
    let to = bench.arg(&format!("second-{policy}"));
    bench.done(&["--store", &to, "init", "--policy", policy]);
    to
}

fn restored_from(bench: &Bench, store: &str, snapshot: &str) -> Vec<u8> {
    let ended = bench.run(&["--store", store, "-q", "restore", snapshot, "-"]);
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    ended.stdout
}

fn ids(listed: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    listed["snapshots"].as_array().unwrap().iter().map(|s| (text(&s["disk"]), text(&s["snapshot"]))).collect()
}

#[test]
fn machines_patterns_and_single_snapshots() {
    let bench = Bench::new("balanced");
    let to = second(&bench, "balanced");
    let mut rng = StdRng::seed_from_u64(1);
    for disk in ["web01/vda", "web01/vdb", "web02/vda"] {
        for _ in 0..3 {
            bench.file("source", &fresh(300_000, &mut rng));
            bench.done(&["backup", disk, &bench.arg("source"), "--tag", "n=1"]);
        }
    }
    let first = bench.snapshots("web02/vda")[0].clone();
    bench.done(&["hold", &format!("web02/vda@{first}")]);
    let copied = bench.json(&["copy", "web01", &format!("web02/vda@{first}"), "--to", &to]);
    assert_eq!(copied["snapshot_count"], 7, "{copied}");
    assert_eq!(copied["disks"].as_array().unwrap().len(), 3);
    assert!(copied["read_bytes"].as_u64().unwrap() > 0 && copied["stored_bytes"].as_u64().unwrap() > 0);
    let copied = bench.json(&["copy", "--all", "--to", &to]);
    assert_eq!((copied["snapshot_count"].as_u64(), copied["failed"].as_array().unwrap().len()), (Some(2), 0));
    let listed = bench.json(&["--store", &to, "snapshots"]);
    assert_eq!(ids(&listed), bench.all_snapshots());
    for s in listed["snapshots"].as_array().unwrap() {
        assert_eq!(s["tags"]["n"], "1", "{s}");
        assert!(s["tags"]["copied-from"].as_str().unwrap().contains('/'), "{s}");
        assert_eq!(s["held"], s["snapshot"] == first, "{s}");
    }
    // Again: nothing is read and nothing written.
    let again = bench.json(&["copy", "--all", "--to", &to]);
    for field in ["snapshot_count", "read_bytes", "stored_bytes"] {
        assert_eq!(again[field], 0, "{field}: {again}");
    }
    let said = String::from_utf8(bench.done(&["copy", "web01/vda", "--to", &to]).stdout).unwrap();
    assert!(said.contains("web01/vda: 0 snapshots copied") && said.contains("3 were there"), "{said}");
    let rest = [&["--store", to.as_str()][..], &["-q", "verify", "--data"]].concat();
    bench.done(&rest);
}

#[test]
fn what_cannot_be_copied_is_said_and_keeps_no_other_from_its_turn() {
    let bench = Bench::new("balanced");
    let to = second(&bench, "reverse");
    bench.file("one", &[1; 100_000]);
    bench.file("two", &[2; 100_000]);
    for disk in ["a/x", "b/x"] {
        bench.backup(disk, &bench.arg("one"));
    }
    bench.done(&["--store", &to, "backup", "a/x", &bench.arg("two")]);
    bench.fails(&["copy", "--all", "--to", &to], REFUSED, &["a/x", "another disk", "sapwood rename"]);
    let listed = bench.json(&["--store", &to, "snapshots"]);
    assert_eq!(ids(&listed).iter().map(|i| i.0.as_str()).collect::<Vec<_>>(), ["a/x", "b/x"]);
    bench.fails(&["copy", "none/x", "--to", &to], FAILED, &["none/x"]);
    bench.fails(&["copy", "a/x@none", "--to", &to], FAILED, &["a/x@none", "sapwood snapshots"]);
    bench.fails(&["copy", "a/x", "--to", &bench.arg("nothing")], REFUSED, &["nothing"]);
    assert_eq!(bench.run(&["copy", "--to", &to]).code(), Some(USAGE));
    assert_eq!(bench.run(&["copy", "a/x"]).code(), Some(USAGE));
}

/// Damage that a copy meets is known from then on, in the vault that has it.
#[test]
fn damage_that_is_met_is_known() {
    let bench = Bench::new("balanced");
    let content = random(2 << 20, 1);
    bench.backup("web01/vda", &bench.file("disk", &content));
    let to = second(&bench, "balanced");
    let objects = files_below(&bench.store.join("objects"));
    let page = objects.iter().find(|f| f.parent().is_some_and(|dir| dir.ends_with("pages"))).unwrap();
    std::fs::remove_file(page).unwrap();
    assert_eq!(bench.run(&["status"]).code(), Some(0));
    bench.fails(&["copy", "--all", "--to", &to], DAMAGED, &["pages/"]);
    assert_eq!(bench.run(&["status"]).code(), Some(2));
    assert_eq!(bench.json(&["snapshots"])["snapshots"][0]["is_damaged"], true);
    assert_eq!(bench.run(&["--store", &to, "status"]).code(), Some(0));
}

/// Killed again and again, by turns in each of its steps: in the end everything is there, once and in order.
#[test]
fn killed_copies_arrive_equal() {
    let (snapshots, kills) = (from_env("SAPWOOD_SNAPSHOTS", SNAPSHOTS), from_env("SAPWOOD_KILLS", KILLS));
    let seed = from_env("SAPWOOD_SEED", 1);
    println!("SAPWOOD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = Bench::new_in(&testing::memory_dir(), "balanced");
    let to = second(&bench, "balanced");
    let disks = ["vm/a", "vm/b"];
    let mut contents = disks.map(|_| fresh(3 << 20, &mut rng));
    let mut expected: Vec<(String, Vec<u8>)> = Vec::new();
    for n in 0..snapshots as usize {
        let content = &mut contents[n % 2];
        change(content, &mut rng);
        bench.file("source", content);
        let id = bench.backup(disks[n % 2], &bench.arg("source"));
        expected.push((format!("{}@{id}", disks[n % 2]), content.clone()));
    }
    let args = ["-q", "copy", "--all", "--to", &to];
    let mut killed = 0;
    // As long as a copy needs that is left alone, or a little longer.
    let longest = 30_000;
    for _ in 0..kills {
        let child = Child::start(bench.command(&args), "copy");
        std::thread::sleep(Duration::from_micros(rng.random_range(0..longest)));
        child.signal(Signal::KILL);
        let ended = child.wait();
        assert!(ended.code() == Some(DONE) || ended.status.signal() == Some(9), "{ended}");
        killed += u64::from(ended.code().is_none());
        if rng.random_bool(0.1) {
            bench.done(&["--store", &to, "-q", "gc"]);
        }
    }
    println!("{killed} of {kills} copies were killed");
    assert!(killed > kills / 4, "{killed} of {kills} were killed");
    bench.done(&args);
    let listed = bench.json(&["--store", &to, "snapshots"]);
    assert_eq!(ids(&listed), bench.all_snapshots());
    for (name, content) in &expected {
        assert!(restored_from(&bench, &to, name) == *content, "{name} differs");
    }
    bench.done(&["--store", &to, "gc"]);
    bench.done(&["--store", &to, "-q", "verify", "--data"]);
}

/// Ctrl-C stops it; what has arrived stays.
#[test]
fn it_can_be_interrupted() {
    let bench = Bench::new("balanced");
    let to = second(&bench, "balanced");
    let mut rng = StdRng::seed_from_u64(2);
    for _ in 0..6 {
        bench.file("source", &fresh(8 << 20, &mut rng));
        bench.backup("vm/a", &bench.arg("source"));
    }
    let args = ["-q", "copy", "vm/a", "--to", &to];
    let child = Child::start(bench.command(&args), "copy");
    let there = || bench.json(&["--store", &to, "snapshots"])["snapshots"].as_array().unwrap().len();
    while there() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.signal(Signal::INT);
    let ended = child.wait();
    assert!(ended.code() == Some(INTERRUPTED) || there() == 6, "{ended}");
    bench.done(&args);
    assert_eq!(there(), 6);
}
