//! Journals of ext file systems that were not unmounted, against the kernel's replay of them.

#![allow(dead_code, reason = "not all helpers are used here")]

#[path = "common/ext.rs"]
mod common;

use common::{alone, debugfs, make, open, run, Comparison, Mounted, Totals, MIB};
use filesystem::FileSystem;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Compares a dirty image, read as it is, with a mount of a copy, whose journal the kernel replays.
fn compare_dirty(image: &Path) -> (Totals, usize) {
    let copy = image.with_extension("copy");
    std::fs::copy(image, &copy).expect("copy");
    let (fs, volume) = open(image);
    assert_eq!(fs.warnings(), [""; 0]);
    let mounted = Mounted::new(&copy, "ro");
    let totals =
        Comparison { fs: &fs, volume: &*volume, is_same: true, totals: Totals::default() }.run(&mounted.dir);
    drop(mounted);
    (totals, differences(image, &copy))
}

/// How many blocks of 1 KiB differ: what the kernel replayed, and a few more.
fn differences(one: &Path, two: &Path) -> usize {
    let (one, two) = (std::fs::read(one).expect("read"), std::fs::read(two).expect("read"));
    one.chunks(1024).zip(two.chunks(1024)).filter(|(a, b)| a != b).count()
}

/// Stops a file system as a power cut would, and returns its image as it is then.
fn cut_power(mounted: Mounted, image: &Path) -> PathBuf {
    run("xfs_io", "xfsprogs", &["-x", "-c", "shutdown", mounted.dir.to_str().expect("text")]);
    let cut = image.with_extension("cut");
    std::fs::copy(image, &cut).expect("copy");
    cut
}

/// Brings all changes into the journal, and not from there to their places as `sync` would.
fn commit(mounted: &Mounted) {
    File::open(&mounted.dir).and_then(|dir| dir.sync_all()).expect("fsync");
}

/// Fills the file system again and again, so that blocks of directories become those of files.
fn stir(mounted: &Mounted, rounds: u8) {
    let magic = [0xc0, 0x3b, 0x39, 0x98];
    for round in 0..rounds {
        let dir = mounted.dir.join(format!("round{round}"));
        std::fs::create_dir(&dir).expect("mkdir");
        for n in 0..300 {
            std::fs::write(dir.join(format!("{} {n}", "name".repeat(30))), magic).expect("write");
        }
        commit(mounted);
        for n in (0..300).filter(|n| n % 50 != 0) {
            std::fs::remove_file(dir.join(format!("{} {n}", "name".repeat(30)))).expect("remove");
        }
        if round > 0 {
            std::fs::remove_dir_all(mounted.dir.join(format!("round{}", round - 1))).expect("remove");
        }
        commit(mounted);
        let content = [&magic[..], &vec![round; 100_000]].concat();
        // Writes until nothing is free.
        for n in 0.. {
            let path = mounted.dir.join(format!("file {round} {n}"));
            if std::fs::write(&path, &content).is_err() {
                break;
            }
        }
        commit(mounted);
        for n in (0..).step_by(2) {
            if std::fs::remove_file(mounted.dir.join(format!("file {round} {n}"))).is_err() {
                break;
            }
        }
    }
}

/// Makes a small file system, stirs it, and cuts its power.
fn check_dirty(args: &[&str], options: &str) -> Totals {
    let _alone = alone();
    let temp = common::temp();
    let image = make(temp.path(), "mkfs.ext4", args, 24 * MIB);
    let mounted = Mounted::new(&image, options);
    stir(&mounted, 4);
    commit(&mounted);
    std::fs::rename(mounted.dir.join("round3"), mounted.dir.join("renamed")).expect("rename");
    let (totals, differences) = compare_dirty(&cut_power(mounted, &image));
    println!("{args:?} {options}: {totals:?}, {differences} blocks differ");
    assert!(differences > 100, "the journal was empty");
    totals
}

#[test]
fn a_journal_is_replayed() {
    if !testing::can_mount("ext4") {
        return;
    }
    check_dirty(&["-b", "1024"], "defaults");
    check_dirty(&["-b", "4096"], "defaults");
}

#[test]
fn a_journal_with_data_is_replayed() {
    if !testing::can_mount("ext4") {
        return;
    }
    check_dirty(&["-b", "1024"], "data=journal");
    check_dirty(&["-b", "2048", "-O", "bigalloc", "-C", "4096"], "data=journal");
}

#[test]
fn a_journal_without_checksums_is_replayed() {
    if !testing::can_mount("ext4") {
        return;
    }
    check_dirty(&["-b", "1024", "-O", "^metadata_csum,^64bit,^extents"], "defaults");
    check_dirty(&["-b", "1024", "-O", "^metadata_csum"], "data=journal");
}

/// A file system that has grown may say so in its journal only.
#[test]
fn the_journals_superblock_counts() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let temp = common::temp();
    let image =
        make(temp.path(), "mkfs.ext4", &["-b", "1024", "-O", "^metadata_csum", "-L", "old"], 24 * MIB);
    let content = temp.path().join("content");
    let mut superblock = std::fs::read(&image).expect("read")[1024..2048].to_vec();
    superblock[4..8].copy_from_slice(&32_000u32.to_le_bytes());
    superblock[0x78..0x7b].copy_from_slice(b"new");
    std::fs::write(&content, superblock).expect("write");
    debugfs(&image, &["journal_open", &format!("journal_write -b 1 {}", content.display()), "journal_close"]);
    let (fs, _) = open(&image);
    assert_eq!(fs.label(), b"new");
    assert_eq!(fs.warnings(), ["it has 32000 blocks, and only 24576 are there"]);
}

