//! Files of a pool as disks over NBD, its volumes as files of its mount, and copies of either, with QEMU's and the system's own
//! programs.

use crate::common::mounted::{can_mount, until, Mounted};
use crate::common::{random, Bench, REFUSED};
use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};

const MIB: usize = 1 << 20;

/// A pool, served both ways.
fn served(bench: &Bench) -> Mounted {
    let (pool, place) = (bench.arg("pool"), bench.path("files"));
    if !Path::new(&pool).exists() {
        bench.done(&["pool", "create", &pool, "--size", "1GiB"]);
    }
    std::fs::create_dir_all(&place).unwrap();
    let socket = bench.path("socket");
    let _ = std::fs::remove_file(&socket);
    let args =
        ["pool", "serve", &pool, "--mount", place.to_str().unwrap(), "--nbd", socket.to_str().unwrap()];
    let mounted = Mounted::started(bench.command(&args), place);
    until("the socket", || socket.exists());
    mounted
}

fn stop(mounted: Mounted) {
    mounted.signal(Signal::TERM);
    mounted.wait().expect_done();
}

/// Runs qemu-io on a volume, or on a file by its path.
fn qemu_io(bench: &Bench, export: &str, command: &str) -> Output {
    let uri = format!("nbd+unix:///{export}?socket={}", bench.path("socket").display());
    Command::new("qemu-io").args(["-d", "unmap", "-f", "raw", "-c", command, &uri]).output().unwrap()
}

#[track_caller]
fn succeeds(output: Output) {
    assert!(output.status.success(), "{output:?}");
}

