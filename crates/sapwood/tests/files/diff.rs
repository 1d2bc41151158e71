//! `sapwood diff`: the files that differ, against two mounted trees.

use crate::common::Bench;
use crate::disks::{alone, blank, make, partition, put, run, text, Mounted, MIB};
use crate::tree::{tree, Node, Tree};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{utimensat, AtFlags, Timespec, Timestamps, CWD};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{symlink, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What was told of each path of a volume.
fn told(report: &Value, volume: &str) -> BTreeMap<String, String> {
    let volumes = report["volumes"].as_array().unwrap();
    let found = volumes.iter().find(|v| v["name"] == volume).unwrap_or_else(|| panic!("{report}"));
    let text = |v: &Value| v.as_str().unwrap().to_string();
    found["files"].as_array().unwrap().iter().map(|f| (text(&f["path"]), text(&f["change"]))).collect()
}

/// What should be told, by two trees.
fn expected(old: &Tree, new: &Tree) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let names = |tree: &Tree, ino: &[u8]| tree.values().filter(|n| n.first_name == ino).count();
    for path in old.keys().chain(new.keys()).filter(|p| !p.is_empty()) {
        let change = match (old.get(path), new.get(path)) {
            (Some(_), None) => "removed",
            (None, _) => "added",
            (Some(o), Some(n)) => {
                let content = |n: &Node| (n.mode >> 12, n.size, n.content, n.link.clone(), n.device);
                let links = |tree: &Tree, n: &Node| names(tree, &n.first_name);
                if content(o) != content(n) {
                    "content"
                } else if (o.mode, o.owner, o.time, &o.attributes) != (n.mode, n.owner, n.time, &n.attributes)
                    || links(old, o) != links(new, n)
                {
                    "attributes"
                } else {
                    continue;
                }
            }
        };
        all.insert(format!("/{}", String::from_utf8_lossy(path)), change.to_string());
    }
    all
}

fn set_time(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Writes in place and puts the time back, as what hides does.
fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let before = fs::metadata(path).unwrap();
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
    set_time(path, before.mtime(), before.mtime_nsec());
}

fn fill(top: &Path) {
    for dir in 0..8 {
        let dir = top.join(format!("dir{dir}"));
        fs::create_dir(&dir).unwrap();
        (0..40u32).for_each(|n| {
            let content: Vec<u8> = (0..n * 977).map(|b| (b * n / 7) as u8).collect();
            fs::write(dir.join(format!("file{n}")), content).unwrap();
        });
    }
    symlink("there", top.join("link")).unwrap();
    fs::create_dir_all(top.join("gone/below")).unwrap();
    fs::write(top.join("gone/below/file"), "x").unwrap();
    let sparse = File::create(top.join("sparse")).unwrap();
    sparse.set_len(100 << 30).unwrap();
    sparse.write_all_at(b"middle", 50 << 30).unwrap();
}