#[test]
fn fast_commits_are_a_warning() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let temp = common::temp();
    let image = make(temp.path(), "mkfs.ext4", &["-O", "fast_commit"], 64 * MIB);
    let mounted = Mounted::new(&image, "defaults");
    std::fs::write(mounted.dir.join("first"), "first").expect("write");
    run("sync", "coreutils", &["-f", mounted.dir.to_str().expect("text")]);
    std::fs::write(mounted.dir.join("second"), "second").expect("write");
    File::open(mounted.dir.join("second")).and_then(|f| f.sync_all()).expect("fsync");
    let (fs, _) = open(&cut_power(mounted, &image));
    let warnings = fs.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("fast commits"), "{warnings:?}");
    assert!(fs.lookup(fs.root(), b"first").expect("readable").is_some());
}

/// An image with a file of 20 blocks, and transactions of debugfs: the last one revokes the file's sixth block.
fn written_by_debugfs(dir: &Path, args: &[&str], open: &str) -> (PathBuf, Vec<u64>) {
    let image = make(dir, "mkfs.ext4", &[&["-b", "1024"], args].concat(), 24 * MIB);
    let [old, new] = ["old", "new"].map(|name| dir.join(name));
    std::fs::write(&old, [b'o'; 20 * 1024]).expect("write");
    let mut content = vec![b'n'; 2048];
    content[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
    std::fs::write(&new, content).expect("write");
    debugfs(&image, &[&format!("write {} file", old.display())]);
    let blocks = debugfs(&image, &["blocks file"]);
    let blocks: Vec<u64> = blocks.split_whitespace().filter_map(|b| b.parse().ok()).collect();
    let write = |n: usize| format!("journal_write -b {},{} {}", blocks[n], blocks[n + 1], new.display());
    let revoke = format!("journal_write -r {}", blocks[5]);
    debugfs(&image, &[open, &write(1), &write(4), &revoke, "journal_close"]);
    let journal = debugfs(&image, &["blocks <8>"]);
    (image, journal.split_whitespace().filter_map(|b| b.parse().ok()).collect())
}

/// The first bytes of each of the file's first eight blocks.
fn first_bytes(fs: &dyn FileSystem) -> Vec<u8> {
    let file = fs.lookup(fs.root(), b"file").expect("readable").expect("an entry").id;
    let first = |n: u64| {
        let mut byte = [0];
        fs.read_at(file, n * 1024, &mut byte).expect("readable");
        byte[0]
    };
    (0..8).map(first).collect()
}

const BOTH: [u8; 8] = [b'o', 0xc0, b'n', b'o', 0xc0, b'o', b'o', b'o'];

#[test]
fn all_forms_of_tags_are_read() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    for (args, open_journal) in [
        (&["-O", "metadata_csum"][..], "journal_open -c -v 3"),
        (&["-O", "metadata_csum"], "journal_open -c -v 2"),
        (&["-O", "metadata_csum,^64bit"], "journal_open -c -v 2"),
        (&["-O", "metadata_csum,^64bit"], "journal_open -c -v 3"),
        (&["-O", "^metadata_csum,64bit"], "journal_open"),
        (&["-O", "^metadata_csum,^64bit"], "journal_open"),
    ] {
        let temp = common::temp();
        let (image, _) = written_by_debugfs(temp.path(), args, open_journal);
        let (_, differences) = compare_dirty(&image);
        assert!(differences > 3, "{args:?} {open_journal}");
        assert_eq!(first_bytes(&open(&image).0), BOTH, "{args:?} {open_journal}");
    }
}

/// Changes a byte of the first block of the journal that begins a run with this kind, `behind` blocks behind it.
fn flip(image: &Path, journal: &[u64], kind: u8, nth: usize, behind: usize) {
    let file = OpenOptions::new().read(true).write(true).open(image).expect("open");
    let block = |no: u64| {
        let mut block = vec![0; 1024];
        file.read_exact_at(&mut block, no * 1024).expect("read");
        block
    };
    let is_kind = |no: &&u64| block(**no).starts_with(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind]);
    let at =
        journal.iter().enumerate().filter(|(_, no)| is_kind(no)).nth(nth).expect("a block of this kind").0;
    let mut bytes = block(journal[at + behind]);
    bytes[900] ^= 1;
    file.write_all_at(&bytes, journal[at + behind] * 1024).expect("write");
}

#[test]
fn damage_of_the_journal_is_a_warning() {
    let _alone = alone();
    for (kind, nth, behind, expected, warning) in [
        (1, 0, 1, [b'o', b'o', b'n', b'o', 0xc0, b'o', b'o', b'o'], "version of block"),
        (1, 1, 0, [b'o', 0xc0, b'n', b'o', b'o', b'o', b'o', b'o'], "transaction 2 and those behind it"),
        (2, 1, 0, [b'o', 0xc0, b'n', b'o', b'o', b'o', b'o', b'o'], "transaction 2 and those behind it"),
        (5, 0, 0, [b'o', 0xc0, b'n', b'o', 0xc0, b'n', b'o', b'o'], "transaction 3 and those behind it"),
        (4, 0, 0, [b'o'; 8], "its journal was not replayed"),
    ] {
        let temp = common::temp();
        let (image, journal) = written_by_debugfs(temp.path(), &[], "journal_open -c -v 3");
        flip(&image, &journal, kind, nth, behind);
        let (fs, _) = open(&image);
        assert_eq!(first_bytes(&fs), expected, "kind {kind}");
        let warnings = fs.warnings();
        assert!(warnings.len() == 1 && warnings[0].contains(warning), "kind {kind}: {warnings:?}");
    }
}
