//! Lists of snapshots: which is the latest, which are listed, how the table looks, and what the last verification and holds
//! say of them.

use crate::common::{files_below, random, Bench, DAMAGED, DONE, FAILED, REFUSED, USAGE};
use serde_json::Value;
use std::path::PathBuf;

/// Backs a file up under a time. Returns the snapshot's id.
fn at(bench: &Bench, disk: &str, file: &str, time: &str, more: &[&str]) -> String {
    let args = [&["backup", disk, file, "--force", "--time", time], more].concat();
    bench.json(&args)["snapshot"].as_str().unwrap().to_owned()
}

fn ids(listed: &Value) -> Vec<String> {
    let all = listed["snapshots"].as_array().unwrap().iter();
    all.map(|s| s["snapshot"].as_str().unwrap().to_owned()).collect()
}

fn text(bench: &Bench, args: &[&str]) -> String {
    String::from_utf8(bench.done(args).stdout).unwrap()
}

/// The data object of a disk's first container.
fn data_object(bench: &Bench) -> PathBuf {
    bench.data_objects().into_iter().max().unwrap()
}

/// An old state that was backed up later was the latest one, and was restored instead of the newest.
#[test]
fn an_older_time_does_not_make_the_latest() {
    let bench = Bench::new("balanced");
    let (new, old) = (random(1 << 20, 1), random(1 << 20, 2));
    let (new_file, old_file) = (bench.file("new", &new), bench.file("old", &old));
    let newest = at(&bench, "web01/vda", &new_file, "2026-11-21T22:00", &[]);
    let older = at(&bench, "web01/vda", &old_file, "2026-11-01T00:00:00+02:00", &[]);
    assert!(bench.restored("web01/vda") == new);
    assert!(bench.restored("web01/vda@latest~1") == old);
    assert!(bench.restored("web01/vda@2026-10-31T22:00Z") == old);
    assert_eq!(bench.snapshots("web01/vda"), [older, newest.clone()], "oldest first");
    let status = bench.json(&["status"]);
    assert_eq!(status["vault"]["disks"][0]["newest_snapshot"], newest.as_str());
    // The time that is printed is one that is understood.
    assert!(text(&bench, &["snapshots"]).contains("2026-10-31T22:00:00Z"));
}

/// What clones share is read once.
#[test]
fn disks_are_verified_by_patterns() {
    let bench = Bench::new("balanced");
    let (clone, other) = (bench.file("clone", &random(1 << 20, 1)), bench.file("other", &random(1 << 20, 2)));
    for (disk, file) in [("web01/vda", &clone), ("web02/vda", &clone), ("db01/vda", &other)] {
        bench.done(&["-q", "backup", disk, file, "--force"]);
    }
    let verified = |names: &[&str]| {
        let report = bench.json(&[&["verify", "--data"], names].concat());
        (report["disk_count"].as_u64().unwrap(), report["data_bytes"].as_u64().unwrap() >> 20)
    };
    assert_eq!(verified(&["web02/vda"]), (1, 1));
    assert_eq!(verified(&["web*"]), (2, 1));
    assert_eq!(verified(&["*/vda"]), (3, 2));
    assert_eq!(verified(&["web01", "db01/vda", "web01/vda"]), (2, 2));
    assert_eq!(verified(&["db01/vda@latest"]), (1, 1));
    bench.fails(&["verify", "mail*"], FAILED, &["mail*", "no disk has such a name"]);
    bench.fails(&["verify", "db01/vda@latest", "web*"], USAGE, &["db01/vda@latest: verify one snapshot"]);
}

#[test]
fn lists_are_filtered() {
    let bench = Bench::new("balanced");
    let file = bench.file("disk", &random(1 << 20, 1));
    let a = at(&bench, "web01/vda", &file, "2026-11-20T22:00", &["--tag", "for=upgrade"]);
    let b = at(&bench, "web01/vda", &file, "2026-11-21T22:00", &["--tag", "for=test", "--tag", "by=me"]);
    let c = at(&bench, "web01/vdb", &file, "2026-11-21T22:00", &[]);
    let d = at(&bench, "mail/vda", &file, "2026-11-22T00:00", &[]);
    bench.done(&["-q", "hold", &format!("web01/vdb@{c}")]);
    for (args, expected) in [
        (&[][..], vec![&d, &a, &b, &c]),
        (&["web01"], vec![&a, &b, &c]),
        (&["web01/vda", "mail"], vec![&d, &a, &b]),
        (&["*/vda"], vec![&d, &a, &b]),
        (&["--tag", "for"], vec![&a, &b]),
        (&["--tag", "for=test", "--tag", "by"], vec![&b]),
        (&["--tag", "for=upgrade", "--tag", "by"], vec![]),
        (&["--held"], vec![&c]),
        (&["--from", "2026-11-21"], vec![&d, &b, &c]),
        (&["--from", "2026-11-21T22:00:01"], vec![&d]),
        (&["--until", "2026-11-20"], vec![&a]),
        (&["--from", "2026-11-22T01:00+01:00", "--until", "2026-11-22T00:00"], vec![&d]),
        (&["--last", "1"], vec![&d, &b, &c]),
        (&["--last", "1", "--until", "2026-11-21"], vec![&b, &c]),
    ] {
        let listed = bench.json(&[&["snapshots"], args].concat());
        assert_eq!(ids(&listed), expected.into_iter().cloned().collect::<Vec<_>>(), "{args:?}");
    }
    bench.fails(&["snapshots", "none"], FAILED, &["no disk has such a name"]);
    assert_eq!(bench.run(&["snapshots", "--from", "yesterday"]).code(), Some(USAGE));
}