/// Each change that there is, once; and many of them by chance.
fn change(top: &Path, rng: &mut StdRng) {
    let file = |n: u32| top.join(format!("dir1/file{n}"));
    overwrite(&file(30), 20_000, b"in place");
    overwrite(&top.join("sparse"), 50 << 30, b"MIDDLE");
    set_time(&file(31), 1_000_000_000, 5);
    fs::set_permissions(file(32), fs::Permissions::from_mode(0o600)).unwrap();
    rustix::fs::lsetxattr(file(33), "user.new", b"x", rustix::fs::XattrFlags::empty()).unwrap();
    std::os::unix::fs::chown(file(34), Some(7), None).unwrap();
    fs::rename(file(35), top.join("dir2/renamed")).unwrap();
    fs::hard_link(file(36), top.join("second name")).unwrap();
    fs::remove_dir_all(top.join("gone")).unwrap();
    fs::create_dir_all(top.join("new/below")).unwrap();
    fs::write(top.join("new/below/\u{1b}[31m"), "x").unwrap();
    fs::remove_file(top.join("link")).unwrap();
    symlink("where", top.join("link")).unwrap();
    fs::remove_file(file(37)).unwrap();
    fs::create_dir(file(37)).unwrap();
    // Read and written as it was: the same content elsewhere.
    let content = fs::read(file(38)).unwrap();
    let meta = fs::metadata(file(38)).unwrap();
    fs::write(top.join("copy"), &content).unwrap();
    fs::rename(top.join("copy"), file(38)).unwrap();
    set_time(&file(38), meta.mtime(), meta.mtime_nsec());
    for _ in 0..40 {
        let path = top.join(format!("dir{}/file{}", rng.random_range(3..8), rng.random_range(1..40)));
        let size = fs::metadata(&path).map_or(0, |m| m.len());
        match rng.random_range(0..4) {
            _ if size == 0 => {}
            0 => overwrite(&path, rng.random_range(0..size), b"!"),
            1 => fs::remove_file(&path).unwrap(),
            2 => File::options().write(true).open(&path).unwrap().set_len(size / 2).unwrap(),
            _ => fs::write(&path, [7; 9]).unwrap(),
        }
    }
}

/// No range is missing: outside of them the two disks are the same, byte for byte.
fn check_ranges(bench: &Bench, report: &Value, old: &str, new: &str) {
    let (a, b) = (bench.restored(old), bench.restored(new));
    let common = a.len().min(b.len());
    let mut at = 0;
    let mut bytes = 0;
    for r in report["ranges"].as_array().unwrap() {
        let (start, len) = (r[0].as_u64().unwrap() as usize, r[1].as_u64().unwrap() as usize);
        assert!(start >= at && len > 0, "{r}");
        let same = at.min(common)..start.min(common);
        assert!(a[same.clone()] == b[same.clone()], "{same:?} is not told");
        at = start + len;
        bytes += len;
    }
    assert!(a[at.min(common)..common] == b[at.min(common)..common], "behind {at}");
    assert_eq!(report["bytes"], bytes);
}

