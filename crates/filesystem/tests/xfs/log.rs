//! XFS whose log is not empty: read as it is, and compared with what the kernel shows after its own recovery of a copy.

use crate::tree::{fill, noise, sub, write, Plan};
use crate::volume::{compare, make, open, run, set_attribute, Compared, Mount, VOLUME_BYTES};
use filesystem::FileSystem;
use std::ffi::OsStr;
use std::fs::{copy, remove_dir_all, remove_file, rename, File, OpenOptions};
use std::os::unix::fs::{symlink, FileExt};
use std::path::{Path, PathBuf};

const PLAN: Plan = Plan { entries: 3000, pieces: 400, has_bigtime: true, has_reflink: true };

/// A file system that is filled, and unmounted.
struct Filled {
    dir: tempfile::TempDir,
}

impl Filled {
    fn new(options: &str, fill: impl Fn(&Path)) -> Filled {
        let dir = tempfile::tempdir().expect("a directory");
        let filled = Filled { dir };
        make(&filled.image(), VOLUME_BYTES, options);
        fill(Mount::new(&filled.image(), "rw").path());
        filled
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("xfs.img")
    }

    /// Changes it, and stops as by a power cut.
    fn crash(self, flags: &[&str], change: impl Fn(&Path)) -> Filled {
        let mount = Mount::new(&self.image(), "rw");
        change(mount.path());
        shut_down(mount.path(), flags);
        drop(mount);
        self
    }

    /// Compares it with a copy that the kernel has recovered. The log must matter.
    fn check(&self) -> Compared {
        let copied = self.dir.path().join("copy.img");
        copy(self.image(), &copied).expect("a copy");
        check_copy(&self.image(), &copied)
    }
}

fn check_copy(image: &Path, copied: &Path) -> Compared {
    let fs = open(image);
    assert_eq!(fs.warnings(), Vec::<String>::new());
    assert!(fs.was_replayed(), "the log was empty");
    let mount = Mount::new(copied, "rw");
    let compared = compare(&fs, mount.path());
    println!("{compared:?}");
    compared
}

fn shut_down(at: &Path, flags: &[&str]) {
    let command = format!("shutdown {}", flags.join(" "));
    run(
        "xfs_io",
        "xfsprogs",
        &["-x", "-c", &command].map(OsStr::new).iter().copied().chain([at.as_os_str()]).collect::<Vec<_>>(),
    );
}

fn sync(path: &Path) {
    File::open(path).and_then(|f| f.sync_all()).expect("synced");
}

/// Changes of all kinds to a tree that is there.
fn change(root: &Path) {
    remove_dir_all(root.join("names")).expect("gone");
    remove_dir_all(root.join("directories/of-200")).expect("gone");
    for n in 0..1500 {
        remove_file(root.join(format!("directories/of-3000/entry-{n}-{}", "x".repeat(n % 50))))
            .expect("gone");
    }
    let new = sub(root, "new");
    for n in 0..1200u64 {
        write(&new.join(format!("file-{n}")), &noise(n, (n * 37 % 9000) as usize));
        if n % 100 == 0 {
            sync(&new.join(format!("file-{n}")));
        }
    }
    rename(root.join("deep/d0"), new.join("moved")).expect("moved");
    rename(new.join("file-3"), root.join("sizes/big")).expect("over another");
    symlink("l".repeat(700), new.join("link")).expect("a link");
    for n in 0..300 {
        set_attribute(&new.join("file-7"), &format!("user.n{n}"), &noise(n, 100));
        set_attribute(&root.join("attributes/some"), &format!("user.b{}", n % 40), &noise(n, 900));
    }
    set_attribute(&new.join("file-8"), "user.large", &noise(8, 30_000));
    let punched = OpenOptions::new().write(true).open(root.join("fragmented/punched")).expect("it is there");
    (0..200).for_each(|n| punched.write_all_at(&noise(n, 6000), n * 9000).expect("data"));
    punched.sync_all().expect("synced");
    OpenOptions::new()
        .write(true)
        .open(root.join("fragmented/written"))
        .and_then(|f| f.set_len(5000))
        .expect("cut");
}

#[test]
fn a_tree_just_made() {
    if !testing::can_mount("xfs") {
        return;
    }
    let compared = Filled::new("", |_| {}).crash(&["-f"], |root| fill(root, &PLAN)).check();
    assert!(compared.nodes > 5000, "{compared:?}");
}

