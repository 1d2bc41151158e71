//! Names, snapshots and options that make no sense.

use super::Kept;
use crate::common::{random, sapwood, Bench, Child, FAILED, REFUSED, USAGE};

#[test]
fn names_of_disks() {
    let kept = Kept::new();
    let source = kept.bench.arg("kept");
    for name in ["", "vm", "vm/", "/vm", "a/b/c", "vm/.hidden", "../x", "vm/a b", "vm/a*", "vm/a\nb"] {
        kept.bench.fails(&["backup", name, &source], USAGE, &["is no name of a disk", "web01/vda"]);
    }
    let long = format!("vm/{}", "x".repeat(600));
    kept.bench.fails(&["backup", &long, &source], USAGE, &["is no name of a disk"]);
    for name in ["vm/none", "other/kept"] {
        let said = ["there is no disk", name, "sapwood snapshots"];
        kept.bench.fails(&["restore", name, "-"], FAILED, &said);
        kept.bench.fails(&["delete", &format!("{name}@latest")], FAILED, &said);
        kept.bench.fails(&["snapshots", name], FAILED, &said);
        kept.bench.fails(&["compact", name], FAILED, &said);
        kept.bench.fails(&["verify", name], FAILED, &said);
    }
    kept.check();
}

#[test]
fn options() {
    let kept = Kept::new();
    let (bench, source) = (&kept.bench, kept.bench.arg("kept"));
    let backup = |option: &str, value: &str, said: &[&str]| {
        bench.fails(&["backup", "vm/x", &source, option, value], USAGE, said);
    };
    backup("--policy", "best", &["there is no policy \"best\"", "balanced"]);
    backup("--codec", "rar", &["\"rar\" is no codec", "zstd:LEVEL"]);
    backup("--codec", "zstd:99", &["zstd:99", "-7 to 19"]);
    backup("--tag", "novalue", &["--tag novalue", "NAME=VALUE"]);
    backup("--time", "yesterday", &["--time yesterday", "UTC"]);
    backup("--source-format", "vhdx", &["\"vhdx\" is no format", "qcow2"]);
    bench.fails(&["restore", "vm/kept", "-", "--format", "vhdx"], USAGE, &["\"vhdx\" is no format"]);
    let bare = Bench::bare();
    bare.fails(&["init", "--policy", "best"], USAGE, &["there is no policy \"best\""]);
    assert!(!bare.store.exists());
    // What the parser of arguments refuses comes with its usage.
    for wrong in [&["backup"][..], &["frobnicate"], &["compact", "--threshold", "0"], &["delete"]] {
        assert_eq!(bench.run(wrong).code(), Some(USAGE), "{wrong:?}");
    }
    kept.check();
}

#[test]
fn a_vault_that_was_not_named() {
    let mut command = sapwood("/nowhere".as_ref(), &["snapshots"]);
    command.env_remove("SAPWOOD_STORE");
    Child::start(command, "snapshots").wait().expect_failure(USAGE, &["--store", "SAPWOOD_STORE"]);
}

#[test]
fn snapshots_that_match_nothing_or_several() {
    let kept = Kept::new();
    let bench = &kept.bench;
    // Of 17 ids two begin alike.
    for n in 0..17 {
        bench.backup("vm/many", &bench.file("small", &random(5000, n)));
    }
    let ids = bench.snapshots("vm/many");
    let begins = |c: char| ids.iter().filter(|id| id.starts_with(c)).count();
    let several = "0123456789abcdef".chars().find(|c| begins(*c) > 1).unwrap();
    let none = ["latest~17", "latest~x", "latestx", "nothing", "", "1970-01-02", "ffffffffffffffff0"];
    for spec in none.map(String::from).into_iter().chain([several.to_string()]) {
        let name = format!("vm/many@{spec}");
        let said = [name.as_str(), "sapwood snapshots vm/many"];
        bench.fails(&["restore", &name, &bench.arg("target")], FAILED, &said);
        bench.fails(&["verify", &name], FAILED, &said);
        // The good one is not deleted either.
        bench.fails(&["delete", &format!("vm/many@{}", ids[3]), &name], FAILED, &said);
    }
    bench.fails(&["delete", "vm/many"], USAGE, &["name the snapshot", "nothing was deleted"]);
    assert_eq!(bench.snapshots("vm/many"), ids);
    assert!(!bench.path("target").exists());
    kept.check_content();
}

#[test]
fn stores_of_an_unknown_kind() {
    let bench = Bench::bare();
    for (url, said) in [
        ("rados://pool", "not supported"),
        ("s3://bucket/prefix", "not supported"),
        ("mirror:/a,/b", "not supported"),
        ("http://host:1", "not supported"),
        ("ftp://host/x", "no known kind"),
        ("file://host/x", "file:///path"),
        ("", "empty"),
    ] {
        for command in [&["init"][..], &["snapshots"]] {
            let args = [&["--store", url], command].concat();
            bench.fails(&args, REFUSED, &[url, said]);
        }
    }
}