fn compared(policy: &str, how: &str, bytes: u64, seed: u64) {
    let _alone = alone();
    println!("seed {seed}");
    let bench = Bench::new(policy);
    let (first, second) = (make(&bench.path("first"), bytes, how), bench.path("second"));
    fill(Mounted::new(&first).path());
    bench.backup("vm/d", text(&first));
    run("cp", &["--sparse=always", text(&first), text(&second)]);
    change(Mounted::new(&second).path(), &mut StdRng::seed_from_u64(seed));
    bench.backup("vm/d", text(&second));
    let (old, new) = (trees(&first), trees(&second));
    let report = bench.json(&["diff", "vm/d@latest~1", "vm/d"]);
    assert_eq!(told(&report, "disk"), expected(&old, &new));
    check_ranges(&bench, &report, "vm/d@latest~1", "vm/d");
    let turned = bench.json(&["diff", "vm/d", "vm/d@latest~1"]);
    assert_eq!(told(&turned, "disk"), expected(&new, &old));
    let none = bench.json(&["diff", "vm/d", "vm/d"]);
    assert_eq!((&none["bytes"], told(&none, "disk").len()), (&0.into(), 0));
    // For people.
    let text = String::from_utf8(bench.done(&["diff", "vm/d@latest~1", "vm/d"]).stdout).unwrap();
    for line in [
        "M disk:/dir1/file30",
        "M disk:/sparse",
        "a disk:/dir1/file31",
        "D disk:/dir1/file35",
        "A disk:/dir2/renamed",
        "D disk:/gone/below/file",
        "A disk:/new/below/\\x1b[31m",
        "M disk:/dir1/file37",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    assert_eq!(text.lines().count(), expected(&old, &new).len() + 1);
    let ranges =
        String::from_utf8(bench.done(&["diff", "--ranges", "vm/d@latest~1", "vm/d"]).stdout).unwrap();
    assert_eq!(ranges.lines().count(), report["ranges"].as_array().unwrap().len() + 1);
    assert!(bench.json(&["diff", "--ranges", "vm/d@latest~1", "vm/d"]).get("volumes").is_none());
}

fn trees(image: &Path) -> Tree {
    tree(Mounted::as_it_is(image).path())
}

#[test]
fn changed_files_of_ext4() {
    if !testing::can_mount("ext4") {
        return;
    }
    compared("balanced", "mkfs.ext4 -q -F -b 4096", 100 * MIB, 1);
}

#[test]
fn changed_files_of_xfs_in_an_old_snapshot() {
    if !testing::can_mount("xfs") {
        return;
    }
    compared("reverse", "mkfs.xfs -q -f", 320 * MIB, 2);
}

#[test]
fn changed_files_by_chunks_that_content_cuts() {
    if !testing::can_mount("ext4") {
        return;
    }
    compared("vm-centric", "mkfs.ext4 -q -F -b 4096", 100 * MIB, 3);
}

/// A partition was moved so that a file came to lie where another one had been, which was written nowhere: its old data
/// was not looked at.
#[test]
fn a_volume_that_was_moved_is_compared_in_full() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 40 * MIB, "mkfs.ext4 -q -F -b 4096 -O ^has_journal");
    let size = 8 * MIB;
    fs::write(Mounted::new(&image).path().join("file"), vec![1; size as usize]).unwrap();
    let blocks = run("debugfs", &["-R", "blocks /file", text(&image)]);
    let first: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let disk = |name: &str, start: u64, byte: u8| -> PathBuf {
        let disk = blank(&bench.path(name), 60 * MIB);
        partition(&disk, &format!("label: dos\nstart={}M,size=40M,type=83\n", start / MIB));
        put(&image, &disk, start);
        let at = start + first * 4096;
        let file = File::options().write(true).open(&disk).unwrap();
        file.write_all_at(&vec![byte; size as usize], at).unwrap();
        // Behind it, where the file will be once the volume was moved, or in front of it, where it was.
        let other = if start == MIB { at + size } else { at - size };
        file.write_all_at(&vec![3 - byte; size as usize], other).unwrap();
        disk
    };
    bench.backup("vm/d", text(&disk("first", MIB, 1)));
    bench.backup("vm/d", text(&disk("second", MIB + size, 2)));
    let report = bench.json(&["diff", "vm/d@latest~1", "vm/d"]);
    let expected = BTreeMap::from([("/file".to_string(), "content".to_string())]);
    assert_eq!(told(&report, "1"), expected);
}

/// Disks of two machines, one of them longer, with other tables and policies.
#[test]
fn two_disks() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 40 * MIB, "mkfs.ext4 -q -F -b 4096");
    fs::write(Mounted::new(&image).path().join("both"), "same").unwrap();
    let one = blank(&bench.path("one"), 60 * MIB);
    partition(&one, "label: dos\nstart=1M,size=40M,type=83\nstart=45M,size=10M,type=83\n");
    put(&image, &one, MIB);
    fs::write(Mounted::new(&image).path().join("more"), "new").unwrap();
    let two = blank(&bench.path("two"), 80 * MIB);
    partition(&two, "label: gpt\nstart=1M,size=40M\n");
    put(&image, &two, MIB);
    bench.backup("vm/one", text(&one));
    bench.done(&["-q", "backup", "vm/two", text(&two), "--policy", "conventional"]);
    let report = bench.json(&["diff", "vm/one", "vm/two"]);
    check_ranges(&bench, &report, "vm/one", "vm/two");
    assert_eq!(told(&report, "1")["/more"], "added");
    assert!(!told(&report, "1").contains_key("/both"), "{report}");
    let last = report["ranges"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last[0].as_u64().unwrap() + last[1].as_u64().unwrap(), 80 * MIB);
    bench.fails(&["diff", "vm/one", "vm/none"], 1, &["vm/none"]);
    bench.fails(&["diff", "vm/one@nothing", "vm/two"], 1, &["nothing"]);
}
