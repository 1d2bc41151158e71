//! `list`, against `find`.

use crate::common::Bench;
use crate::disks::{alone, make, Mounted, MIB};
use crate::nasty;
use serde_json::Value;
use std::collections::BTreeMap;

/// Bytes of a name as `list --json` tells them.
fn bytes(entry: &Value, key: &str) -> Vec<u8> {
    match entry[format!("{key}_hex")].as_str() {
        Some(hex) => {
            (0..hex.len()).step_by(2).map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect()
        }
        None => entry[key].as_str().unwrap_or_default().as_bytes().to_vec(),
    }
}

/// Entries as `find` would print them, by their paths.
fn as_find(listed: &Value) -> BTreeMap<Vec<u8>, String> {
    let mut all = BTreeMap::new();
    for e in listed["entries"].as_array().unwrap() {
        let kind = match e["kind"].as_str().unwrap() {
            "file" => 'f',
            "directory" => 'd',
            "link" => 'l',
            "char-device" => 'c',
            "block-device" => 'b',
            "fifo" => 'p',
            "socket" => 's',
            other => panic!("{other}"),
        };
        let (size, links) = match kind {
            'f' | 'l' => (e["size"].to_string(), e["links"].to_string()),
            'd' => ("-".into(), "-".into()),
            _ => ("-".into(), e["links"].to_string()),
        };
        let mode = e["mode"].as_u64().unwrap();
        let nanos = i128::from(e["modified"].as_i64().unwrap()) * 1_000_000_000
            + i128::from(e["modified_nanos"].as_i64().unwrap());
        let link = String::from_utf8_lossy(&bytes(e, "link")).into_owned();
        let line = format!("{kind} {mode:o} {} {} {size} {links} {nanos} {link}", e["uid"], e["gid"]);
        assert_eq!(all.insert(bytes(e, "path"), line), None);
    }
    all
}

#[test]
fn lists_are_those_of_find() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 200 * MIB, "mkfs.ext4 -q -F -b 4096");
    nasty::fill(Mounted::new(&image).path());
    bench.backup("vm/d", image.to_str().unwrap());
    let mounted = Mounted::as_it_is(&image);
    let top = mounted.path().to_str().unwrap();
    let mut find = std::process::Command::new("find");
    find.args([top, "-mindepth", "1", "-printf", "%y %m %U %G %s %n %T@ \\0%l\\0/%P\\0"]);
    let printed = find.output().unwrap().stdout;
    let mut theirs = BTreeMap::new();
    let fields: Vec<&[u8]> = printed.split(|b| *b == 0).collect();
    for node in fields.chunks_exact(3) {
        let head = std::str::from_utf8(node[0]).unwrap();
        let words: Vec<&str> = head.split_whitespace().collect();
        let [kind, mode, uid, gid, mut size, mut links, time] = words[..] else { panic!("{head}") };
        if !"fl".contains(kind) {
            size = "-";
        }
        if kind == "d" {
            links = "-";
        }
        let (seconds, fraction) = time.split_once('.').unwrap();
        let (seconds, fraction) = (seconds.parse::<i128>().unwrap(), fraction[..9].parse::<i128>().unwrap());
        // -1.25 stands for three quarters of a second before 1970.
        let nanos = seconds * 1_000_000_000 + fraction;
        let link = String::from_utf8_lossy(node[1]);
        let line = format!("{kind} {mode} {uid} {gid} {size} {links} {nanos} {link}");
        theirs.insert(node[2].to_vec(), line);
    }
    let recursive = bench.json(&["files", "vm/d", "list", "-r"]);
    let ours = as_find(&recursive);
    for (path, line) in &theirs {
        assert_eq!(ours.get(path), Some(line), "{}", path.escape_ascii());
    }
    assert_eq!(ours.len(), theirs.len());
    assert_eq!(recursive["damaged_count"], 0);

    // One directory, by its path and with its volume.
    let one = as_find(&bench.json(&["files", "vm/d", "list", "disk:/special/"]));
    let within = |p: &&Vec<u8>| p.starts_with(b"/special/");
    assert_eq!(one.keys().collect::<Vec<_>>(), theirs.keys().filter(within).collect::<Vec<_>>());

    // For people: a line each, without what a terminal would obey.
    let text = String::from_utf8(bench.done(&["files", "vm/d", "list", "-r"]).stdout).unwrap();
    assert_eq!(text.lines().count(), theirs.len());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    for said in [
        "-rwsr-sr-x  1234  5678",
        "drwxrwsr-x     0     0",
        " 511, 262143 ",
        " 2001-09-09T01:46:40Z /copying/empty",
        "/copying/absolute -> /copying/of 9 GiB",
        "/names/\\xff\\xfe\\x80",
    ] {
        assert!(text.contains(said), "{said}");
    }
    drop(mounted);

    // Who hears enough ends us without a panic.
    let pipe = "\"$0\" --json files vm/d list -r | head -c 100";
    let binary = env!("CARGO_BIN_EXE_sapwood");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", pipe, binary]).env("SAPWOOD_STORE", &bench.store);
    let said = shell.output().unwrap().stderr;
    assert!(!String::from_utf8_lossy(&said).contains("panicked"), "{}", String::from_utf8_lossy(&said));
}
