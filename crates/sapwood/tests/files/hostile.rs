//! Trees that somebody made to harm whoever copies them.

use crate::common::{Bench, Child, Ended};
use crate::disks::{alone, debugfs, make, patch, run, text, Mounted, MIB};
use rustix::fs::{linkat, mkdirat, open, openat, statat, unlinkat, AtFlags, Mode, OFlags, CWD};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Without checksums, so that what is changed in it is believed.
const TRUSTING: &str = "mkfs.ext4 -q -F -b 1024 -N 30000 -O ^metadata_csum,^dir_index";

fn image(bench: &Bench, fill: impl FnOnce(&Path)) -> PathBuf {
    let image = make(&bench.path("image"), 60 * MIB, TRUSTING);
    fill(Mounted::new(&image).path());
    image
}

/// Replaces a name, of which there is one, by another of the same length.
fn rename(image: &Path, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let bytes = fs::read(image).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|n| bytes[*n..].starts_with(from)).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| patch(image, *at as u64, to));
}

/// With so few files open, as nobody holds one for every directory.
fn with_few_files(bench: &Bench, args: &str) -> Ended {
    let binary = std::env::var_os("SAPWOOD_BINARY").unwrap_or(env!("CARGO_BIN_EXE_sapwood").into());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("ulimit -n 48; exec \"$0\" {args}")]).arg(binary);
    shell.env("SAPWOOD_STORE", &bench.store).current_dir(bench.dir.path());
    Child::start(shell, args).wait()
}

/// A directory that contains itself, and thirty that contain the next one twice: a thousand million paths.
#[test]
fn directories_in_directories_that_are_in_them() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = image(&bench, |top| {
        fs::create_dir_all(top.join("round/below")).unwrap();
        fs::write(top.join("round/file"), "content").unwrap();
        fs::write(top.join("zebra"), "behind it").unwrap();
        (0..=30).for_each(|n| fs::create_dir(top.join(format!("d{n}"))).unwrap());
    });
    let mut commands = vec!["ln round round/below/again".to_string()];
    (0..30).for_each(|n| ["x", "y"].iter().for_each(|to| commands.push(format!("ln d{} d{n}/{to}", n + 1))));
    debugfs(&image, &commands.iter().map(String::as_str).collect::<Vec<_>>());
    bench.backup("vm/d", text(&image));
    let said = "is in itself, or in two others";
    let ended = bench.run(&["files", "vm/d", "get", "/", "--to", &bench.arg("got")]);
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.stderr.contains("sapwood: disk:/round/below/again: ext4: damaged: directory"), "{ended}");
    assert!(ended.stderr.lines().all(|l| l.contains(said)) && ended.stderr.lines().count() >= 31, "{ended}");
    assert_eq!(fs::read(bench.path("got/disk/zebra")).unwrap(), b"behind it");
    let ended = bench.run(&["files", "vm/d", "list", "-r"]);
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(
        ended.stderr.contains(said) && String::from_utf8_lossy(&ended.stdout).contains(" /zebra\n"),
        "{ended}"
    );
    let archive = bench.path("tar");
    let mut tar = bench.command(&["files", "vm/d", "tar"]);
    tar.stdout(File::create(&archive).unwrap());
    let output = tar.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(said));
    assert!(run("tar", &["-tf", text(&archive)]).contains("\nzebra\n"));
}

/// What has one name twice: a link, and a directory or a file that would go where the link leads.
#[test]
fn two_nodes_of_one_name() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let outside = bench.path("outside");
    fs::create_dir(&outside).unwrap();
    let image = image(&bench, |top| {
        for (dir, first, second) in [("one", "la1", "di1"), ("two", "di2", "la2"), ("three", "la3", "fi3")] {
            let dir = top.join(dir);
            fs::create_dir(&dir).unwrap();
            for name in [first, second] {
                match &name[..2] {
                    "la" => symlink(&outside, dir.join(name)).unwrap(),
                    "di" => {
                        fs::create_dir(dir.join(name)).unwrap();
                        fs::write(dir.join(name).join("evil"), "evil").unwrap();
                    }
                    _ => fs::write(dir.join(name), "evil").unwrap(),
                }
            }
            fs::write(dir.join("zebra"), "behind them").unwrap();
        }
    });
    for name in [b"la1", b"di1", b"la2", b"di2", b"la3", b"fi3"] {
        rename(&image, name, b"xxx");
    }
    bench.backup("vm/d", text(&image));
    // The second name costs itself only: it ended the copy of all of it.
    let ended = bench.run(&["files", "vm/d", "get", "/", "--to", &bench.arg("got")]);
    assert_eq!(ended.code(), Some(1), "{ended}");
    for dir in ["one", "two", "three"] {
        let line =
            ended.stderr.lines().find(|l| l.contains(&format!("disk:/{dir}: ext4: damaged: directory")));
        assert!(line.is_some_and(|l| l.contains("\"xxx\"") && l.contains("is there twice")), "{ended}");
        assert!(bench.path("got/disk").join(dir).join("xxx").symlink_metadata().is_ok(), "{dir}");
        assert_eq!(fs::read(bench.path("got/disk").join(dir).join("zebra")).unwrap(), b"behind them");
    }
    assert_eq!(ended.stderr.lines().count(), 3, "{ended}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    let list = bench.run(&["files", "vm/d", "list", "-r"]);
    assert_eq!(list.code(), Some(1), "{list}");
    assert_eq!(String::from_utf8_lossy(&list.stdout).matches("/xxx").count(), 4, "{list}");
    let tar = bench.run(&["files", "vm/d", "tar"]);
    assert!(tar.code() == Some(1) && tar.stderr.lines().count() == 3, "{tar}");
}