#[test]
fn a_tree_changed() {
    if !testing::can_mount("xfs") {
        return;
    }
    Filled::new("", |root| fill(root, &PLAN)).crash(&["-f"], change).check();
}

#[test]
fn a_tree_changed_and_not_flushed() {
    if !testing::can_mount("xfs") {
        return;
    }
    Filled::new("-m rmapbt=1", |root| fill(root, &PLAN)).crash(&[], change).check();
}

#[test]
fn a_tree_of_small_blocks_changed_twice() {
    if !testing::can_mount("xfs") {
        return;
    }
    let filled = Filled::new("-b size=1024 -n size=4096 -m bigtime=0", |root| {
        fill(root, &Plan { has_bigtime: false, ..PLAN });
    });
    let crashed = filled.crash(&["-f"], change);
    // The kernel recovers at the next mount, and is stopped again.
    crashed
        .crash(&[], |root| {
            let again = sub(root, "again");
            (0..500).for_each(|n| write(&again.join(n.to_string()), &noise(n, 3000)));
            remove_dir_all(root.join("new")).expect("gone");
            sync(root);
        })
        .check();
}

/// Inodes and blocks are freed and used again for other things, and the log goes round.
#[test]
fn a_log_that_went_round() {
    if !testing::can_mount("xfs") {
        return;
    }
    let churn = |root: &Path| {
        for round in 0..12u64 {
            let dir = sub(root, &format!("round-{round}"));
            for n in 0..900 {
                let path = dir.join(format!("{n}-{}", "y".repeat((n * round % 200) as usize)));
                write(&path, &noise(n, (n * 13 % 5000) as usize));
                set_attribute(&path, "user.n", &noise(n, (n * 7 % 1500) as usize));
            }
            sync(&dir);
            if round % 3 != 2 {
                remove_dir_all(&dir).expect("gone");
            }
            if round % 4 == 1 {
                // What was metadata is data now.
                write(&root.join(format!("data-{round}")), &noise(round, 20 << 20));
                sync(&root.join(format!("data-{round}")));
                remove_file(root.join(format!("data-{}", round.wrapping_sub(4)))).unwrap_or_default();
            }
        }
    };
    for sizes in ["--unsupported -l size=8m", "--unsupported -l size=11m,su=32k -i size=1024"] {
        Filled::new(sizes, |_| {}).crash(&["-f"], churn).check();
    }
}

/// Values of attributes are not logged. Where one took the place of a directory's block, the log still has the latter,
/// and that it was given up.
#[test]
fn what_was_given_up_does_not_come_back() {
    if !testing::can_mount("xfs") {
        return;
    }
    let compared = Filled::new("", |_| {})
        .crash(&["-f"], |root| {
            let old = sub(root, "old");
            (0..60_000).for_each(|n| {
                std::fs::hard_link(root.join("one"), old.join(format!("{n}-{}", "z".repeat(60))))
                    .or_else(|_| File::create(root.join("one")).map(drop))
                    .expect("a name")
            });
            sync(&old);
            remove_dir_all(&old).expect("gone");
            sync(root);
            let file = root.join("values");
            write(&file, b"");
            (0..300).for_each(|n| set_attribute(&file, &format!("user.{n}"), &noise(n, 60_000)));
            sync(&file);
        })
        .check();
    assert_eq!(compared.attributes, 300);
}

/// As a guest's agent does before a snapshot.
#[test]
fn a_frozen_volume() {
    if !testing::can_mount("xfs") {
        return;
    }
    let filled = Filled::new("", |root| fill(root, &PLAN));
    let mount = Mount::new(&filled.image(), "rw");
    change(mount.path());
    let open_and_gone = File::create(mount.path().join("gone")).expect("a file");
    remove_file(mount.path().join("gone")).expect("it was there");
    run("fsfreeze", "util-linux", &[OsStr::new("-f"), mount.path().as_os_str()]);
    let frozen = [filled.dir.path().join("frozen.img"), filled.dir.path().join("frozen-too.img")];
    let copied = frozen.each_ref().map(|to| copy(filled.image(), to).is_ok());
    run("fsfreeze", "util-linux", &[OsStr::new("-u"), mount.path().as_os_str()]);
    drop(open_and_gone);
    drop(mount);
    assert_eq!(copied, [true; 2]);
    check_copy(&frozen[0], &frozen[1]);
}
