//! `tar` and `get` of whole trees.

use crate::common::{Bench, Child, DONE};
use crate::disks::{alone, make, run, Mounted, MIB};
use crate::nasty;
use crate::tree::{assert_same, tree, Node, Tree};
use std::fs::{self, File};
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk that is one file system with a nasty tree, backed up as `vm/d`, and what is on it.
fn nasty_disk(how: &str, bytes: u64) -> (Bench, PathBuf, Tree) {
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), bytes, how);
    nasty::fill(Mounted::new(&image).path());
    bench.backup("vm/d", image.to_str().unwrap());
    let expected = tree(Mounted::as_it_is(&image).path());
    (bench, image, expected)
}

fn is_socket(node: &Node) -> bool {
    node.mode >> 12 == 0o14
}

fn without_sockets(mut tree: Tree) -> Tree {
    tree.retain(|_, node| !is_socket(node));
    tree
}

/// A new directory beside the vault.
fn empty(bench: &Bench, name: &str) -> PathBuf {
    fs::create_dir(bench.path(name)).unwrap();
    bench.path(name)
}

fn tar_to(bench: &Bench, archive: &Path, args: &[&str]) -> String {
    let mut command = bench.command(&[&["files", "vm/d", "tar"], args].concat());
    command.stdout(File::create(archive).unwrap()).stderr(std::process::Stdio::piped());
    let ended = Child::start_as_is(command, "files tar").wait();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    ended.stderr
}

fn trees_come_out(how: &str, bytes: u64) {
    let _alone = alone();
    let (bench, _image, all) = nasty_disk(how, bytes);
    let sockets = all.values().filter(|n| is_socket(n)).count();
    let expected = without_sockets(all);

    let said = bench.json(&["files", "vm/d", "get", "/", "--to", &bench.arg("got")]);
    assert_eq!((&said["left_out_count"], &said["incomplete"]), (&sockets.into(), &0.into()), "{said}");
    assert_same(&tree(&bench.path("got/disk")), &expected, "get", |_, _, _| ());
    fs::remove_dir_all(bench.path("got")).unwrap();

    let archive = bench.path("tar");
    let said = tar_to(&bench, &archive, &[]);
    assert!(said.contains(&format!("{sockets} sockets left out")), "{said}");
    let archive = archive.to_str().unwrap();

    let to = empty(&bench, "by-gnu-tar");
    let gnu = ["--xattrs", "--xattrs-include=*", "--numeric-owner", "--same-owner", "-xpf", archive, "-C"];
    run("tar", &[&gnu[..], &[to.to_str().unwrap()]].concat());
    assert_same(&tree(&to), &expected, "GNU tar", |_, _, _| ());
    fs::remove_dir_all(&to).unwrap();

    let to = empty(&bench, "by-bsdtar");
    run("bsdtar", &["--numeric-owner", "-xpf", archive, "-C", to.to_str().unwrap()]);
    assert_same(&tree(&to), &expected, "bsdtar", |name, ours, theirs| {
        // It takes the fraction of a second of times before 1970 for what is to be added, and leaves `.` as it is.
        if theirs.time.0 < 0 || name.is_empty() {
            ours.time = theirs.time;
        }
        // Access lists are no attributes to it, names of these are as they stand in the archive, and links have none.
        let is_link = theirs.mode >> 12 == 0o12;
        for node in [ours, theirs] {
            let odd = |n: &Vec<u8>| n.starts_with(b"system.") || n.contains(&b'%');
            node.attributes.retain(|n, _| !odd(n) && !is_link);
        }
    });
    fs::remove_dir_all(&to).unwrap();

    let to = empty(&bench, "by-python");
    let script = "import sys, tarfile\n\
                  with tarfile.open(sys.argv[1], errors='surrogateescape') as t: t.extractall(sys.argv[2], numeric_owner=True)";
    run("python3", &["-c", script, archive, to.to_str().unwrap()]);
    assert_same(&tree(&to), &expected, "Python", |_, ours, theirs| {
        // Its times are floating point numbers; it does not know attributes, nor times and second names of links.
        let is_link = theirs.mode >> 12 == 0o12;
        if is_link || (ours.time.0 - theirs.time.0).abs() <= 1 {
            ours.time = theirs.time;
        }
        if is_link {
            ours.first_name = theirs.first_name.clone();
        }
        let access = theirs.attributes.keys().any(|n| n == b"system.posix_acl_access");
        if access {
            ours.mode = theirs.mode;
        }
        (ours.attributes, theirs.attributes) = Default::default();
    });
}

#[test]
fn a_tree_of_ext4_comes_out_as_it_is() {
    if !testing::can_mount("ext4") {
        return;
    }
    trees_come_out("mkfs.ext4 -q -F -b 4096", 200 * MIB);
}

#[test]
fn a_tree_of_xfs_comes_out_as_it_is() {
    if !testing::can_mount("xfs") {
        return;
    }
    trees_come_out("mkfs.xfs -q -f", 400 * MIB);
}

