//! `backup --since SNAP --changed FILE`.

use crate::common::{random, Bench, DONE, FAILED, REFUSED, USAGE};

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
    // The result is one line, which a script can read.
    assert_eq!(said.lines().count(), 1, "{said}");
    let newest = bench.snapshots("vm/d").pop().unwrap();
    let one = bench.done(&["backup", "vm/d", &disk, "--since", &newest, "--changed", &rbd]);
    let said = String::from_utf8_lossy(&one.stdout).into_owned();
    assert!(
        said.ends_with("; read: 4.00 MiB, what may have changed\n") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn lists_that_cannot_be_right_are_refused() {
    let bench = Bench::new("balanced");
    let disk = bench.file("disk", &random(1 << 20, 2));
    let first = bench.backup("vm/d", &disk);
    let cut = bench.file("cut", b"[{\"offset\":0,\"leng");
    let long = bench.file("long", b"0 99999999\n");
    let args =
        |list: &str| ["backup", "vm/d", &disk, "--since", &first, "--changed", list].map(str::to_owned);
    bench.fails(&args(&cut), FAILED, &[&cut, "list of changes"]);
    // Whatever is newest: that would not tell whether the list begins there.
    for vague in ["latest", "2026-11-21", ""] {
        let args = ["backup", "vm/d", &disk, "--since", vague, "--changed", &long];
        bench.fails(&args, USAGE, &["not the id of a snapshot"]);
    }
    bench.fails(&args(&bench.arg("absent")), FAILED, &["absent"]);
    bench.fails(&args(&long), REFUSED, &["up to byte 99999999", "vm/d"]);
    assert_eq!(bench.run(&["backup", "vm/d", &disk, "--since", "latest"]).code(), Some(USAGE));
    assert_eq!(bench.snapshots("vm/d").len(), 1);
}

/// Tools print nothing where nothing has changed. One that was killed prints nothing, too: so it is said.
#[test]
fn an_empty_list_is_a_backup_without_changes() {
    let bench = Bench::new("balanced");
    let mut bytes = random(DISK_BYTES, 3);
    let disk = bench.file("disk", &bytes);
    let mut newest = bench.backup("vm/d", &disk);
    let empty = bench.file("empty", b"");
    for (more, lines) in [(&[][..], 1), (&["-q"], 0)] {
        let args =
            [more, &["--json", "backup", "vm/d", &disk, "--since", &newest, "--changed", &empty]].concat();
        let ended = bench.run(&args);
        assert_eq!(ended.code(), Some(DONE), "{ended}");
        assert_eq!(ended.stderr.lines().count(), lines, "{ended}");
        if lines == 1 {
            ended.expect_one_line(&[&empty, "the list of changes is empty"]);
        }
        let told = ended.json();
        assert_eq!(told["scan"], serde_json::json!({ "kind": "changed", "bytes": 0, "why": null }));
        assert_eq!((&told["changed_bytes"], &told["new_bytes"]), (&0.into(), &0.into()));
        newest = told["snapshot"].as_str().unwrap().to_owned();
        assert!(bench.restored("vm/d@latest") == bytes);
    }
    // One of a command that failed.
    bytes.chunks_mut(1 << 20).for_each(|part| part[..5000].fill(7));
    bytes[15 << 20..].fill(7);
    std::fs::write(&disk, &bytes).unwrap();
    let ended = bench.run(&["--json", "backup", "vm/d", &disk, "--since", &newest, "--changed", &empty]);
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    let scan = ended.json()["scan"].clone();
    assert_eq!(scan["kind"], "whole");
    assert!(scan["why"].as_str().unwrap().contains("does not name bytes"), "{scan}");
    assert!(bench.restored("vm/d@latest") == bytes);
    newest = ended.json()["snapshot"].as_str().unwrap().to_owned();
    // A list without changes that says so is no reason for a word.
    let none = bench.file("none", b"# none\n");
    bench.done(&["backup", "vm/d", &disk, "--since", &newest, "--changed", &none]);
    bench.verify();
}
