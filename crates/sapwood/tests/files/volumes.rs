//! Disks with several volumes: tables, logical volumes, and file systems that Windows knows.

use crate::common::Bench;
use crate::disks::{
    alone, await_end, blank, lvm, make, partition, patch, put, run, text, Loop, Mounted, MIB,
};
use crate::tree::{assert_same, tree};
use std::fs;
use std::path::Path;

fn small_tree(dir: &Path, salt: &str) {
    fs::create_dir_all(dir.join("etc/dir")).unwrap();
    fs::write(dir.join("etc/hostname"), salt).unwrap();
    fs::write(dir.join(format!("only-{salt}")), salt).unwrap();
    fs::write(dir.join("5:colon"), "not the volume 5").unwrap();
    fs::write(dir.join("etc/big"), salt.repeat(300_000)).unwrap();
}

fn filled(bench: &Bench, name: &str, bytes: u64, how: &str) -> std::path::PathBuf {
    let image = make(&bench.path(name), bytes, how);
    small_tree(Mounted::new(&image).path(), name);
    image
}

/// MBR: NTFS and swap in primary partitions; ext4, FAT and nothing in logical ones.
#[test]
fn an_mbr_with_what_windows_and_linux_know() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let disk = blank(&bench.path("mbr.raw"), 240 * MIB);
    partition(
        &disk,
        "label: dos\nstart=1M,size=60M,type=7\nstart=61M,size=10M,type=82\nstart=71M,size=160M,type=f\n\
         start=72M,size=60M,type=83\nstart=140M,size=40M,type=c\nstart=190M,size=20M,type=83\n",
    );
    let ext4 = filled(&bench, "ext4", 60 * MIB, "mkfs.ext4 -q -F");
    put(&ext4, &disk, 72 * MIB);
    let ntfs = make(&bench.path("ntfs"), 60 * MIB, "mkntfs -q -F -Q");
    let windows = bench.path("ntfs.mounted");
    fs::create_dir(&windows).unwrap();
    run("ntfs-3g", &["-o", "streams_interface=none", text(&ntfs), text(&windows)]);
    small_tree(&windows, "ntfs");
    fs::write(windows.join("Größe \u{202e}txt.exe"), "odd").unwrap();
    testing::unmount(&windows);
    await_end("ntfs-3g", &windows);
    put(&ntfs, &disk, MIB);
    let fat = make(&bench.path("fat"), 40 * MIB, "mkfs.fat -F 16 -n BOOT");
    let from = bench.path("from");
    small_tree(&from, "fat");
    fs::remove_file(from.join("5:colon")).unwrap();
    run(
        "mcopy",
        &["-s", "-m", "-i", text(&fat), text(&from.join("etc")), text(&from.join("only-fat")), "::"],
    );
    put(&fat, &disk, 140 * MIB);
    put(&make(&bench.path("swap"), 10 * MIB, "mkswap -q"), &disk, 61 * MIB);
    bench.backup("vm/d", text(&disk));

    let volumes = bench.json(&["files", "vm/d"])["volumes"].clone();
    let shown: Vec<String> = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|v| format!("{} {} {}", v["name"].as_str().unwrap(), v["kind"].as_str().unwrap(), v["size"]))
        .collect();
    let mib = |n: u64| n * MIB;
    let expected = [("1 ntfs", 60), ("2 swap", 10), ("5 ext4", 60), ("6 fat16", 40), ("7 ", 20)]
        .map(|(v, n)| format!("{v} {}", mib(n)));
    assert_eq!(shown, expected);

    let get = |path: &str| {
        String::from_utf8(bench.done(&["files", "vm/d", "get", path, "--to", "-"]).stdout).unwrap()
    };
    assert_eq!(get("/only-ext4"), "ext4");
    assert_eq!(get("only-ntfs"), "ntfs");
    assert_eq!(get("6:ONLY-FAT"), "fat");
    assert_eq!(get("1:/etc/hostname"), "ntfs");
    assert_eq!(get("5:etc/hostname"), "ext4");
    assert_eq!(get("5:/5:colon"), "not the volume 5");
    // Where it is on several volumes, they are named.
    bench.fails(&["files", "vm/d", "list", "/etc"], 1, &["on several volumes", "1:/etc, 5:/etc, 6:/etc"]);
    bench.fails(&["files", "vm/d", "get", "/5:colon"], 1, &["1:/5:colon, 5:/5:colon"]);
    bench.fails(&["files", "vm/d", "tar"], 1, &["/ is on several volumes"]);
    bench.fails(&["files", "vm/d", "list", "/none"], 1, &["vm/d@", "there is no /none"]);
    bench.fails(
        &["files", "vm/d", "list", "9:/etc"],
        1,
        &["there is no /9:/etc", "volumes: 1 (ntfs), 2 (swap), 5 (ext4), 6 (fat16), 7 (unknown)"],
    );
    bench.fails(&["files", "vm/d", "list", "5:/etc/hostname/x"], 1, &["there is no /etc/hostname/x"]);
    bench.fails(&["files", "vm/d", "list", "2:/"], 1, &["volume 2", "swap is not supported"]);
    bench.fails(&["files", "vm/d", "tar", "7:/"], 1, &["volume 7", "no file system that is known"]);
    bench.fails(&["files", "vm/none", "list"], 1, &["vm/none"]);
    bench.fails(&["files", "vm/d@nothing", "list"], 1, &["nothing"]);
    // A list without a path is one of volumes here.
    assert_eq!(bench.json(&["files", "vm/d", "list"])["volumes"], volumes);

    bench.done(&["-q", "files", "vm/d", "get", "1:/", "5:/", "6:/", "--to", &bench.arg("got")]);
    let mounted = Mounted::as_it_is(&ext4);
    assert_same(&tree(&bench.path("got/5")), &tree(mounted.path()), "ext4", |_, _, _| ());
    drop(mounted);
    run("ntfs-3g", &["-o", "ro,streams_interface=none", text(&ntfs), text(&windows)]);
    let theirs = tree(&windows);
    testing::unmount(&windows);
    await_end("ntfs-3g", &windows);
    let only_content = |_: &[u8], ours: &mut crate::tree::Node, theirs: &mut crate::tree::Node| {
        assert_eq!(ours.time.0, theirs.time.0);
        let content = theirs.content;
        assert_eq!((ours.mode >> 12, ours.size), (theirs.mode >> 12, theirs.size));
        *theirs = ours.clone();
        theirs.content = content;
    };
    assert_same(&tree(&bench.path("got/1")), &theirs, "NTFS", only_content);
    let ours = bench.path("got/6");
    for name in ["etc/hostname", "etc/big", "only-fat"] {
        assert!(fs::read(ours.join(name)).unwrap() == fs::read(from.join(name)).unwrap(), "{name}");
    }
    // Marks that turn the direction of text are not shown.
    let text = String::from_utf8(bench.done(&["files", "vm/d", "list", "1:/"]).stdout).unwrap();
    assert!(text.contains("Größe \\xe2\\x80\\xaetxt.exe"), "{text}");
}

