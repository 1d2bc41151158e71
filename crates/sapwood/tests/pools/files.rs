//! The file system of a pool, mounted: each rule is checked on an ordinary file system as well.

mod caching;
mod database;
mod postgres;
mod random_steps;

use crate::common::mounted::{can_mount, is_mounted, Mounted};
use crate::common::{from_env, qemu_img, random, Bench};
use rand::rngs::StdRng;
use rand::SeedableRng;
use random_steps::Files;
use rustix::fs::{
    copy_file_range, fallocate, getxattr, link, listxattr, open, renameat_with, seek, setxattr, statvfs,
    utimensat, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
    XattrFlags, CWD,
};
use rustix::io::{pread, pwrite, Errno};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

const MIB: usize = 1 << 20;

/// A pool whose file system is mounted.
fn mounted(bench: &Bench) -> Mounted {
    let (pool, place) = (bench.arg("pool"), bench.path("files"));
    if !Path::new(&pool).exists() {
        bench.done(&["pool", "create", &pool, "--size", "1GiB"]);
    }
    std::fs::create_dir_all(&place).unwrap();
    let mut args = vec!["pool", "serve", &pool, "--mount", place.to_str().unwrap()];
    if rustix::process::geteuid().is_root() {
        args.push("--allow-other");
    }
    Mounted::started(bench.command(&args), place)
}

/// Lets the server end by itself.
fn stop(mounted: Mounted) {
    mounted.signal(Signal::TERM);
    mounted.wait().expect_done();
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options
}

/// Rules about names.
fn names(dir: &Path) {
    let at = |name: &str| dir.join(name);
    std::fs::write(at("a"), b"one").unwrap();
    let taken = OpenOptions::new().write(true).create_new(true).open(at("a")).unwrap_err();
    assert_eq!(taken.raw_os_error(), Some(Errno::EXIST.raw_os_error()));
    link(at("a"), at("b")).unwrap();
    assert_eq!(
        (at("a").metadata().unwrap().nlink(), at("a").metadata().unwrap().ino()),
        (2, at("b").metadata().unwrap().ino())
    );
    std::fs::remove_file(at("a")).unwrap();
    assert_eq!((std::fs::read(at("b")).unwrap(), at("b").metadata().unwrap().nlink()), (b"one".to_vec(), 1));
    symlink("b", at("l")).unwrap();
    assert_eq!(
        (std::fs::read(at("l")).unwrap(), std::fs::read_link(at("l")).unwrap()),
        (b"one".to_vec(), "b".into())
    );
    std::fs::create_dir(at("d")).unwrap();
    assert_eq!(at("d").metadata().unwrap().nlink(), 2);
    std::fs::create_dir(at("d/e")).unwrap();
    assert_eq!(at("d").metadata().unwrap().nlink(), 3);
    assert_eq!(
        std::fs::remove_dir(at("d")).unwrap_err().raw_os_error(),
        Some(Errno::NOTEMPTY.raw_os_error())
    );
    assert_eq!(renameat_with(CWD, at("d"), CWD, at("d/e/f"), RenameFlags::empty()), Err(Errno::INVAL));
    assert_eq!(renameat_with(CWD, at("b"), CWD, at("l"), RenameFlags::NOREPLACE), Err(Errno::EXIST));
    renameat_with(CWD, at("b"), CWD, at("d"), RenameFlags::EXCHANGE).unwrap();
    assert!(at("b").is_dir() && at("d").is_file());
    renameat_with(CWD, at("b"), CWD, at("d"), RenameFlags::EXCHANGE).unwrap();
    std::fs::write(at("c"), b"two").unwrap();
    std::fs::rename(at("c"), at("d/e/b")).unwrap();
    std::fs::rename(at("d/e/b"), at("b")).unwrap();
    assert_eq!(std::fs::read(at("b")).unwrap(), b"two");
    // Any bytes but a slash and zero make a name.
    let odd = dir.join(OsStr::from_bytes(b"\xff\xfe\n name"));
    std::fs::write(&odd, b"odd").unwrap();
    assert_eq!(std::fs::read(&odd).unwrap(), b"odd");
    let long = "n".repeat(255);
    std::fs::write(at(&long), b"").unwrap();
    assert!(std::fs::write(at(&"n".repeat(256)), b"").is_err());
    // A directory that is listed while its names go.
    std::fs::create_dir(at("many")).unwrap();
    (0..1500).for_each(|n| drop(File::create(at(&format!("many/file-{n}"))).unwrap()));
    let mut seen = 0;
    for entry in std::fs::read_dir(at("many")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
        seen += 1;
    }
    assert_eq!(seen, 1500);
    std::fs::remove_dir(at("many")).unwrap();
    rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
    assert_eq!(at("pipe").metadata().unwrap().mode() & 0o170_000, 0o010_000);
}

