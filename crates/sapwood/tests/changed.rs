//! `backup --since SNAP --changed FILE`.
#![allow(clippy::unwrap_used)]

mod common;

use common::{random, Bench, FAILED, REFUSED, USAGE};

const DISK_BYTES: usize = 40 << 20;

#[test]
fn only_what_a_list_names_is_read() {
    let bench = Bench::new("balanced");
    let mut bytes = random(DISK_BYTES, 1);
    let disk = bench.file("disk", &bytes);
    let first = bench.backup("vm/d", &disk);

    bytes[9 << 20..(9 << 20) + 5000].fill(7);
    std::fs::write(&disk, &bytes).unwrap();
    let rbd = bench.file("rbd", br#"[{"offset":9437184,"length":8192,"exists":"true"}]"#);
    let told = bench.json(&["backup", "vm/d", &disk, "--since", &first, "--changed", &rbd]);
    assert_eq!(told["scan"], serde_json::json!({ "kind": "changed", "bytes": 4 << 20, "why": null }));
    assert_eq!(told["new_bytes"], 8192);
    assert!(bench.restored("vm/d@latest") == bytes);

    // The list is from before the newest snapshot: everything is read, and that is said.
    bytes[30 << 20..(30 << 20) + 100].fill(8);
    std::fs::write(&disk, &bytes).unwrap();
    let told = bench.json(&["backup", "vm/d", &disk, "--since", &first, "--changed", &rbd]);
    assert_eq!(told["scan"]["kind"], "whole");
    assert!(told["scan"]["why"].as_str().unwrap().contains("is not the newest snapshot"), "{told}");
    assert!(bench.restored("vm/d@latest") == bytes);
    let plain = bench.run(&["backup", "vm/d", &disk, "--since", &first, "--changed", &rbd]);
    let said = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(said.contains("read: all of it: "), "{said}");
}

#[test]
fn lists_that_cannot_be_right_are_refused() {
    let bench = Bench::new("balanced");
    let disk = bench.file("disk", &random(1 << 20, 2));
    let first = bench.backup("vm/d", &disk);
    let cut = bench.file("cut", b"[{\"offset\":0,\"leng");
    let long = bench.file("long", b"0 99999999\n");
    let empty = bench.file("empty", b"");
    let args =
        |list: &str| ["backup", "vm/d", &disk, "--since", &first, "--changed", list].map(str::to_owned);
    bench.fails(&args(&cut), FAILED, &[&cut, "list of changes"]);
    bench.fails(&args(&empty), FAILED, &["empty: ", "list of changes", "is empty"]);
    // Whatever is newest: that would not tell whether the list begins there.
    for vague in ["latest", "2026-11-21", ""] {
        let args = ["backup", "vm/d", &disk, "--since", vague, "--changed", &long];
        bench.fails(&args, USAGE, &["no id of a snapshot"]);
    }
    bench.fails(&args(&bench.arg("absent")), FAILED, &["absent"]);
    bench.fails(&args(&long), REFUSED, &["up to byte 99999999", "vm/d"]);
    assert_eq!(bench.run(&["backup", "vm/d", &disk, "--since", "latest"]).code(), Some(USAGE));
    assert_eq!(bench.snapshots("vm/d").len(), 1);
}