/// GPT: XFS, a physical volume with ext4 on a logical one, and what is locked.
#[test]
fn a_gpt_with_logical_volumes() {
    if !testing::can_mount("xfs") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("reverse");
    let disk = blank(&bench.path("gpt.raw"), 520 * MIB);
    partition(
        &disk,
        "label: gpt\nstart=1M,size=310M,name=\"data \u{1b}[31m\"\nstart=320M,size=150M,type=lvm\nstart=480M,size=20M\n",
    );
    let xfs = filled(&bench, "xfs", 310 * MIB, "mkfs.xfs -q -f");
    put(&xfs, &disk, MIB);
    let device = Loop::attach(&disk, 320 * MIB, 150 * MIB);
    lvm(&device.0, &["pvcreate", "-q", "--dataalignment", "1m", &device.0]);
    lvm(&device.0, &["vgcreate", "-q", "-s", "1M", "vg0", &device.0]);
    for (name, size) in [("root", "64M"), ("swap", "8M"), ("empty", "4M")] {
        lvm(&device.0, &["lvcreate", "-q", "-an", "-Zn", "-Wn", "-n", name, "-L", size, "vg0"]);
    }
    drop(device);
    let root = filled(&bench, "root", 64 * MIB, "mkfs.ext4 -q -F");
    put(&root, &disk, 321 * MIB);
    put(&make(&bench.path("swap"), 8 * MIB, "mkswap -q"), &disk, (321 + 64) * MIB);
    patch(&disk, 480 * MIB, b"LUKS\xba\xbe\0\x01");
    bench.backup("vm/d", text(&disk));
    let listed = String::from_utf8(bench.done(&["files", "vm/d"]).stdout).unwrap();
    let shown: Vec<Vec<&str>> = listed.lines().map(|l| l.split_whitespace().take(2).collect()).collect();
    let expected = [
        ["VOLUME", "KIND"],
        ["1", "xfs"],
        ["2", "lvm"],
        ["3", "luks"],
        ["vg0/root", "ext4"],
        ["vg0/swap", "swap"],
        ["vg0/empty", "-"],
    ];
    assert_eq!(shown, expected, "{listed}");
    assert!(listed.contains("data \\x1b[31m") && !listed.contains('\u{1b}'), "{listed}");
    bench.fails(&["files", "vm/d", "list", "3:/"], 1, &["volume 3", "luks is not supported"]);
    bench.fails(&["files", "vm/d", "list", "2:/"], 1, &["volume 2", "lvm is not supported"]);
    bench.fails(&["files", "vm/d", "get", "vg0/swap:/", "--to", "/none"], 1, &["volume vg0/swap", "swap"]);
    bench.fails(&["files", "vm/d", "list", "vg1/root:/etc"], 1, &["no /vg1/root:/etc"]);
    bench.done(&["-q", "files", "vm/d", "get", "vg0/root:", "1:", "--to", &bench.arg("got")]);
    for (image, got) in [(&root, "got/vg0-root"), (&xfs, "got/1")] {
        let mounted = Mounted::as_it_is(image);
        assert_same(&tree(&bench.path(got)), &tree(mounted.path()), got, |_, _, _| ());
    }
    // Nothing at all is on a disk of zeros.
    bench.backup("vm/zeros", text(&blank(&bench.path("zeros"), MIB)));
    bench.fails(&["files", "vm/zeros", "list", "/"], 1, &["vm/zeros@", "no file system that can be read"]);
    bench.fails(&["files", "vm/zeros", "get", "/x"], 1, &["no file system that can be read"]);
    let mut tar = bench.command(&["files", "vm/zeros", "tar"]);
    assert_eq!(tar.output().unwrap().status.code(), Some(1));
}