/// Who is not root gets files that are his own, without the bits that would give his rights away.
#[test]
fn what_others_than_root_get() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let (bench, _image, all) = nasty_disk("mkfs.ext4 -q -F -b 4096", 200 * MIB);
    const NOBODY: u32 = 65_534;
    let opened = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    opened(bench.dir.path());
    run("chmod", &["-R", "a+rwX", bench.store.to_str().unwrap()]);
    let to = empty(&bench, "mine");
    chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
    // The binary may lie where nobody else gets at it.
    let binary = bench.path("sapwood");
    let built = std::env::var_os("SAPWOOD_BINARY").unwrap_or(env!("CARGO_BIN_EXE_sapwood").into());
    fs::copy(built, &binary).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
    command.args(["--json", "files", "vm/d", "get", "/", "--to"]).arg(&to).env("SAPWOOD_STORE", &bench.store);
    let ended = Child::start(command, "get as nobody").wait();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    ended.expect_one_line(&[
        "vm/d@",
        "files without extended attributes that only root may set",
        "trusted.overlay",
    ]);
    let is_left_out = |n: &Node| matches!(n.mode >> 12, 0o14 | 0o2 | 0o6);
    let left_out = all.values().filter(|n| is_left_out(n)).count();
    assert_eq!(ended.json()["left_out_count"], left_out, "{ended}");
    let mut expected = all;
    expected.retain(|_, n| !is_left_out(n));
    let got = tree(&to.join("disk"));
    assert_same(&got, &expected, "get as nobody", |_, ours, theirs| {
        assert_eq!(ours.owner, (NOBODY, NOBODY));
        ours.owner = theirs.owner;
        let is_link = theirs.mode >> 12 == 0o12;
        theirs.mode &= if is_link { !0 } else { !0o6000 };
        for node in [ours, theirs] {
            node.attributes.retain(|n, _| n.starts_with(b"user."));
        }
    });
    assert_eq!(got[&b"copying/rights/read only"[..]].attributes.len(), 2);
}

#[test]
fn single_files_and_directories() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let (bench, _image, all) = nasty_disk("mkfs.ext4 -q -F -b 4096", 200 * MIB);
    let get = |path: &str| bench.done(&["files", "vm/d", "get", path, "--to", "-"]).stdout;
    assert_eq!(get("/copying/names/b/below/file"), b"of three directories");
    assert_eq!(get("disk:copying//names/./b/../a/file"), b"of three directories");
    // Links on the way and at the end are followed; absolute ones within the file system.
    let image = Mounted::as_it_is(&bench.path("image"));
    assert_eq!(get("/sizes/big"), fs::read(image.path().join("sizes/big")).unwrap());
    drop(image);
    let size = bench.json(&["files", "vm/d", "list", "/copying/absolute"])["entries"][0]["size"].clone();
    assert_eq!(size, 9u64 << 30);
    bench.fails(&["files", "vm/d", "get", "/copying/round"], 1, &["/copying/round", "symbolic links"]);
    bench.fails(&["files", "vm/d", "get", "/names", "--to", "-"], 2, &["/names is not a file"]);
    bench.fails(&["files", "vm/d", "get", "/sizes/big", "/sizes/size0", "--to", "-"], 2, &["only one file"]);
    // `..` at the end is no name to make.
    let to = bench.arg("several");
    bench.done(&["-q", "files", "vm/d", "get", "/links/..", "--to", &bench.arg("root")]);
    assert!(bench.path("root/disk/links/hard0").exists());
    bench.done(&["-q", "files", "vm/d", "get", "/links", "/copying/names/a", "/sizes/big", "--to", &to]);
    let below = |from: &str| -> Tree {
        let prefix = format!("{from}/").into_bytes();
        let within =
            |(n, node): (&Vec<u8>, &Node)| Some((n.strip_prefix(&prefix[..])?.to_vec(), node.clone()));
        without_sockets(all.iter().filter_map(within).collect())
    };
    for (from, to) in [("links", "several/links"), ("copying/names/a", "several/a")] {
        let mut got = tree(&bench.path(to));
        got.remove(&Vec::new());
        assert_same(&got, &below(from), from, |_, ours, theirs| {
            theirs.first_name = ours.first_name.clone();
        });
    }
    // What is there stays as it is.
    bench.fails(&["files", "vm/d", "get", "/sizes/big", "--to", &to], 1, &["several/big", "File exists"]);
    bench.fails(&["files", "vm/d", "get", "/links", "--to", &to], 1, &["several/links", "File exists"]);
    bench.fails(&["files", "vm/d", "get", "/links", "--to", &bench.arg("several/big")], 1, &["several/big"]);
    // Parts of an archive have whole paths.
    let archive = bench.path("tar");
    tar_to(&bench, &archive, &["/copying/names/b/../a", "/sizes/big"]);
    let listed = run("tar", &["-tf", archive.to_str().unwrap()]);
    assert!(
        listed.starts_with("copying/names/a/\n") && listed.contains("\ncopying/names/a/device\n"),
        "{listed}"
    );
    assert!(listed.ends_with("\nsizes/big\n") && !listed.contains(".."), "{listed}");
}