/// Rules about content.
fn content(dir: &Path) {
    let at = |name: &str| dir.join(name);
    // A file that is open stays when its name goes.
    let file = options().open(at("gone")).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    std::fs::remove_file(at("gone")).unwrap();
    let mut data = [0; 10];
    file.read_exact_at(&mut data, 0).unwrap();
    assert_eq!((&data, file.metadata().unwrap().nlink()), (b"still here", 0));
    drop(file);

    // Holes, and what is behind the end.
    let file = options().open(at("holes")).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.write_all_at(&[2; 4096], 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 4096);
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(8192));
    assert_eq!(seek(&file, SeekFrom::Data(8192)), Ok(1 << 20));
    assert_eq!(seek(&file, SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4096));
    assert_eq!(seek(&file, SeekFrom::Data((1 << 20) + 4096)), Err(Errno::NXIO));
    file.set_len(5000).unwrap();
    file.set_len(9000).unwrap();
    let all = std::fs::read(at("holes")).unwrap();
    assert!(all[..5000].iter().all(|b| *b == 1) && all[5000..].iter().all(|b| *b == 0) && all.len() == 9000);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100, 4000).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 9000);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 4500, 7500).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
    let all = std::fs::read(at("holes")).unwrap();
    let ones = |range: std::ops::Range<usize>| all[range].iter().all(|b| *b == 1);
    assert!(ones(0..100) && ones(4100..4500) && all.len() == 20_000);
    assert!(all[100..4100].iter().chain(&all[4500..]).all(|b| *b == 0));

    // Appending by two descriptors.
    let (mut one, mut two) =
        (options().append(true).open(at("log")).unwrap(), options().append(true).open(at("log")).unwrap());
    one.write_all(b"first ").unwrap();
    two.write_all(b"second ").unwrap();
    one.write_all(b"third").unwrap();
    assert_eq!(std::fs::read(at("log")).unwrap(), b"first second third");

    // Truncated when it is opened.
    drop(options().truncate(true).open(at("log")).unwrap());
    assert_eq!(at("log").metadata().unwrap().len(), 0);

    // Past the page cache and through it.
    let file = options().custom_flags(OFlags::DIRECT.bits() as i32).open(at("direct")).unwrap();
    let mut space = vec![0; 3 * 4096];
    let start = space.as_ptr().align_offset(4096);
    let block = &mut space[start..start + 4096];
    block.fill(9);
    assert_eq!(pwrite(&file, block, 4096), Ok(4096));
    assert_eq!(std::fs::read(at("direct")).unwrap(), [[0; 4096], [9; 4096]].concat());
    block.fill(0);
    assert_eq!(pread(&file, &mut *block, 4096), Ok(4096));
    assert!(block.iter().all(|b| *b == 9));

    // A copy in the kernel.
    let data: Vec<u8> = (0..3 * MIB + 77).map(|n| (n / 5 % 251) as u8 ^ (n >> 12) as u8).collect();
    std::fs::write(at("source"), &data).unwrap();
    let (source, target) = (File::open(at("source")).unwrap(), options().open(at("target")).unwrap());
    let mut copied = 0;
    loop {
        match copy_file_range(&source, None, &target, None, data.len() - copied).unwrap() {
            0 => break,
            bytes => copied += bytes,
        }
        if copied == data.len() {
            break;
        }
    }
    assert!(std::fs::read(at("target")).unwrap() == data);
    target.write_all_at(b"other", 0).unwrap();
    assert!(std::fs::read(at("source")).unwrap() == data);
    target.sync_all().unwrap();
}

