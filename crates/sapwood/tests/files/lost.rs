//! What a copy of a tree may not lose without a word, and what may not cost the rest of it.

use crate::common::{Bench, Child, Ended, DONE, FAILED};
use crate::disks::{alone, await_end, debugfs, make, run, text, Mounted, MIB};
use rustix::fs::{lgetxattr, lsetxattr, XattrFlags};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const LARGE: [(&str, usize); 3] = [("user.small", 100), ("user.20k", 20_000), ("user.60k", 60_000)];

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7) as u8).collect()
}

fn get(bench: &Bench, path: &str, to: &str) -> Ended {
    bench.run(&["files", "vm/d", "get", path, "--to", to])
}

/// Large extended attributes were dropped with exit 0 and without their names where the copy could not have them.
#[test]
fn large_attributes_are_copied_or_named() {
    if !testing::can_mount("xfs") {
        return;
    }
    let _alone = alone();
    for (how, bytes) in [("mkfs.ext4 -q -F -O ea_inode -b 4096", 60 * MIB), ("mkfs.xfs -q -f", 320 * MIB)] {
        let bench = Bench::new("balanced");
        let image = make(&bench.path("image"), bytes, how);
        {
            let mounted = Mounted::new(&image);
            let file = mounted.path().join("file");
            fs::write(&file, "content").unwrap();
            fs::create_dir(mounted.path().join("dir")).unwrap();
            for (name, len) in LARGE {
                lsetxattr(&file, name, &value(len), XattrFlags::empty()).unwrap();
                lsetxattr(mounted.path().join("dir"), name, &value(len), XattrFlags::empty()).unwrap();
            }
        }
        bench.backup("vm/d", text(&image));
        let roomy = Mounted::new(&make(&bench.path("roomy"), 320 * MIB, "mkfs.xfs -q -f"));
        get(&bench, "/", text(roomy.path())).expect_done();
        for node in ["disk/file", "disk/dir"] {
            for (name, len) in LARGE {
                let mut got = vec![0; 70_000];
                let n = lgetxattr(roomy.path().join(node), name, &mut got[..]).unwrap();
                assert!(got[..n] == value(len), "{how}: {node}: {name}");
            }
        }
        // Blocks of 4 KiB are all that such a file system has for them.
        let narrow =
            Mounted::new(&make(&bench.path("narrow"), 60 * MIB, "mkfs.ext4 -q -F -b 4096 -O ^ea_inode"));
        let ended = get(&bench, "/", text(narrow.path()));
        assert_eq!(ended.code(), Some(FAILED), "{ended}");
        for line in ["disk:/file: its copy has lost: ", "disk:/dir: its copy has lost: "] {
            let line = ended.stderr.lines().find(|l| l.contains(line)).unwrap_or_else(|| panic!("{ended}"));
            assert!(line.contains("user.20k: ") && line.contains("user.60k: "), "{ended}");
            assert!(!line.contains("user.small"), "{ended}");
        }
        assert!(String::from_utf8_lossy(&ended.stdout).contains("2 without all of their"), "{ended}");
        assert_eq!(fs::read(narrow.path().join("disk/file")).unwrap(), b"content");
    }
}

/// Mounts an NTFS, and fills it. Its streams are what `streams` says.
fn ntfs(image: &Path, streams: &str, fill: impl FnOnce(&Path)) {
    let at = image.with_extension("mounted");
    fs::create_dir_all(&at).unwrap();
    run("ntfs-3g", &["-o", &format!("streams_interface={streams}"), text(image), text(&at)]);
    fill(&at);
    testing::unmount(&at);
    await_end("ntfs-3g", &at);
}