/// Names that lead elsewhere are damage, and the rest is copied, also what is in the same directory: that was lost.
#[test]
fn names_that_lead_elsewhere() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = image(&bench, |top| {
        for (dir, name) in [("slash", "up-slash-evil"), ("dots", "Q7"), ("root", "root-evil")] {
            fs::create_dir(top.join(dir)).unwrap();
            fs::write(top.join(dir).join(name), "evil").unwrap();
            fs::write(top.join(dir).join("innocent"), "beside it").unwrap();
        }
        fs::write(top.join("zebra"), "behind them").unwrap();
        symlink("\u{1b}]0;title\u{7}", top.join("\u{1b}[2J")).unwrap();
    });
    rename(&image, b"up-slash-evil", b"../slash-evil");
    rename(&image, b"root-evil", b"/tmp-evil");
    debugfs(&image, &["set_inode_field dots/Q7 mode 0100644"]);
    let bytes = fs::read(&image).unwrap();
    // A length of two, the type of a file, and the name.
    let at = bytes.windows(4).position(|w| w == b"\x02\x01Q7").unwrap();
    patch(&image, at as u64 + 2, b"..");
    bench.backup("vm/d", text(&image));
    let ended = bench.run(&["files", "vm/d", "get", "/", "--to", &bench.arg("a/b/got")]);
    assert_eq!(ended.code(), Some(1), "{ended}");
    for (path, name) in [("slash", "../slash-evil"), ("root", "/tmp-evil"), ("dots", "..")] {
        let begins = format!("disk:/{path}: ext4: damaged: directory");
        let line = ended.stderr.lines().find(|l| l.contains(&begins)).unwrap_or_else(|| panic!("{ended}"));
        assert!(line.contains(&format!("the name \"{name}\"")), "{ended}");
        let beside = bench.path("a/b/got/disk").join(path).join("innocent");
        assert_eq!(fs::read(beside).unwrap(), b"beside it");
    }
    let found = run("find", &[text(&bench.path("a")), "-name", "*evil*"]);
    assert_eq!(found, "");
    assert_eq!(fs::read(bench.path("a/b/got/disk/zebra")).unwrap(), b"behind them");
    let ended = bench.run(&["files", "vm/d", "get", "/\u{1b}[2J", "--to", &bench.arg("a")]);
    assert!(!ended.stderr.contains('\u{1b}') && ended.stderr.contains("\\x1b[2J"), "{ended}");
}

/// Recursion overflowed the stack, and one file was open for each directory on the way.
#[test]
fn ten_thousand_directories_in_each_other() {
    if !testing::can_mount("ext4") {
        return;
    }
    const DEEP: usize = 10_000;
    let _alone = alone();
    let bench = Bench::new("balanced");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let image = image(&bench, |top| {
        let mut at = open(top, flags, Mode::empty()).unwrap();
        for _ in 0..DEEP {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        openat(&at, "bottom", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        // Names of one file at both ends.
        linkat(&at, "bottom", CWD, top.join("top"), AtFlags::empty()).unwrap();
    });
    bench.backup("vm/d", text(&image));
    let ended = with_few_files(&bench, "-q files vm/d get / --to got");
    ended.expect_done();
    let mut at = open(bench.path("got/disk"), flags, Mode::empty()).unwrap();
    for n in 0..DEEP {
        at = openat(&at, "d", flags, Mode::empty()).unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    assert_eq!(statat(&at, "bottom", AtFlags::empty()).unwrap().st_nlink, 2);
    // From below: `rm -r` takes a minute for it.
    unlinkat(&at, "bottom", AtFlags::empty()).unwrap();
    for _ in 0..DEEP {
        at = openat(&at, "..", flags, Mode::empty()).unwrap();
        unlinkat(&at, "d", AtFlags::REMOVEDIR).unwrap();
    }
    let ended = with_few_files(&bench, "files vm/d list -r | wc -l");
    assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), (DEEP + 3).to_string(), "{ended}");
    let ended = with_few_files(&bench, "files vm/d tar | tail -c 1024 | od -An -tx1 -v | sort -u");
    assert_eq!(
        String::from_utf8_lossy(&ended.stdout).split_whitespace().collect::<String>(),
        "00".repeat(16),
        "{ended}"
    );
    bench.backup("vm/d", text(&image));
    let ended = with_few_files(&bench, "diff vm/d@latest~1 vm/d");
    ended.expect_done();
    let blank = make(&bench.path("blank"), 60 * MIB, TRUSTING);
    bench.backup("vm/d", text(&blank));
    let ended = with_few_files(&bench, "diff vm/d@latest~1 vm/d | grep -c ^D");
    assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), (DEEP + 2).to_string(), "{ended}");
}

/// A file was held open for each name of a file that has several.
#[test]
fn many_files_of_several_names() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = image(&bench, |top| {
        for n in 0..300 {
            let dir = top.join(format!("dir{n}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("file"), n.to_string()).unwrap();
            fs::hard_link(dir.join("file"), top.join(format!("file{n}"))).unwrap();
        }
    });
    bench.backup("vm/d", text(&image));
    with_few_files(&bench, "-q files vm/d get / --to got").expect_done();
    for n in 0..300 {
        let stat = rustix::fs::stat(bench.path(&format!("got/disk/file{n}"))).unwrap();
        let other = rustix::fs::stat(bench.path(&format!("got/disk/dir{n}/file"))).unwrap();
        assert_eq!((stat.st_ino, stat.st_nlink), (other.st_ino, 2));
    }
}
