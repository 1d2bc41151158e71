//! `retain`, `tag`, `rename`, `remove`: what an operator does with snapshots every day.

use crate::common::{random, Bench, FAILED, REFUSED, USAGE};
use serde_json::Value;

/// Snapshots of some disks, one a day, the last one on 2026-11-20 at noon.
fn with_days(disks: &[&str], days: u32) -> Bench {
    let bench = Bench::new("balanced");
    for disk in disks {
        for day in 0..days {
            let source = bench.file("source", &random(100_000, u64::from(day)));
            let time = format!("2026-11-{:02}T12:00", 21 - days + day);
            bench.done(&["-q", "backup", disk, &source, "--time", &time]);
        }
    }
    bench
}

fn reasons(report: &Value) -> Vec<String> {
    let disks = report["disks"].as_array().unwrap();
    let snapshots = disks.iter().flat_map(|d| d["snapshots"].as_array().unwrap());
    let words =
        |s: &Value| s["kept_by"].as_array().unwrap().iter().map(|w| w.as_str().unwrap().to_owned()).collect();
    snapshots.map(words).map(|w: Vec<String>| w.join(" ")).collect()
}

#[test]
fn rules_say_what_stays() {
    let bench = with_days(&["web01/vda", "web02/vda", "db/vda"], 12);
    let before = bench.all_snapshots();
    // 2026-11-09 is a Monday, and so is the 16th.
    let would = bench.json(&["retain", "web*", "--last", "2", "--weekly", "2", "--dry-run"]);
    let expected = ["", "", "", "", "", "", "weekly", "", "", "", "last", "last weekly"];
    assert_eq!(reasons(&would), [expected, expected].concat());
    assert_eq!(bench.all_snapshots(), before, "a dry run");
    let held = bench.snapshots("web01/vda")[0].clone();
    bench.done(&["-q", "hold", &format!("web01/vda@{held}")]);
    let table = bench.done(&["retain", "web01", "web02/vda", "--last", "2", "--weekly", "2"]);
    let text = String::from_utf8(table.stdout).unwrap();
    for line in [
        "stays because",
        "2026-11-15T12:00:00Z  weekly",
        "2026-11-20T12:00:00Z  last weekly",
        "  held",
        "goes",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("7 snapshots left, 17 deleted"), "{text}");
    let counts = ["web01/vda", "web02/vda", "db/vda"].map(|disk| bench.snapshots(disk).len());
    assert_eq!(counts, [4, 3, 12]);
    let quiet = bench.done(&["-q", "retain", "--all", "--within", "48h"]);
    assert!(quiet.stdout.is_empty(), "{quiet}");
    assert_eq!(["web01/vda", "web02/vda", "db/vda"].map(|disk| bench.snapshots(disk).len()), [3, 2, 3]);
    bench.verify();
    bench.collect();
}

#[test]
fn rules_that_cannot_be_meant_are_refused() {
    let bench = with_days(&["web01/vda"], 2);
    let refused = |args: &[&str], said: &str| {
        let ended = bench.run(args);
        assert_eq!(ended.code(), Some(USAGE), "{ended}");
        assert!(ended.stderr.contains(said), "{ended}");
    };
    refused(&["retain", "web01/vda"], "--last");
    refused(&["retain", "--last", "2"], "--all");
    refused(&["retain", "web01/vda", "--all", "--last", "2"], "--all");
    refused(&["retain", "web01/vda", "--last", "0"], "0 is not in");
    refused(&["retain", "web01/vda", "--within", "3"], "48h, 14d, 8w");
    bench.fails(&["retain", "mail*", "--last", "1"], FAILED, &["mail*", "no disk has such a name"]);
    // The others have their turn.
    let ended = bench.run(&["retain", "mail/vda", "web01/vda", "--last", "1"]);
    assert_eq!(ended.code(), Some(FAILED), "{ended}");
    assert!(ended.stderr.contains("mail/vda: ") && ended.stderr.lines().count() == 1, "{ended}");
    assert_eq!(bench.snapshots("web01/vda").len(), 1);
}

#[test]
fn tags_come_and_go() {
    let bench = with_days(&["web01/vda"], 1);
    let tags = || bench.json(&["snapshots"])["snapshots"][0]["tags"].clone();
    bench.done(&["tag", "web01/vda", "why=before the upgrade", "who=ops"]);
    assert_eq!(tags()["why"], "before the upgrade");
    let said = bench.json(&["tag", "web01/vda@latest", "who=me", "--remove", "why"]);
    assert_eq!((&said["tags"]["who"], &said["tags"]["why"]), (&Value::from("me"), &Value::Null));
    assert_eq!((tags()["who"].as_str(), tags().get("why")), (Some("me"), None));
    for (args, why) in [
        (&["tag", "web01/vda", "source-format=raw"][..], "is what backups say themselves"),
        (&["tag", "web01/vda", "--remove", "checkpoint"], "is what backups say themselves"),
        (&["tag", "web01/vda", "word"], "NAME=VALUE"),
        (&["tag", "web01/vda", "=x"], "has no name"),
    ] {
        bench.fails(args, USAGE, &[why]);
    }
    bench.fails(&["tag", "web02/vda", "a=b"], FAILED, &["there is no disk web02/vda"]);
}

#[test]
fn a_disk_is_removed_with_its_name() {
    let bench = with_days(&["web01/vda", "web02/vda"], 3);
    // Without a terminal nobody can be asked.
    bench.fails(&["remove", "web01/vda"], REFUSED, &["web01/vda: was not removed", "--yes", "3 snapshots"]);
    bench.done(&["-q", "hold", "web01/vda@latest~1"]);
    bench.fails(&["remove", "web01/vda", "--yes"], REFUSED, &["is held"]);
    assert_eq!(bench.snapshots("web01/vda").len(), 3);
    bench.done(&["-q", "release", "web01/vda@latest~1"]);
    let said = bench.json(&["remove", "web01/vda", "--yes"]);
    assert_eq!((said["removed_snapshots"].as_u64(), said["disk"].as_str()), (Some(3), Some("web01/vda")));
    assert_eq!(bench.snapshots("web01/vda"), [""; 0]);
    bench.fails(&["remove", "mail/vda", "--yes"], FAILED, &["there is no disk mail/vda"]);
    let said = bench.json(&["remove", "web02/vda", "--yes"]);
    assert_eq!(said["is_gone"], true);
    bench.collect();
    assert_eq!(bench.data_objects().len(), 0, "nothing is left");
    bench.backup("web01/vda", &bench.file("source", &random(1000, 1)));
}

#[test]
fn a_disk_gets_another_name() {
    let bench = with_days(&["web01/vda", "web02/vda"], 2);
    let before = bench.snapshots("web01/vda");
    bench.fails(
        &["rename", "web01/vda", "web02/vda"],
        REFUSED,
        &["web02/vda", "there is a disk of this name"],
    );
    bench.fails(&["rename", "web01/vda", "www"], USAGE, &["www"]);
    bench.fails(&["rename", "mail/vda", "www/vda"], FAILED, &["there is no disk mail/vda"]);
    assert_eq!(bench.json(&["rename", "web01/vda", "www/vda"])["disk"], "www/vda");
    assert_eq!((bench.snapshots("www/vda"), bench.snapshots("web01/vda").len()), (before, 0));
    let said = bench.json(&["backup", "www/vda", &bench.arg("source")]);
    assert_eq!(said["disk"], "www/vda");
    bench.backup("web01/vda", &bench.arg("source"));
    bench.verify();
    bench.collect();
    assert_eq!(bench.all_snapshots().len(), 6);
}