/// Alternate data streams of NTFS that become no extended attribute were left out without a word, and `$EA` always.
#[test]
fn streams_of_ntfs_are_copied_or_named() {
    if !testing::can_mount("xfs") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = bench.path("image");
    let ea = [&[20, 0, 0, 0, 0, 6, 4, 0][..], b"$LXUID\0\xe8\x03\0\0\0"].concat();
    make(&image, 60 * MIB, "mkntfs -q -F -Q");
    // As extended attributes the kernel takes no larger ones.
    ntfs(&image, "windows", |root| {
        let streams = |name: &str, all: &[(&str, usize)]| {
            fs::write(root.join(name), name).unwrap();
            for (stream, len) in all {
                fs::write(root.join(format!("{name}:{stream}")), value(*len)).unwrap();
            }
        };
        streams("sound", &[("small", 100), ("60k", 60_000)]);
        streams("large", &[("small", 100), ("large", 65_537)]);
        // More than 16 MiB in all.
        let many: Vec<String> = (0..290).map(|n| format!("{n:03}")).collect();
        streams("many", &many.iter().map(|n| (&n[..], 60_000)).collect::<Vec<_>>());
    });
    ntfs(&image, "xattr", |root| {
        lsetxattr(root.join("sound"), "system.ntfs_ea", &ea, XattrFlags::empty()).unwrap();
    });
    bench.backup("vm/d", text(&image));
    let to = Mounted::new(&make(&bench.path("to"), 320 * MIB, "mkfs.xfs -q -f"));
    let copied = |node: &str, name: &str| {
        let mut got = vec![0; 70_000];
        let n = lgetxattr(to.path().join("disk").join(node), name, &mut got[..]).ok()?;
        got.truncate(n);
        Some(got)
    };
    let get = get(&bench, "/", text(to.path()));
    let archive = bench.path("tar");
    let mut tar = bench.command(&["files", "vm/d", "tar"]);
    tar.stdout(File::create(&archive).unwrap());
    let tar = tar.output().unwrap();
    let said = String::from_utf8_lossy(&tar.stderr).into_owned();
    assert_eq!((get.code(), tar.status.code()), (Some(FAILED), Some(FAILED)), "{get}, {said}");
    for said in [&get.stderr, &said] {
        let lost = |file: &str| {
            let lost = format!("disk:/{file}: its copy has lost: ");
            said.lines().find(|l| l.contains(&lost)).map(str::to_owned)
        };
        assert_eq!(lost("sound"), None, "{said}");
        let large = lost("large").unwrap_or_else(|| panic!("{said}"));
        assert!(large.contains("user.stream.large: a stream of 65537 bytes"), "{large}");
        assert!(!large.contains("small"), "{large}");
        let many = lost("many").unwrap_or_else(|| panic!("{said}"));
        assert_eq!(many.matches("user.stream.").count(), 290 - (16 << 20) / 60_000, "{many}");
    }
    assert!(said.contains("2 files without all of their extended attributes"), "{said}");
    assert!(String::from_utf8_lossy(&get.stdout).contains("2 without all of their"), "{get}");
    assert_eq!(copied("sound", "user.stream.60k"), Some(value(60_000)));
    assert_eq!(copied("sound", "user.ea.$LXUID"), Some(vec![0xe8, 3, 0, 0]));
    assert_eq!(copied("large", "user.stream.small"), Some(value(100)));
    assert_eq!(copied("large", "user.stream.large"), None);
    assert_eq!(fs::read(to.path().join("disk/large")).unwrap(), b"large");
    let list = run("tar", &["--xattrs", "-tvvf", text(&archive)]);
    for told in ["./large", "100 user.stream.small", "60000 user.stream.60k", "4 user.ea.$LXUID"] {
        assert!(list.contains(told) || list.contains(&told.replace("./", "")), "{told}: {list}");
    }
}

/// Of two streams of NTFS that are too long for an attribute, of equal length, `diff` did not tell that they differ.
#[test]
fn long_streams_of_ntfs_are_compared() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 60 * MIB, "mkntfs -q -F -Q");
    let write = |root: &Path, name: &str, at: u64, bytes: &[u8]| {
        let options = File::options().create(true).truncate(false).write(true).clone();
        options.open(root.join(format!("{name}:long"))).unwrap().write_all_at(bytes, at).unwrap();
        // As programs do that keep the times of what they restore.
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    };
    ntfs(&image, "windows", |root| {
        for name in ["changed", "unchanged"] {
            fs::write(root.join(name), name).unwrap();
            write(root, name, 0, &value(300_000));
        }
    });
    bench.backup("vm/d", text(&image));
    ntfs(&image, "windows", |root| {
        write(root, "changed", 200_000, b"other bytes");
        write(root, "unchanged", 200_000, &value(300_000)[200_000..200_011]);
    });
    bench.backup("vm/d", text(&image));
    let ended = bench.run(&["diff", "vm/d@latest~1", "vm/d"]);
    ended.expect_done();
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(told.contains("a disk:/changed"), "{told}");
    assert!(!told.contains("disk:/unchanged"), "{told}");
}

