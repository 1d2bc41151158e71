//! Manners that compressors have in common: several files, levels, owners, terminals, names.

use crate::common::{Bench, DAMAGED, REFUSED, USAGE};
use crate::names;
use std::os::unix::fs::{chown, MetadataExt};
use std::process::Command;

fn pages(seed: u64) -> Vec<u8> {
    testing::noise(seed, 300_000).iter().map(|b| b & 0x1f | 0x40).collect()
}

/// A user may name as many as the shell finds. One that is wrong keeps no other from its turn.
#[test]
fn several_files_are_done_one_after_the_other() {
    let bench = Bench::bare();
    let files = ["a", "b", "c"].map(|name| bench.file(name, &pages(name.len() as u64)));
    let [a, b, c] = files.each_ref().map(String::as_str);
    let (am, bm) = (format!("{a}.mz"), format!("{b}.mz"));
    bench.done(&["mzip", a, b]);
    assert_eq!(names(&bench, ""), ["a", "a.mz", "b", "b.mz", "c"]);
    // What is there is refused, the third file is compressed all the same.
    bench.fails(&["mzip", a, c], REFUSED, &["a.mz: exists"]);
    assert_eq!(names(&bench, "c"), ["c", "c.mz"]);
    let listed = bench.json(&["munzip", "-l", &am, &bm]);
    let all: Vec<&str> =
        listed["files"].as_array().unwrap().iter().map(|f| f["archive"].as_str().unwrap()).collect();
    assert_eq!(all, [&am, &bm]);
    bench.done(&["munzip", "-t", &am, &bm]);
    let both = bench.done(&["munzip", "-c", &am, &bm]).stdout;
    assert!(both == [pages(1), pages(1)].concat());
    let json = bench.json(&["munzip", "-f", &am, &bm]);
    assert_eq!(json["files"][1]["original_bytes"].as_u64(), Some(300_000));
    let mut wrong = std::fs::read(&am).unwrap();
    wrong[100] ^= 1;
    std::fs::write(&am, wrong).unwrap();
    let ended = bench.run(&["--json", "munzip", "-t", &am, &bm]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    let files = ended.json()["files"].clone();
    assert!(files[0]["error"].as_str().unwrap().contains("a.mz: damaged at byte"), "{files}");
    assert_eq!(files[1]["tested"], true);
    bench.fails(&["mzip", a, b, "-o", &bench.arg("x")], USAGE, &["-o names one result"]);
    bench.fails(&["mzip", a, b, "-c"], USAGE, &["-c takes one file"]);
    bench.fails(&["mzip", a, "-", "-f"], USAGE, &["standard input stands alone"]);
    bench.fails(&["munzip", &am, &bm, "--range", "0+1"], USAGE, &["a range is of one archive"]);
}

/// `-9` is the best that gzip has here, and of several short options the last one counts.
#[test]
fn levels_are_those_of_the_compressor() {
    let bench = Bench::bare();
    let file = bench.file("file", &testing::noise(3, 2_000_000).iter().map(|b| b % 23).collect::<Vec<u8>>());
    let level = |options: &[&str]| {
        bench.done(&[&["mzip", &file, "-f"], options].concat());
        bench.json(&["munzip", "-l", &format!("{file}.mz")])["level"].as_u64().unwrap()
    };
    assert_eq!(level(&["--with", "gzip"]), 10);
    assert_eq!(level(&["--with", "gzip", "-9"]), 12);
    assert_eq!(level(&["--with", "gzip", "--level", "9"]), 9);
    assert_eq!(level(&["--with", "zstd", "-9", "-1"]), 1);
    assert_eq!(level(&["--with", "zstd", "-9", "-k18"]), 18);
    assert_eq!(level(&["--level", "2", "-1"]), 1);
    assert_eq!(level(&["-1", "--level", "2"]), 2);
    bench.fails(&["mzip", &file, "-f", "-20"], USAGE, &["zstd has levels 1 to 19"]);
    assert_eq!(level(&["--with", "xz", "--level", "0"]), 0);
    bench.fails(&["mzip", &file, "-f", "--level", "0"], USAGE, &["zstd has levels 1 to 19"]);
}

/// What root compresses for another user stays that user's.
#[test]
fn a_file_keeps_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return testing::skip("root", "only root can give files away");
    }
    let bench = Bench::bare();
    let (file, tar) = (bench.file("file", &pages(1)), bench.file("a.tar", &pages(2)));
    let owner = |path: &str| {
        let of = std::fs::metadata(path).unwrap();
        (of.uid(), of.gid())
    };
    [&file, &tar].iter().for_each(|path| chown(path, Some(65534), Some(12)).unwrap());
    bench.done(&["mzip", &file, "--rm"]);
    assert_eq!(owner(&format!("{file}.mz")), (65534, 12));
    bench.done(&["munzip", &format!("{file}.mz"), "--rm"]);
    assert_eq!(owner(&file), (65534, 12));
    bench.done(&["mtar", "migrate", &tar, &bench.arg("a.mtar")]);
    assert_eq!(owner(&bench.arg("a.mtar")), (65534, 12));
}