/// Rules about what is known of a node.
fn attributes(dir: &Path) {
    let path = dir.join("facts");
    let file = options().mode(0o640).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4711)).unwrap();
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o4711);
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    for (read, written) in [(time(1, 999_999_999), time(-5, 1)), (time(4_000_000_000, 7), time(0, 0))] {
        let times = Timestamps { last_access: read, last_modification: written };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let now = path.metadata().unwrap();
        assert_eq!((now.atime(), now.atime_nsec()), (read.tv_sec, read.tv_nsec));
        assert_eq!((now.mtime(), now.mtime_nsec()), (written.tv_sec, written.tv_nsec));
    }
    let before = path.metadata().unwrap();
    file.write_all_at(b"x", 0).unwrap();
    let after = path.metadata().unwrap();
    assert!(after.mtime() > before.mtime() && after.ctime() >= before.ctime());
    setxattr(&path, "user.colour", b"green", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&path, "user.colour", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    let mut value = [0; 20];
    assert_eq!(getxattr(&path, "user.colour", &mut value), Ok(5));
    assert_eq!(getxattr(&path, "user.colour", &mut value[..2]), Err(Errno::RANGE));
    assert_eq!(getxattr(&path, "user.none", &mut value), Err(Errno::NODATA));
    let mut list = [0; 200];
    let bytes = listxattr(&path, &mut list).unwrap();
    assert!(list[..bytes].split(|b| *b == 0).any(|name| name == b"user.colour"));
    assert!(statvfs(dir).unwrap().f_bavail > 0);
    let directory = open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    rustix::fs::fsync(&directory).unwrap();
}

#[test]
fn it_is_as_posix_says() {
    if !can_mount() {
        return;
    }
    let bench = Bench::bare();
    let mounted = mounted(&bench);
    let cached = [caching::holes, caching::lengths, caching::copies, caching::direct, caching::times];
    let all: Vec<fn(&Path)> =
        [names, content, attributes, caching::privileges].into_iter().chain(cached).collect();
    for rules in all {
        for place in [bench.path("ordinary"), mounted.file("dir")] {
            std::fs::create_dir_all(&place).unwrap();
            rules(&place);
        }
    }
    caching::small_writes_ask_nothing(&mounted.path, mounted.pid());
    // Everything is still there when it is mounted again.
    let list = || {
        let mut find = Command::new("find");
        find.arg("dir").args(["-printf", "%p %y %m %n %s %U:%G %T@ %l\n"]).current_dir(&mounted.path);
        String::from_utf8_lossy(&find.output().unwrap().stdout).into_owned()
    };
    let before = list();
    assert!(before.lines().count() > 10, "{before}");
    stop(mounted);
    let again = self::mounted(&bench);
    let mut find = Command::new("find");
    find.arg("dir").args(["-printf", "%p %y %m %n %s %U:%G %T@ %l\n"]).current_dir(&again.path);
    let mut lines: Vec<_> = before.lines().collect();
    let now = find.output().unwrap();
    let now = String::from_utf8_lossy(&now.stdout).into_owned();
    let mut now: Vec<_> = now.lines().collect();
    lines.sort_unstable();
    now.sort_unstable();
    assert_eq!(now, lines);
    stop(again);
    bench.done(&["pool", "check", &bench.arg("pool"), "--data"]);
}