/// Which attributes a user's copy lacks because only root may set them was not said.
#[test]
fn attributes_of_root_are_named_to_users() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 60 * MIB, "mkfs.ext4 -q -F");
    {
        let mounted = Mounted::new(&image);
        for (file, name) in [("a", "trusted.one"), ("b", "trusted.one"), ("b", "security.two")] {
            let file = mounted.path().join(file);
            File::options().create(true).append(true).open(&file).unwrap();
            lsetxattr(&file, name, b"value", XattrFlags::empty()).unwrap();
        }
    }
    bench.backup("vm/d", text(&image));
    let to = bench.path("to");
    fs::create_dir(&to).unwrap();
    run("chown", &["65534:65534", text(&to)]);
    run("chmod", &["-R", "a+rX", text(&bench.store)]);
    run("chmod", &["a+rx", text(bench.store.parent().unwrap())]);
    let binary = bench.path("sapwood");
    fs::copy(bench.command(&["files"]).get_program(), &binary).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
    command.args(["files", "vm/d", "get", "/a", "/b", "--to"]).arg(&to).env("SAPWOOD_STORE", &bench.store);
    let ended = Child::start(command, "get as nobody").wait();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    let told = "2 files without extended attributes that only root may set: security.two, trusted.one";
    assert!(ended.stderr.contains(told), "{ended}");
    assert!(String::from_utf8_lossy(&ended.stdout).contains("2 without all of their"), "{ended}");
}

/// An inline file that was extended was called damaged: what is behind its data is a hole. Older kernels leave such
/// files.
#[test]
fn an_inline_file_may_be_longer_than_its_data() {
    if !testing::can_mount("xfs") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 60 * MIB, "mkfs.ext4 -q -F -b 4096 -O inline_data -I 512");
    // The second one has no room in the map of blocks alone.
    let files = [("short", 4, 5u64), ("long", 150, 200), ("larger", 150, 1 << 30), ("largest", 4, 1 << 40)];
    {
        let mounted = Mounted::new(&image);
        for (name, len, _) in files {
            fs::write(mounted.path().join(name), vec![7; len]).unwrap();
        }
    }
    for (name, _, size) in files {
        debugfs(&image, &[&format!("set_inode_field {name} size {size}")]);
        let stat = debugfs(&image, &[&format!("stat {name}")]);
        assert!(stat.contains("0x10000000") && stat.contains(&format!("Size: {size}")), "not inline: {stat}");
    }
    bench.backup("vm/d", text(&image));
    // The largest one has room in this one.
    let to = Mounted::new(&make(&bench.path("to"), 320 * MIB, "mkfs.xfs -q -f"));
    get(&bench, "/", text(to.path())).expect_done();
    for (name, len, size) in files {
        let path = to.path().join("disk").join(name);
        let meta = fs::metadata(&path).unwrap();
        assert!(meta.len() == size && meta.blocks() < 64, "{name}: {meta:?}");
        for at in [0, 50, len as u64, 4000, 500_000, size - 3, size] {
            let mut buf = vec![1; 300];
            let n = File::open(&path).unwrap().read_at(&mut buf, at).unwrap();
            assert_eq!(n as u64, size.saturating_sub(at).min(300), "{name} at {at}");
            let data = (len as u64).saturating_sub(at).min(n as u64) as usize;
            assert!(
                buf[..data].iter().all(|b| *b == 7) && buf[data..n].iter().all(|b| *b == 0),
                "{name} at {at}"
            );
        }
    }
    let long = bench.done(&["files", "vm/d", "get", "/long", "--to", "-"]).stdout;
    assert!(long[..150] == [7; 150] && long[150..] == [0; 50]);
    let archive = bench.path("tar");
    let mut tar = bench.command(&["files", "vm/d", "tar"]);
    tar.stdout(File::create(&archive).unwrap());
    assert!(tar.status().unwrap().success());
    assert!(fs::metadata(&archive).unwrap().len() < MIB);
    let list = run("tar", &["-tvf", text(&archive)]);
    assert!(list.contains("1099511627776") && list.contains("1073741824"), "{list}");
}