/// The disks of a machine at one instant stand together, under one time, in 80 columns; what backups note themselves is not
/// shown.
#[test]
fn the_table_fits() {
    let bench = Bench::new("balanced");
    let file = bench.file("disk", &random(1 << 20, 1));
    let first = at(&bench, "web01/vda", &file, "2026-11-20T22:00", &[]);
    at(&bench, "web01/vdb", &file, "2026-11-20T22:00", &["--tag", "n=1"]);
    at(&bench, "web01/vda", &file, "2026-11-21T22:00", &[]);
    at(&bench, "mail/vda", &file, "2026-11-21T22:00", &[]);
    let text = text(&bench, &["snapshots"]);
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    let disks: Vec<&str> = rows[1..].iter().map(|r| *r.iter().find(|w| w.contains('/')).unwrap()).collect();
    assert_eq!(disks, ["mail/vda", "web01/vda", "web01/vdb", "web01/vda"], "{text}");
    assert_eq!(rows[2][..3], ["2026-11-20T22:00:00Z", "web01/vda", &first[..8]], "{text}");
    assert_eq!((rows[3][0], *rows[3].last().unwrap()), ("web01/vdb", "n=1"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80) && !text.contains("source"), "{text}");
    // What is shown of an id names the snapshot.
    assert_eq!(bench.run(&["-q", "hold", &format!("web01/vda@{}", rows[2][2])]).code(), Some(DONE));
}

/// Whether a disk was ever verified, and what came of it, was not to be seen.
#[test]
fn the_last_verification_is_shown() {
    let bench = Bench::new("balanced");
    let before = bench.backup("web01/vda", &bench.file("disk", &random(2 << 20, 1)));
    let disk = || bench.json(&["status"])["vault"]["disks"][0].clone();
    let listed = || bench.json(&["snapshots"])["snapshots"].clone();
    assert!(disk()["verified"].is_null() && listed()[0]["verified_time"].is_null());
    assert!(text(&bench, &["status"]).contains("never"));
    let verified = text(&bench, &["verify"]);
    assert!(verified.contains("only --data can tell"), "{verified}");
    assert_eq!(
        (&disk()["verified"]["read_chunks"], &disk()["data_verified"]),
        (&Value::Bool(false), &Value::Null)
    );
    assert!(listed()[0]["verified_time"].is_number() && listed()[0]["data_verified_time"].is_null());
    assert!(text(&bench, &["snapshots"]).contains(" s)"), "in brackets: its chunks were not read");
    assert_eq!(bench.json(&["verify", "--data"])["is_kept"], true);
    assert_eq!(disk()["data_verified"]["damaged_count"], 0);
    let read = listed()[0]["data_verified_time"].clone();
    assert!(read.is_number());
    // One that reads no chunks says nothing of those, and nothing of snapshots that come later.
    bench.done(&["verify"]);
    assert_eq!(listed()[0]["data_verified_time"], read);
    bench.backup("web01/vda", &bench.file("disk", &random(2 << 20, 2)));
    assert!(listed()[1]["verified_time"].is_null());
    // A verification of one snapshot says nothing of the others.
    bench.done(&["verify", &format!("web01/vda@{before}")]);
    assert!(listed()[1]["verified_time"].is_null());
    bench.done(&["verify", "web01/vda"]);
    assert!(listed()[1]["verified_time"].is_number() && listed()[1]["data_verified_time"].is_null());
}