#[test]
fn images_share_blocks_and_what_was_synced_survives_a_kill() {
    if !can_mount() {
        return;
    }
    let bench = Bench::bare();
    let mounted = mounted(&bench);
    let image = bench.file("image.raw", &random(24 * MIB, 3));
    let stored = |mounted: &Mounted| {
        let space = statvfs(&mounted.path).unwrap();
        (space.f_blocks - space.f_bfree) * space.f_frsize
    };
    let before = stored(&mounted);
    for name in ["one.raw", "two.raw"] {
        std::fs::copy(&image, mounted.file(name)).unwrap();
        File::open(mounted.file(name)).unwrap().sync_all().unwrap();
    }
    let taken = stored(&mounted) - before;
    assert!(taken < 26 << 20, "two equal images take {taken} bytes");
    // QEMU's tools write images there.
    let qcow2 = mounted.file("three.qcow2");
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &image, qcow2.to_str().unwrap()]);
    qemu_img(&["compare", "-f", "raw", "-F", "qcow2", &image, qcow2.to_str().unwrap()]);
    let raw = mounted.file("four.raw");
    qemu_img(&["convert", "-f", "qcow2", "-O", "raw", qcow2.to_str().unwrap(), raw.to_str().unwrap()]);
    assert!(std::fs::read(&raw).unwrap() == std::fs::read(&image).unwrap());
    let sparse = File::create(mounted.file("sparse")).unwrap();
    sparse.set_len(5 << 30).unwrap();
    sparse.write_all_at(b"far", 3 << 30).unwrap();
    let mut file = OpenOptions::new().append(true).open(mounted.file("one.raw")).unwrap();
    file.write_all(b"the end").unwrap();
    file.sync_all().unwrap();
    mounted.signal(Signal::KILL);
    drop(file);
    let place = mounted.path.clone();
    drop(mounted);
    assert!(!is_mounted(&place));
    let mounted = self::mounted(&bench);
    let mut expected = std::fs::read(&image).unwrap();
    assert!(std::fs::read(mounted.file("two.raw")).unwrap() == expected);
    expected.extend_from_slice(b"the end");
    assert!(std::fs::read(mounted.file("one.raw")).unwrap() == expected);
    stop(mounted);
    bench.done(&["pool", "check", &bench.arg("pool"), "--data"]);
}

/// What was written to a file that is still open when the server ends is there afterwards.
#[test]
fn open_files_lose_nothing_when_the_server_ends() {
    if !can_mount() {
        return;
    }
    let bench = Bench::bare();
    let mounted = mounted(&bench);
    let data = random(60 * MIB, 5);
    let mut file = File::create(mounted.file("open")).unwrap();
    file.write_all(&data).unwrap();
    mounted.signal(Signal::TERM);
    let ended = mounted.wait();
    assert_eq!(ended.code(), Some(0), "{ended}");
    ended.expect_one_line(&["files were open"]);
    drop(file);
    let mounted = self::mounted(&bench);
    assert!(std::fs::read(mounted.file("open")).unwrap() == data);
    stop(mounted);
}

/// As many steps as `SAPWOOD_STEPS` says; the ordinary file system shows that the model is right.
#[test]
fn random_operations() {
    if !can_mount() {
        return;
    }
    let seed = from_env("SAPWOOD_SEED", 1);
    println!("SAPWOOD_SEED={seed}");
    let steps = from_env("SAPWOOD_STEPS", 6_000);
    let dice = || StdRng::seed_from_u64(seed);
    let bench = Bench::bare();
    let ordinary = bench.path("ordinary");
    std::fs::create_dir(&ordinary).unwrap();
    let mut files = Files::new(&ordinary, dice());
    (0..steps.min(20_000)).for_each(|_| files.step());
    files.compare();
    let mut mounted = mounted(&bench);
    let mut files = Files::new(&mounted.path, dice());
    for step in 1..=steps {
        files.step();
        if step % (steps / 4).max(1_000) == 0 {
            // Ended, or killed behind a sync: it is the same afterwards.
            files.close();
            if step / (steps / 4).max(1_000) % 2 == 0 {
                files.sync();
                mounted.signal(Signal::KILL);
                drop(mounted);
            } else {
                stop(mounted);
            }
            mounted = self::mounted(&bench);
            files.compare();
        }
    }
    files.close();
    files.compare();
    stop(mounted);
    bench.done(&["pool", "check", &bench.arg("pool"), "--data"]);
}

#[test]
fn a_database_survives_kills() {
    if can_mount() {
        database::survives_kills();
    }
}

#[test]
fn postgres_survives_kills() {
    if can_mount() {
        postgres::survives_kills();
    }
}