/// What is in the way where the copy goes ended all of it.
#[test]
fn what_is_there_costs_only_what_would_lie_over_it() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 60 * MIB, "mkfs.ext4 -q -F");
    {
        let mounted = Mounted::new(&image);
        for dir in ["one", "two"] {
            fs::create_dir(mounted.path().join(dir)).unwrap();
            fs::write(mounted.path().join(dir).join("file"), dir).unwrap();
        }
    }
    bench.backup("vm/d", text(&image));
    fs::create_dir_all(bench.path("to/one")).unwrap();
    bench.fails(
        &["files", "vm/d", "get", "/one", "/two", "--to", &bench.arg("to")],
        FAILED,
        &["/to/one: File exists"],
    );
    assert_eq!(fs::read_dir(bench.path("to/one")).unwrap().count(), 0);
    assert_eq!(fs::read(bench.path("to/two/file")).unwrap(), b"two");
    assert!(!bench.path("to/file").exists());
}

/// Two equal snapshots differed, with exit 1, where a directory is encrypted: it cannot be listed.
#[test]
fn equal_snapshots_are_equal_whatever_cannot_be_read() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 60 * MIB, "mkfs.ext4 -q -F -O encrypt");
    {
        let mounted = Mounted::new(&image);
        fs::create_dir(mounted.path().join("secret")).unwrap();
        fs::write(mounted.path().join("secret/file"), "content").unwrap();
        fs::write(mounted.path().join("plain"), "content").unwrap();
    }
    debugfs(&image, &["set_inode_field secret flags 0x80800"]);
    bench.backup("vm/d", text(&image));
    bench.backup("vm/d", text(&image));
    let report = bench.json(&["diff", "vm/d@latest~1", "vm/d"]);
    assert_eq!(report["bytes"], 0);
    assert_eq!(report["volumes"], serde_json::json!([{ "name": "disk", "kind": "ext4", "files": [] }]));
    bench.done(&["diff", "vm/d@latest~1", "vm/d"]);
    // Where something was written, it may have been in there.
    fs::write(Mounted::new(&image).path().join("plain"), "changed").unwrap();
    bench.backup("vm/d", text(&image));
    let ended = bench.run(&["diff", "vm/d@latest~1", "vm/d"]);
    assert_eq!(ended.code(), Some(FAILED), "{ended}");
    assert!(ended.stderr.contains("disk:/secret: ext4: encryption"), "{ended}");
    assert!(String::from_utf8_lossy(&ended.stdout).contains("M disk:/plain"), "{ended}");
}

/// Where no file system can be read, it was not said what is there instead.
#[test]
fn what_cannot_be_read_is_named() {
    let _alone = alone();
    let bench = Bench::new("balanced");
    let mut disk = vec![0; 2 << 20];
    disk[0x1_0040..0x1_0048].copy_from_slice(b"_BHRfS_M");
    bench.backup("vm/d", &bench.file("disk", &disk));
    bench.fails(
        &["files", "vm/d", "get", "/etc"],
        FAILED,
        &["no file system that can be read", "disk (btrfs)"],
    );
    bench.fails(&["files", "vm/d", "list", "disk:/"], FAILED, &["btrfs is not supported"]);
    // And what lies beside one that can.
    let ext4 = make(&bench.path("ext4"), 8 * MIB, "mkfs.ext4 -q -F");
    let parts = crate::disks::blank(&bench.path("parts"), 20 * MIB);
    crate::disks::partition(&parts, "label: dos\nstart=1M,size=8M,type=83\nstart=10M,size=8M,type=83\n");
    crate::disks::put(&ext4, &parts, MIB);
    crate::disks::patch(&parts, 10 * MIB, &disk);
    bench.backup("vm/e", text(&parts));
    let said = ["there is no /none", "not looked into: 2 (btrfs)"];
    bench.fails(&["files", "vm/e", "get", "/none"], FAILED, &said);
}
