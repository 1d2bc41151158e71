//! Names, snapshots and options that make no sense.

use super::Kept;
use crate::common::{files_below, random, sapwood, Bench, Child, FAILED, REFUSED, USAGE};
use std::path::Path;

/// `SAPWOOD_CONFIG= sapwood …` made every command fail.
#[test]
fn empty_variables_are_as_good_as_none() {
    let kept = Kept::new();
    let with = |store: &str, args: &[&str]| {
        sapwood(Path::new(store), args).env("SAPWOOD_CONFIG", "").output().unwrap()
    };
    let listed = with(&kept.bench.arg("vault"), &["-q", "snapshots"]);
    assert!(listed.status.success() && listed.stderr.is_empty(), "{listed:?}");
    let none = with("", &["snapshots"]);
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.code() == Some(USAGE) && said.contains("which vault"), "{said}");
    // What is written on the command line is meant.
    for (args, code) in [(["--config", ""], USAGE), (["--store", ""], REFUSED)] {
        assert_eq!(with("", &[&args[..], &["snapshots"]].concat()).status.code(), Some(code));
    }
}

#[test]
fn names_of_disks() {
    let kept = Kept::new();
    let source = kept.bench.arg("kept");
    // A name with a dash in front could be backed up, and was an option to all other commands; one with U+202E turned the
    // rest of its line around.
    let bad = [
        "",
        "vm",
        "vm/",
        "/vm",
        "a/b/c",
        "vm/.hidden",
        "../x",
        "vm/a b",
        "vm/a*",
        "vm/a\nb",
        "-vm/x",
        "vm/-x",
    ];
    let long = format!("vm/{}", "x".repeat(256));
    for name in bad.into_iter().chain(["vm/\u{202e}x", "v\u{200b}m/x", &long]) {
        let args = ["backup", "--", name, &source];
        let said = ["is not the name of a disk", "web01/vda", "letters, digits and . _ - + :", "255 bytes"];
        let ended = kept.bench.fails(&args, USAGE, &said);
        assert!(ended.stderr.trim_end().chars().all(|c| c.is_ascii_graphic() || c == ' '), "{ended}");
    }
    for name in ["büro/plätte", "東京/一"] {
        kept.bench.done(&["-q", "backup", name, &source]);
        assert!(kept.bench.restored(name) == kept.content);
        kept.bench.done(&["delete", &format!("{name}@latest")]);
    }
    kept.bench.collect();
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

/// Gives the kept disk a name that no new disk may have, as an older program could.
fn rename_to(kept: &Kept, name: &str) {
    let objects = kept.bench.store.join("objects");
    let file = format::VaultFile::decode(&std::fs::read(objects.join("vault.json")).unwrap()).unwrap();
    let path = files_below(&objects.join("disks")).into_iter().find(|f| f.ends_with("manifest")).unwrap();
    let place = path.strip_prefix(&objects).unwrap().to_str().unwrap();
    let context = format::Context { vault: file.id, place };
    let mut manifest = format::Manifest::decode(context, &std::fs::read(&path).unwrap()).unwrap();
    manifest.name = name.into();
    std::fs::write(&path, manifest.encode(context)).unwrap();
    std::fs::remove_file(objects.join(format::names::name("vm/kept"))).unwrap();
    let place = format::names::name(name);
    let body = [&manifest.disk.0[..], name.as_bytes()].concat();
    let context = format::Context { vault: file.id, place: &place };
    std::fs::write(objects.join(&place), format::encode_frame(format::Kind::Name, context, &body)).unwrap();
}

/// Disks whose names were allowed once can be used as any other, and are shown so that a terminal obeys nothing in them.
#[test]
fn disks_that_no_new_one_may_be_called() {
    for (name, on_the_command_line) in
        [("-vm/-x", "./-vm/-x"), ("vm/\u{202e}x", "vm/\u{202e}x"), ("-q/x", "./-q/x")]
    {
        let kept = Kept::new();
        rename_to(&kept, name);
        let (bench, disk) = (&kept.bench, on_the_command_line);
        assert!(bench.restored(disk) == kept.content);
        let target = bench.arg("target");
        bench.done(&["-q", "restore", disk, &target]);
        bench.done(&["-q", "backup", disk, &target]);
        for args in
            [&["snapshots", disk][..], &["stats", disk], &["map", disk], &["hold", disk], &["release", disk]]
        {
            let said = String::from_utf8(bench.done(args).stdout).unwrap();
            assert!(!said.contains('\u{202e}'), "{args:?}: {said:?}");
        }
        bench.done(&["-q", "nbd", disk, "--", "true"]);
        bench.done(&["-q", "verify", "--data", &format!("{disk}@latest")]);
        bench.done(&["diff", &format!("{disk}@latest~1"), disk]);
        bench.done(&["files", disk]);
        bench.done(&["compact", disk]);
        let deleted = bench.done(&["delete", &format!("{disk}@latest"), &format!("{disk}@latest~1")]);
        assert!(!deleted.stdout.contains(&0xe2), "{deleted}");
        bench.collect();
        assert_eq!(bench.all_snapshots(), []);
    }
}

/// A line end in a tag began a line of its own in the list.
#[test]
fn tags_are_shown_on_one_line() {
    let kept = Kept::new();
    let tag = "why=a\nvm/forged  0000\u{202e}\x1b[31m";
    kept.bench.done(&["-q", "backup", "vm/kept", &kept.bench.arg("kept"), "--tag", tag]);
    let listed = kept.bench.done(&["snapshots"]).stdout;
    let said = String::from_utf8(listed).unwrap();
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(said.contains("why=a\\x0avm/forged  0000\\xe2\\x80\\xae\\x1b[31m"), "{said}");
}

#[test]
fn options() {
    let kept = Kept::new();
    let (bench, source) = (&kept.bench, kept.bench.arg("kept"));
    let backup = |option: &str, value: &str, said: &[&str]| {
        bench.fails(&["backup", "vm/x", &source, option, value], USAGE, said);
    };
    backup("--policy", "best", &["there is no policy \"best\"", "balanced"]);
    backup("--codec", "rar", &["\"rar\" is not a codec", "zstd:LEVEL"]);
    backup("--codec", "zstd:99", &["zstd:99", "-7 to 19"]);
    backup("--tag", "novalue", &["the tag novalue", "NAME=VALUE"]);
    backup("--time", "yesterday", &["--time yesterday", "UTC"]);
    backup("--source-format", "vhdx", &["\"vhdx\" is not a format", "qcow2"]);
    bench.fails(&["restore", "vm/kept", "-", "--format", "vhdx"], USAGE, &["\"vhdx\" is not a format"]);
    let bare = Bench::bare();
    bare.fails(&["init", "--policy", "best"], USAGE, &["there is no policy \"best\""]);
    assert!(!bare.store.exists());
    // What the parser of arguments refuses comes with its usage.
    for wrong in [
        &["backup"][..],
        &["frobnicate"],
        &["compact", "--threshold", "0"],
        &["compact", "--recompress", "20"],
        &["compact", "--recompress", "9", "--recompress-for", "0s"],
        &["compact", "--recompress-for", "1h"],
        &["delete"],
    ] {
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
        ("ftp://host/x", "not a known kind"),
        ("file://host/x", "file:///path"),
        ("", "empty"),
    ] {
        for command in [&["init"][..], &["snapshots"]] {
            let args = [&["--store", url], command].concat();
            bench.fails(&args, REFUSED, &[url, said]);
        }
    }
}