#[test]
fn mtar_says_what_it_was_given() {
    let bench = Bench::bare();
    let dir = bench.dir.path().to_str().unwrap().to_owned();
    let out = bench.arg("out");
    bench.fails(&["mtar", "migrate", &dir, &out], REFUSED, &[&dir, "is a directory"]);
    let file = bench.file("file", &pages(1));
    let ended = bench.run(&["mtar", "migrate", &file, &out, "--align", "4k"]);
    assert!(ended.to_string().contains("without tar headers"), "{ended}");
    bench.fails(&["mtar", "migrate", &file, &out], REFUSED, &["out: exists"]);
    assert_eq!(bench.run(&["mtar", "migrate", &file, &out, "-f"]).code(), Some(0));
    bench.fails(&["mtar", "restore", &file, &bench.arg("back")], DAMAGED, &["file: damaged at byte 0"]);
    let long = format!("{dir}/{}", "n".repeat(254));
    std::fs::write(&long, b"x").unwrap();
    let start = std::time::Instant::now();
    bench.fails(&["mzip", &long], 1, &["cannot create", "name too long"]);
    assert!(start.elapsed().as_secs() < 5);
}

/// An archive is not for a terminal.
#[test]
fn nothing_binary_goes_to_a_terminal() {
    let bench = Bench::bare();
    let file = bench.file("file", &pages(1));
    for command in ["mzip -c", "mtar migrate"] {
        let to = if command.starts_with("mtar") { " -" } else { "" };
        let line = format!("{} {command} {file}{to}", env!("CARGO_BIN_EXE_sapwood"));
        let ran = Command::new("script").args(["-qec", &line, "/dev/null"]).output();
        let ran = ran.unwrap();
        assert_eq!(ran.status.code(), Some(USAGE), "{line}");
        assert!(String::from_utf8_lossy(&ran.stdout).contains("is not written to a terminal"), "{line}");
    }
}

/// What is written behind the input would be read, and never end.
#[test]
fn standard_output_is_not_the_input() {
    let bench = Bench::bare();
    let file = bench.file("a.tar", &pages(1));
    bench.done(&["mzip", "-k", &file]);
    let archive = format!("{file}.mz");
    for (words, input) in [("mtar migrate", &file), ("mzip -c", &file), ("munzip -c", &archive)] {
        let before = std::fs::read(input).unwrap();
        for redirection in [">>", "1<>"] {
            let last = if words == "mtar migrate" { "-" } else { "" };
            let line =
                format!("{} {words} {input} {last} {redirection} {input}", env!("CARGO_BIN_EXE_sapwood"));
            let ended = Command::new("sh").args(["-c", &line]).output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(REFUSED), "{line}: {said}");
            assert!(said.contains("standard output: is the input itself"), "{line}: {said}");
            assert!(std::fs::read(input).unwrap() == before, "{line}");
        }
    }
}