fn open_for_writing(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

fn used(mounted: &Mounted) -> u64 {
    let space = statvfs(&mounted.path).unwrap();
    (space.f_blocks - space.f_bfree) * space.f_frsize
}

#[test]
fn a_file_is_a_disk_over_nbd() {
    if !can_mount() {
        return;
    }
    let bench = Bench::bare();
    let mounted = served(&bench);
    std::fs::create_dir(mounted.file("images")).unwrap();
    let path = mounted.file("images/disk.raw");
    let mut expected = random(8 * MIB, 1);
    std::fs::write(&path, &expected).unwrap();
    let before = path.metadata().unwrap();
    // Read once, so that the kernel has it.
    assert!(std::fs::read(&path).unwrap() == expected);
    succeeds(qemu_io(&bench, "@/images/disk.raw", "write -q -P 7 1M 1M"));
    expected[MIB..2 * MIB].fill(7);
    assert!(std::fs::read(&path).unwrap() == expected, "the mount shows what the disk was before");
    // A client stays: the file is read past the kernel's memory, and not written.
    let uri = format!("nbd+unix:///@/images/disk.raw?socket={}", bench.path("socket").display());
    let mut client = Command::new("qemu-io")
        .args(["-f", "raw", &uri])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut commands = client.stdin.take().unwrap();
    let mut said = client.stdout.take().unwrap();
    let mut tell = |command: &str| {
        use std::io::Write;
        writeln!(commands, "{command}").unwrap();
        commands.flush().unwrap();
        let mut answer = [0; 64];
        assert!(said.read(&mut answer).unwrap() > 0);
    };
    tell("write -P 8 3M 64k");
    expected[3 * MIB..3 * MIB + 65536].fill(8);
    until("the write", || std::fs::read(&path).unwrap() == expected);
    assert_eq!(errno(open_for_writing(&path)), Some(Errno::BUSY.raw_os_error()));
    assert_eq!(errno(std::fs::write(&path, b"x")), Some(Errno::BUSY.raw_os_error()));
    let reader = File::open(&path).unwrap();
    tell("write -P 9 0 4k");
    expected[..4096].fill(9);
    let mut block = [0; 4096];
    until("the write", || reader.read_exact_at(&mut block, 0).is_ok() && block == expected[..4096]);
    // A copy while it runs.
    let copy = mounted.file("copy.raw");
    succeeds(Command::new("cp").arg("--reflink=auto").arg(&path).arg(&copy).output().unwrap());
    assert!(std::fs::read(&copy).unwrap() == expected);
    drop((reader, commands));
    succeeds(client.wait_with_output().unwrap());
    until("writing", || open_for_writing(&path).is_ok());
    // While it is open on the mount there is no client.
    let writer = open_for_writing(&path).unwrap();
    let refused = qemu_io(&bench, "@/images/disk.raw", "read 0 4k");
    assert!(!refused.status.success(), "{refused:?}");
    writer.write_all_at(&[1; 512], 0).unwrap();
    drop(writer);
    expected[..512].fill(1);
    succeeds(qemu_io(&bench, "@/images/disk.raw", "read -q -P 1 0 512"));
    assert!(!qemu_io(&bench, "@/images/none.raw", "read 0 4k").status.success());
    // What a client has flushed survives a kill.
    succeeds(qemu_io(&bench, "@/images/disk.raw", "write -q -P 5 5M 1M"));
    expected[5 * MIB..6 * MIB].fill(5);
    mounted.signal(Signal::KILL);
    drop(mounted);
    let mounted = served(&bench);
    assert!(std::fs::read(mounted.file("images/disk.raw")).unwrap() == expected);
    // The kernel keeps times by itself, as long as it knows the file.
    let now = mounted.file("images/disk.raw").metadata().unwrap();
    assert!(now.mtime_nsec() != before.mtime_nsec(), "the time of the last write is an old one");
    stop(mounted);
    bench.done(&["pool", "check", &bench.arg("pool"), "--data"]);
}

#[test]
fn a_volume_is_a_file_of_the_mount() {
    if !can_mount() {
        return;
    }
    let bench = Bench::bare();
    let pool = bench.arg("pool");
    let mounted = served(&bench);
    let volume = |args: &[&str]| bench.done(&[&["volume", "--pool", &pool], args].concat());
    volume(&["create", "a/b", "--size", "8MiB"]);
    let path = mounted.file(".volumes/a%2Fb");
    assert_eq!(mounted.names("."), [] as [&str; 0]);
    assert_eq!(mounted.names(".volumes"), ["a%2Fb"]);
    let mut expected = random(8 * MIB, 2);
    expected[4 * MIB..].fill(0);
    let image = bench.file("image", &expected);
    succeeds(
        Command::new("dd")
            .arg(format!("if={image}"))
            .arg(format!("of={}", path.display()))
            .args(["bs=1M", "conv=notrunc,fsync"])
            .output()
            .unwrap(),
    );
    assert_eq!(path.metadata().unwrap().blocks() * 512, 4 * MIB as u64);
    succeeds(qemu_io(&bench, "a/b", "write -q -P 7 1M 1M"));
    expected[MIB..2 * MIB].fill(7);
    assert!(std::fs::read(&path).unwrap() == expected);
    // One way of writing at a time: on a busy machine it takes a moment until the server has seen that the client has left.
    let mut writer = None;
    until("the client has left", || {
        writer = open_for_writing(&path).ok();
        writer.is_some()
    });
    let writer = writer.unwrap();
    assert!(!qemu_io(&bench, "a/b", "read 0 4k").status.success());
    bench.fails(&["volume", "--pool", &pool, "delete", "a/b"], REFUSED, &["in use"]);
    writer.write_all_at(&[3; 4096], 0).unwrap();
    expected[..4096].fill(3);
    assert_eq!(errno(writer.write_all_at(&[3; 4096], 8 * MIB as u64)), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(errno(writer.set_len(5)), Some(Errno::PERM.raw_os_error()));
    drop(writer);
    volume(&["snapshot", "a/b@monday"]);
    // Copies take no time and no space, by the system's own program and by a command.
    let before = used(&mounted);
    let copy = mounted.file("copy.raw");
    succeeds(Command::new("cp").arg(mounted.file(".volumes/a%2Fb@monday")).arg(&copy).output().unwrap());
    volume(&["clone", "a/b@monday", "@/second.raw"]);
    volume(&["clone", "@/second.raw", "c"]);
    volume(&["clone", "@/second.raw", "@/third.raw"]);
    assert!(used(&mounted) - before < MIB as u64, "copies take {} bytes", used(&mounted) - before);
    for copy in ["copy.raw", "second.raw", "third.raw", ".volumes/c"] {
        assert!(std::fs::read(mounted.file(copy)).unwrap() == expected, "{copy}");
        assert_eq!(mounted.file(copy).metadata().unwrap().blocks() * 512, 4 * MIB as u64, "{copy}");
    }
    bench.fails(&["volume", "--pool", &pool, "clone", "@/none", "d"], REFUSED, &["none", "No such file"]);
    bench.fails(&["volume", "--pool", &pool, "clone", "@/copy.raw", "c"], REFUSED, &["already"]);
    bench.fails(&["volume", "--pool", &pool, "clone", "a/b@monday", "@/copy.raw"], REFUSED, &["File exists"]);
    volume(&["delete", "a/b@monday"]);
    // The kernel says a moment later that a file was closed.
    let delete = ["volume", "--pool", &pool, "delete", "c"];
    until("the deletion", || bench.command(&delete).output().unwrap().status.success());
    assert_eq!(mounted.names(".volumes"), ["a%2Fb"]);
    mounted.signal(Signal::TERM);
    let ended = mounted.wait();
    let is_refusal = |line: &str| line.contains("a/b is open for writing as a file");
    assert!(ended.code() == Some(0) && ended.stderr.lines().all(is_refusal), "{ended}");
    // Without a server as well.
    volume(&["clone", "@/second.raw", "d"]);
    volume(&["clone", "d", "@/fourth.raw"]);
    let mounted = served(&bench);
    assert!(std::fs::read(mounted.file("fourth.raw")).unwrap() == expected);
    stop(mounted);
    bench.done(&["pool", "check", &pool, "--data"]);
}

/// `du`, `ls -s` and `cp` of sparse files.
#[test]
fn the_space_of_files_is_told() {
    if !can_mount() {
        return;
    }
    let bench = Bench::bare();
    let mounted = served(&bench);
    let blocks = |name: &str| mounted.file(name).metadata().unwrap().blocks() * 512;
    let file = File::create(mounted.file("sparse")).unwrap();
    file.set_len(6 << 30).unwrap();
    assert_eq!(blocks("sparse"), 0);
    let data = random(2 * MIB, 4);
    file.write_all_at(&data, 1 << 30).unwrap();
    file.write_all_at(&data, 5 << 30).unwrap();
    file.sync_all().unwrap();
    assert_eq!(blocks("sparse"), 4 * MIB as u64, "shared blocks count in full");
    drop(file);
    let before = used(&mounted);
    // cp sees that it is sparse, and copies piece by piece.
    succeeds(Command::new("cp").arg(mounted.file("sparse")).arg(mounted.file("copy")).output().unwrap());
    assert_eq!((blocks("copy"), mounted.file("copy").metadata().unwrap().len()), (4 * MIB as u64, 6 << 30));
    assert!(used(&mounted) - before < MIB as u64 / 2);
    let copy = File::open(mounted.file("copy")).unwrap();
    let mut read = vec![0; 2 * MIB];
    for at in [1 << 30, 5 << 30] {
        copy.read_exact_at(&mut read, at).unwrap();
        assert!(read == data);
    }
    copy.read_exact_at(&mut read, (5 << 30) - 2 * MIB as u64).unwrap();
    assert!(read.iter().all(|b| *b == 0));
    drop(copy);
    stop(mounted);
    bench.done(&["pool", "check", &bench.arg("pool"), "--data"]);
}
