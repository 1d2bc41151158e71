//! What `--json` prints: exactly one object, also where a command fails.

use super::Kept;
use crate::common::{qemu_img, random, Bench, FAILED};

#[test]
fn every_command_prints_one_object() {
    let bench = Bench::bare();
    let json = |args: &[&str], fields: &[&str]| {
        let object = bench.json(args);
        for field in fields {
            assert!(object.get(field).is_some(), "{args:?}: no {field} in {object}");
        }
        object
    };
    json(&["init"], &["vault_id", "store", "policy"]);
    json(&["snapshots"], &["snapshots"]);
    let source = bench.file("source", &random(700_000, 1));
    let backup = ["backup", "vm/a", &source, "--tag", "why=test", "--time", "2026-11-21T22:00:00"];
    let made =
        json(&backup, &["disk", "snapshot", "parent", "policy", "new_bytes", "stored_bytes", "seconds"]);
    assert_eq!(made["size"], 700_000);
    bench.file("source", &random(700_000, 2));
    json(&backup[..3], &["snapshot"]);
    let listed = json(&["snapshots", "vm/a"], &["snapshots"]);
    assert_eq!(listed["snapshots"][0]["tags"]["why"], "test");
    assert_eq!(listed["snapshots"][0]["time"], 1_795_298_400);
    assert_eq!(listed["snapshots"][1]["parent"], made["snapshot"]);
    let target = bench.arg("target");
    json(&["restore", "vm/a@2026-11-21T22:00:00", &target], &["snapshot", "target", "size", "written_bytes"]);
    assert!(std::fs::read(&target).unwrap() == random(700_000, 1));
    let target = bench.arg("target.qcow2");
    json(&["restore", "vm/a", &target, "--format", "qcow2"], &["snapshot"]);
    qemu_img(&["check", "-q", &target]);
    json(&["verify"], &["disk_count", "snapshot_count", "containers", "objects", "damaged"]);
    json(&["verify", "vm/a@latest", "--data"], &["data_bytes"]);
    json(&["delete", "vm/a@latest"], &["deleted", "freed_bytes", "waiting_snapshots"]);
    json(&["gc", "--dry-run"], &["dry_run", "orphans"]);
    json(&["gc"], &["orphans", "freed_bytes", "dead_sessions", "compacted_containers"]);
    json(&["compact", "vm/a"], &["compacted_containers"]);
    json(&["reindex"], &["containers", "hooks", "removed", "reference_indexes", "damaged_count"]);
    let stats = json(&["stats"], &["stored_bytes", "popular_data_bytes", "popular_metadata_bytes", "disks"]);
    assert_eq!(stats["disks"][0]["foreign_containers"], 0);
    assert_eq!(stats["disks"][0]["owners"], 0);
}

#[test]
fn a_command_that_fails_prints_its_error() {
    let kept = Kept::new();
    let no_disk = ["there is no disk vm/none", "sapwood snapshots"];
    for (args, said) in [
        (&["--json", "backup", "vm/a", "/missing"][..], ["/missing", "No such file"]),
        (&["--json", "restore", "vm/none", "-"], no_disk),
        (&["--json", "delete", "vm/kept@nothing"], ["vm/kept@nothing", "sapwood snapshots vm/kept"]),
        (&["--json", "snapshots", "vm/none"], no_disk),
    ] {
        let ended = kept.bench.fails(args, FAILED, &said);
        // Standard output is for the disk's bytes in one of them.
        if args.contains(&"-") {
            assert!(ended.stdout.is_empty(), "{ended}");
        } else {
            let printed = ended.json();
            assert!(said.iter().all(|s| printed["error"].as_str().unwrap().contains(s)), "{printed}");
            assert_eq!(printed["exit_code"], FAILED);
        }
    }
    kept.check();
}