#[test]
fn damage_that_was_found_is_shown_until_it_is_healed() {
    let bench = Bench::new("balanced");
    let content = random(2 << 20, 1);
    let file = bench.file("disk", &content);
    bench.backup("web01/vda", &file);
    let object = data_object(&bench);
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[1 << 20] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    assert_eq!(bench.run(&["verify", "--data"]).code(), Some(DAMAGED));
    let listed = || bench.json(&["snapshots"])["snapshots"][0].clone();
    assert_eq!(listed()["is_damaged"], true);
    assert!(text(&bench, &["snapshots"]).contains("DAMAGED"));
    let status = bench.run(&["--json", "status"]);
    assert_eq!(status.code(), Some(2));
    assert_eq!(status.json()["vault"]["disks"][0]["verified"]["damaged_snapshot_count"], 1);
    // A verification that reads no chunks reads those that are known to be damaged.
    let ended = bench.run(&["verify"]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    assert!(
        ended.to_string().contains("known to be damaged") && ended.to_string().contains("web01/vda@"),
        "{ended}"
    );
    assert_eq!(listed()["is_damaged"], true);
    assert_eq!(listed()["is_damaged"], true);
    bench.done(&["-q", "repair", "--from-source", &file]);
    assert_eq!(listed()["is_damaged"], false);
    assert_eq!(bench.run(&["status"]).code(), Some(0));
    assert!(bench.restored("web01/vda") == content);
}

/// What readers meet is recorded: `status` tells of it, and the next backup stores anew what it needs.
#[test]
fn damage_that_a_restore_meets_is_recorded() {
    let bench = Bench::new("balanced");
    // Large enough that a later backup does not write everything again.
    let content = random(24 << 20, 1);
    let file = bench.file("disk", &content);
    bench.backup("web01/vda", &file);
    let object = data_object(&bench);
    let whole = std::fs::read(&object).unwrap();
    let mut bytes = whole.clone();
    bytes[1 << 20] ^= 1;
    let damaged = || bench.json(&["stats", "web01/vda"])["disks"][0]["damaged_containers"].as_u64().unwrap();
    let target = bench.arg("restored");
    let readers: [&[&str]; 2] = [
        &["restore", "web01/vda", &target, "--force"],
        &["restore", "web01/vda", &bench.file("old", &vec![7; 24 << 20]), "--in-place"],
    ];
    for reader in readers {
        std::fs::write(&object, &bytes).unwrap();
        assert_eq!(damaged(), 0);
        let ended = bench.run(reader);
        assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
        assert_eq!(ended.to_string().contains("is a mixture of"), reader.contains(&"--in-place"), "{ended}");
        assert_eq!(damaged(), 1, "{reader:?}");
        let status = bench.run(&["status"]);
        assert!(status.code() == Some(2) && status.to_string().contains("--data"), "{status}");
        // Put back, it is well again for those who look.
        std::fs::write(&object, &whole).unwrap();
        assert_eq!(damaged(), 1);
        bench.done(&["verify"]);
        assert_eq!(damaged(), 0);
    }
    std::fs::write(&object, &bytes).unwrap();
    if rustix::process::geteuid().is_root() {
        // In a vault of another user root would make the manifest its own.
        std::os::unix::fs::chown(&bench.store, Some(65534), None).unwrap();
        assert_eq!(bench.run(readers[0]).code(), Some(DAMAGED));
        assert_eq!(damaged(), 0);
        std::os::unix::fs::chown(&bench.store, Some(0), None).unwrap();
    }
    assert_eq!(bench.run(readers[0]).code(), Some(DAMAGED));
    bench.backup("web01/vda", &file);
    assert!(bench.restored("web01/vda") == content);
}

/// What a backup finds damaged of the snapshot before is told by it and by `status`; what was known before, by `status` alone.
#[test]
fn damage_of_a_recipe_that_is_met_is_told() {
    for is_backup in [true, false] {
        let bench = Bench::new("conventional");
        let file = bench.file("disk", &random(2 << 20, 1));
        let id = bench.backup("web01/vda", &file);
        let objects = files_below(&bench.store.join("objects"));
        let root = objects.iter().find(|file| file.extension().is_some_and(|e| e == "root")).unwrap();
        std::fs::remove_file(root).unwrap();
        assert_eq!(bench.run(&["status"]).code(), Some(0));
        let target = bench.arg("restored");
        let ended = if is_backup {
            bench.run(&["backup", "web01/vda", &file])
        } else {
            bench.run(&["restore", "web01/vda", &target])
        };
        assert_eq!(ended.code(), Some(if is_backup { DONE } else { DAMAGED }), "{ended}");
        assert_eq!(ended.to_string().contains("the vault is damaged: "), is_backup, "{ended}");
        assert!(ended.to_string().contains(root.file_name().unwrap().to_str().unwrap()), "{ended}");
        assert_eq!(bench.run(&["status"]).code(), Some(2));
        let listed = bench.json(&["snapshots"])["snapshots"].clone();
        let damaged: Vec<&Value> =
            listed.as_array().unwrap().iter().filter(|s| s["is_damaged"] == true).collect();
        assert_eq!((damaged.len(), damaged[0]["snapshot"].as_str()), (1, Some(id.as_str())), "{listed}");
        // It does not need that one any more.
        bench.done(&["-q", "backup", "web01/vda", &file]);
        bench.done(&["-q", "delete", &format!("web01/vda@{id}")]);
        bench.done(&["-q", "verify"]);
        assert_eq!(bench.run(&["status"]).code(), Some(0));
    }
}

/// What the last two weeks stored.
#[test]
fn status_shows_how_the_vault_grows() {
    let bench = Bench::new("balanced");
    let now = vault::now();
    let days_ago = |days: i64| vault::format_time(now - days * 86_400 - 3600);
    let mut stored = Vec::new();
    for (days, seed) in [(20, 1), (13, 2), (8, 3), (6, 4), (0, 5)] {
        let file = bench.file("disk", &random((seed as usize) << 20, seed));
        let args = ["backup", "web01/vda", &file, "--force", "--time", &days_ago(days)];
        stored.push(bench.json(&args)["stored_bytes"].as_u64().unwrap());
    }
    let status = bench.json(&["status"]);
    assert_eq!(status["vault"]["stored_last_7_days_bytes"], stored[3] + stored[4]);
    assert_eq!(status["vault"]["stored_7_days_before_bytes"], stored[1] + stored[2]);
}

/// The disks of two machines made from one template have much in common: only their files tell that they were swapped.
#[test]
fn swapped_files_are_noticed() {
    let bench = Bench::new("balanced");
    let mut disk = random(4 << 20, 1);
    let first = bench.file("web01", &disk);
    disk[..4096].fill(7);
    let second = bench.file("web02", &disk);
    bench.done(&["-q", "backup", "web01/vda", &first]);
    bench.done(&["-q", "backup", "web02/vda", &second]);
    let said = ["was backed up from", "web02 is that of web02/vda", "swapped", "--force"];
    bench.fails(&["backup", "web01/vda", &second], REFUSED, &said);
    // A link is the file that it leads to.
    std::os::unix::fs::symlink(&second, bench.path("link")).unwrap();
    bench.fails(&["backup", "web01/vda", &bench.arg("link")], REFUSED, &said);
    // A file that is no other disk's, as after a move, and one that is wanted.
    std::fs::rename(&first, bench.path("moved")).unwrap();
    bench.done(&["-q", "backup", "web01/vda", &bench.arg("moved")]);
    bench.done(&["-q", "backup", "web01/vda", &second, "--force"]);
    assert_eq!(bench.snapshots("web01/vda").len(), 3);
}

#[test]
fn a_time_to_come_is_refused_and_today_is_now() {
    let bench = Bench::new("balanced");
    let file = bench.file("a.raw", &random(1000, 1));
    let year = 365 * 86_400;
    let to_come = vault::format_time(vault::now() + year).to_string();
    bench.fails(&["backup", "a/x", &file, "--time", &to_come], REFUSED, &["in the future", "--force"]);
    assert!(bench.all_snapshots().is_empty());
    // Clocks differ by minutes.
    let soon = vault::format_time(vault::now() + 300).to_string();
    at(&bench, "a/x", &file, &soon, &[]);
    // The day has not ended.
    let today = vault::format_time(vault::now()).to_string()[..10].to_owned();
    let id = at(&bench, "b/x", &file, &today, &[]);
    let listed = bench.json(&["snapshots", "b/x"]);
    assert_eq!(listed["snapshots"][0]["snapshot"], id);
    assert!(listed["snapshots"][0]["time"].as_i64().unwrap() <= vault::now());
}

/// A wrong name is found before anything is deleted; a disk that is empty afterwards is named.
#[test]
fn a_deletion_on_several_disks_finds_all_names_first() {
    let bench = Bench::new("balanced");
    let file = bench.file("a.raw", &random(1000, 1));
    for disk in ["a/x", "b/x"] {
        bench.backup(disk, &file);
    }
    for wrong in ["z/x@latest", "b/x@zz"] {
        bench.fails(&["delete", "a/x@latest", wrong, "--yes"], FAILED, &[wrong.split('@').next().unwrap()]);
        assert_eq!(bench.all_snapshots().len(), 2);
    }
    let said = text(&bench, &["delete", "a/x@latest", "--yes"]);
    assert!(said.contains("a/x: has no snapshot left; `sapwood remove a/x`"), "{said}");
    let json = bench.json(&["delete", "b/x@latest"]);
    assert_eq!(
        (&json["emptied_disks"], &json["failed"]),
        (&serde_json::json!(["b/x"]), &serde_json::json!([]))
    );
}
