//! A vault, mounted by the binary and read through the kernel.

use crate::common;
use crate::common::mounted::{can_mount, is_mounted, until, Mounted};
use crate::common::{
    change, files_below, fresh, qemu_img, random, Bench, Child, Scattered, DAMAGED, DONE, FAILED, REFUSED,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{fadvise, seek, Advice, SeekFrom};
use rustix::process::Signal;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{chown, FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const MIB: usize = 1 << 20;

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn target(path: &Path) -> String {
    std::fs::read_link(path).unwrap().into_os_string().into_string().unwrap()
}

/// The kernel forgets what it has read of a file.
fn forget(file: &File) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

#[test]
fn every_snapshot_is_a_file() {
    if !can_mount() {
        return;
    }
    for (seed, policy) in [(1, "balanced"), (2, "reverse"), (3, "vm-centric")] {
        let bench = Bench::new(policy);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut files = Vec::new();
        for disk in ["web01/vda", "web01/vdb", "db/vda"] {
            let mut content = fresh(9 * MIB, &mut rng);
            for day in 1..=4 {
                let source = bench.file("disk", &content);
                let time = format!("2026-11-0{day}T10:00:00");
                let done = bench.json(&["backup", disk, &source, "--time", &time]);
                let id = done["snapshot"].as_str().unwrap().to_string();
                files.push((disk, id, time, content.clone()));
                change(&mut content, &mut rng);
            }
        }
        let definition = b"<domain>of no whole number of blocks</domain>\n".repeat(77);
        let source = bench.file("definition", &definition);
        let id = bench.backup("web01/definition", &source);
        files.push(("web01/definition", id, String::new(), definition));

        let mounted = Mounted::start(&bench, "mnt", &[]);
        assert_eq!(mounted.names(""), ["db", "web01"]);
        assert_eq!(mounted.names("web01"), ["definition", "vda", "vdb"]);
        assert_eq!(mounted.names("db/vda").len(), 4 + 4 + 1, "files, times, latest");
        for (disk, id, time, content) in &files {
            let path = mounted.file(&format!("{disk}/{id}.raw"));
            assert!(read(&path) == *content, "{policy}: {disk}@{id}");
            let metadata = path.metadata().unwrap();
            assert_eq!((metadata.len(), metadata.mode() & 0o777), (content.len() as u64, 0o444));
            if !time.is_empty() {
                let at = vault::parse_time(time).unwrap();
                assert_eq!(
                    metadata.modified().unwrap(),
                    SystemTime::UNIX_EPOCH + Duration::from_secs(at as u64)
                );
                assert_eq!(target(&mounted.file(&format!("{disk}/{time}Z.raw"))), format!("{id}.raw"));
            }
        }
        let (_, newest, _, content) = &files[3];
        assert_eq!(target(&mounted.file("web01/vda/latest.raw")), format!("{newest}.raw"));
        assert!(read(&mounted.file("web01/vda/latest.raw")) == *content);
        let made = File::create(mounted.file("web01/file"));
        assert_eq!(made.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(
            mounted.file("web01/nothing").metadata().unwrap_err().kind(),
            std::io::ErrorKind::NotFound
        );
        mounted.end().expect_done();
    }
}

/// Ranges of data of a file, as `lseek` tells them.
fn data_of(file: &File) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        assert!(at > start, "a hole where there is data: {start}");
        found.push(start..at);
    }
    found
}

#[test]
fn holes_are_holes() {
    if !can_mount() {
        return;
    }
    const SIZE: u64 = 300 << 20;
    const PIECE: usize = 3 << 16;
    let bench = Bench::new("balanced");
    let disk = Scattered::create(&bench.path("disk"), SIZE, 20, PIECE, 4);
    let id = bench.backup("vm/vda", &bench.arg("disk"));
    let mounted = Mounted::start(&bench, "mnt", &[]);
    let path = mounted.file(&format!("vm/vda/{id}.raw"));

    let found = data_of(&File::open(&path).unwrap());
    for &at in &disk.at {
        let piece = at..at + PIECE as u64;
        assert!(found.iter().any(|f| f.start <= piece.start && f.end >= piece.end), "{piece:?}: {found:?}");
    }
    let most = (PIECE + 2 * 4096) as u64;
    assert!(found.iter().all(|f| f.end - f.start <= most), "{found:?}");
    assert_eq!(found.len(), 20);
    let file = File::open(&path).unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(0)).unwrap(), 0);
    assert_eq!(seek(&file, SeekFrom::Data(SIZE - 1)).unwrap_err(), rustix::io::Errno::NXIO);
    drop(file);

    let metadata = path.metadata().unwrap();
    let bytes = metadata.blocks() * 512;
    assert!((20 * PIECE as u64..=20 * most).contains(&bytes), "st_blocks: {bytes} bytes");
    let copy = bench.path("copy");
    let status = Command::new("cp").arg("--sparse=auto").arg(&path).arg(&copy).status().unwrap();
    assert!(status.success());
    let copied = copy.metadata().unwrap();
    assert!(copied.len() == SIZE && copied.blocks() * 512 <= 20 * (most + 8192), "{}", copied.blocks());
    assert!(read(&copy) == read(&bench.path("disk")));
    let all = rustix::fs::statfs(&mounted.path).unwrap();
    assert_eq!(all.f_blocks * all.f_bsize as u64, bytes.next_multiple_of(4096));
    mounted.end().expect_done();
}

#[test]
fn the_tree_follows_the_vault() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("reverse");
    let first = random(8 * MIB, 5);
    let mut second = first.clone();
    second[..3 * MIB].copy_from_slice(&random(3 * MIB, 6));
    let one = bench.backup("vm/vda", &bench.file("disk", &first));
    let mounted = Mounted::start(&bench, "mnt", &[]);
    let latest = mounted.file("vm/vda/latest.raw");
    let of_one = mounted.file(&format!("vm/vda/{one}.raw"));
    assert_eq!(target(&latest), format!("{one}.raw"));
    let inode = of_one.metadata().unwrap().ino();

    let two = bench.backup("vm/vda", &bench.file("disk", &second));
    until("the new snapshot", || target(&latest) == format!("{two}.raw"));
    assert!(read(&latest) == second);
    assert_eq!(of_one.metadata().unwrap().ino(), inode, "the number of a file stays");
    bench.backup("other/vda", &bench.file("other", &random(MIB, 7)));
    until("the new disk", || mounted.names("") == ["other", "vm"]);

    // Opened by two, and nothing of it read before it is deleted and what it needs is collected.
    let (open, again) = (File::open(&of_one).unwrap(), File::open(&of_one).unwrap());
    bench.done(&["delete", &format!("vm/vda@{one}")]);
    bench.done(&["gc"]);
    until("the deleted one to vanish", || !mounted.names("vm/vda").contains(&format!("{one}.raw")));
    until("its name to vanish", || of_one.metadata().is_err());
    assert_eq!(File::open(&of_one).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    for (name, mut file) in [("one", open), ("another", again)] {
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        assert!(content == first, "{name} still open");
        assert_eq!(file.metadata().unwrap().len(), 8 * MIB as u64);
    }
    assert!(read(&latest) == second);
    bench.done(&["delete", "other/vda@latest"]);
    until("the disk without snapshots to vanish", || mounted.names("") == ["vm"]);
    mounted.end().expect_done();
    bench.collect();
    bench.verify();
}

#[test]
fn of_two_at_the_same_time_the_later_one_has_the_name() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    let mut ids = Vec::new();
    for seed in [18, 19] {
        let source = bench.file("disk", &random(MIB, seed));
        let done = bench.json(&["backup", "vm/vda", &source, "--time", "2026-11-22T10:00:00"]);
        ids.push(done["snapshot"].as_str().unwrap().to_string());
    }
    let mounted = Mounted::start(&bench, "mnt", &[]);
    let (time, later) = ("2026-11-22T10:00:00Z.raw", format!("{}.raw", ids[1]));
    assert_eq!(target(&mounted.file(&format!("vm/vda/{time}"))), later);
    assert_eq!(target(&mounted.file("vm/vda/latest.raw")), later);
    let mut names = vec![format!("{}.raw", ids[0]), later, time.to_string(), "latest.raw".to_string()];
    names.sort();
    assert_eq!(mounted.names("vm/vda"), names);
    mounted.end().expect_done();
}

#[test]
fn damage_is_an_error_for_its_readers_only() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    let (bad, good) = (random(6 * MIB, 8), random(6 * MIB, 9));
    let id = bench.backup("vm/bad", &bench.file("disk", &bad));
    let objects = bench.data_objects();
    bench.backup("vm/good", &bench.file("disk", &good));
    let mounted = Mounted::start(&bench, "mnt", &[]);
    for object in &objects {
        let file = File::options().read(true).write(true).open(object).unwrap();
        let at = file.metadata().unwrap().len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[!byte[0]], at).unwrap();
    }
    let failed = std::fs::read(mounted.file("vm/bad/latest.raw")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5), "EIO: {failed}");
    let mut start = vec![0; MIB];
    File::open(mounted.file("vm/bad/latest.raw")).unwrap().read_exact(&mut start).unwrap();
    assert!(start == bad[..MIB], "what is whole can be read");
    assert!(read(&mounted.file("vm/good/latest.raw")) == good);

    let ended = mounted.end();
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    let object = objects[0].file_name().unwrap().to_str().unwrap();
    let told = format!("sapwood: vm/bad/{id}.raw: ");
    assert!(ended.stderr.lines().any(|l| l.starts_with(&told) && l.contains(object)), "{ended}");
    assert!(ended.stderr.contains(&format!("vm/bad@{id}: damage was met")), "{ended}");
    assert!(!ended.stderr.contains("vm/good"), "{ended}");
}

#[test]
fn two_mounts_do_not_mind_each_other() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    let content = random(4 * MIB, 10);
    bench.backup("vm/vda", &bench.file("disk", &content));
    let one = Mounted::start(&bench, "one", &[]);
    let other = Mounted::start(&bench, "other", &["--cache", "1M"]);
    assert!(read(&one.file("vm/vda/latest.raw")) == content);
    one.end().expect_done();
    assert!(read(&other.file("vm/vda/latest.raw")) == content);
    other.end().expect_done();
}

/// A process whose mount was removed by hand, and that ended later than another began at the same place, must not
/// unmount what is not its own.
#[test]
fn unmounting_by_hand_ends_it() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    bench.backup("vm/vda", &bench.file("disk", &random(MIB, 11)));
    let first = Mounted::start(&bench, "mnt", &[]);
    first.signal(Signal::STOP);
    first.unmount();
    let second = Mounted::start(&bench, "mnt", &[]);
    first.signal(Signal::CONT);
    first.wait().expect_done();
    assert!(is_mounted(&second.path), "the second one was unmounted by the first");
    assert_eq!(second.names("vm"), ["vda"]);
    second.end().expect_done();
}

/// A container or a service that begins meanwhile gets a copy of the table of mounts.
#[test]
fn it_ends_while_another_namespace_has_it() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    bench.backup("vm/vda", &bench.file("disk", &random(MIB, 13)));
    let mounted = Mounted::start(&bench, "mnt", &[]);
    // The mounts of other tests end as ever.
    let script = "findmnt -rno TARGET -t fuse.sapwood | grep -vxF \"$0\" | xargs -r umount --lazy
        echo begun && exec sleep 60";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&mounted.path);
    let mut other = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut begun = [0; 6];
    if other.stdout.take().unwrap().read_exact(&mut begun).is_err() {
        testing::skip(
            "a mount namespace (root)",
            String::from_utf8_lossy(&other.wait_with_output().unwrap().stderr),
        );
        return;
    }
    let ended = mounted.end();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    ended.expect_one_line(&["mnt", "unmounted", "mount namespace"]);
}

#[test]
fn it_ends_while_a_file_is_open() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    bench.backup("vm/vda", &bench.file("disk", &random(16 * MIB, 12)));
    let mounted = Mounted::start(&bench, "mnt", &[]);
    let mut file = File::open(mounted.file("vm/vda/latest.raw")).unwrap();
    file.read_exact(&mut [0; 4096]).unwrap();
    let ended = mounted.end();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    ended.expect_one_line(&["mnt", "files were open"]);
    forget(&file);
    assert!(file.read_exact_at(&mut [0; 4096], 12 << 20).is_err());
    // It has left nothing of its own in the vault.
    assert_eq!(files_below(&bench.store.join("objects/readers")), Vec::<PathBuf>::new());
}

#[test]
fn reading_goes_on_while_others_write_and_collect() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("reverse");
    let seed = common::from_env("SAPWOOD_SEED", 13);
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut content = fresh(24 * MIB, &mut rng);
    let expected = content.clone();
    let id = bench.backup("vm/vda", &bench.file("disk", &content));
    let mounted = Mounted::start(&bench, "mnt", &["--cache", "1M"]);
    let path = mounted.file(&format!("vm/vda/{id}.raw"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (path, expected, stop) = (&path, &expected, &stop);
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed + thread);
                let file = File::open(path).unwrap();
                let mut buf = Vec::new();
                let mut reads = 0;
                while !stop.load(Ordering::Relaxed) {
                    let at = rng.random_range(0..expected.len());
                    buf.resize(rng.random_range(1..=(256 << 10).min(expected.len() - at)), 0);
                    file.read_exact_at(&mut buf, at as u64).unwrap_or_else(|e| panic!("at {at}: {e}"));
                    assert!(buf == expected[at..at + buf.len()], "{} bytes at {at}", buf.len());
                    reads += 1;
                    if reads % 16 == 0 {
                        forget(&file);
                    }
                }
                assert!(reads > 16, "{reads} reads");
            });
        }
        let ending = Ending(&stop);
        for _ in 0..5 {
            change(&mut content, &mut rng);
            bench.backup("vm/vda", &bench.file("disk", &content));
            bench.done(&["gc"]);
        }
        bench.done(&["delete", &format!("vm/vda@{id}")]);
        bench.done(&["gc"]);
        std::thread::sleep(Duration::from_millis(500));
        drop(ending);
    });
    assert!(read(&mounted.file("vm/vda/latest.raw")) == content);
    mounted.end().expect_done();
    bench.collect();
}

/// Stops the readers also where the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn qemu_reads_it() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    let content = fresh(20 * MIB, &mut StdRng::seed_from_u64(14));
    bench.backup("vm/vda", &bench.file("disk", &content));
    let mounted = Mounted::start(&bench, "mnt", &[]);
    let latest = mounted.file("vm/vda/latest.raw");
    let (latest, image) = (latest.to_str().unwrap(), bench.arg("image.qcow2"));
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", latest, &image]);
    qemu_img(&["convert", "-f", "qcow2", "-O", "raw", &image, &bench.arg("raw")]);
    assert!(read(&bench.path("raw")) == content);
    // Around the kernel's cache.
    qemu_img(&["compare", "-T", "none", "-f", "raw", "-F", "raw", latest, &bench.arg("disk")]);
    mounted.end().expect_done();
}

#[test]
fn it_stays_while_a_command_runs() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    let content = random(MIB, 15);
    bench.backup("vm/vda", &bench.file("disk", &content));
    let place = bench.arg("mnt");
    std::fs::create_dir(&place).unwrap();
    let print = "cat $SAPWOOD_MOUNT/vm/vda/latest.raw";
    let ended = bench.done(&["-q", "mount", &place, "--", "sh", "-c", print]);
    assert!(ended.stdout == content);
    let said = bench.json(&["mount", &place, "--", "true"]);
    assert_eq!(said, serde_json::json!({ "mountpoint": place, "disk_count": 1, "snapshot_count": 1 }));
    assert_eq!(bench.run(&["mount", &place, "--", "sh", "-c", "exit 7"]).code(), Some(7));
    bench.fails(&["-q", "mount", &place, "--", "no-such-command"], FAILED, &["no-such-command"]);
    assert!(!is_mounted(Path::new(&place)));
}

#[test]
fn where_it_cannot_be_mounted_is_said() {
    let bench = Bench::new("balanced");
    let refused = |place: &str, said: &[&str]| bench.fails(&["mount", place], REFUSED, said);
    refused(&bench.arg("missing"), &["missing: is missing; make an empty directory"]);
    refused(&bench.file("file", b""), &["file: is not a directory"]);
    std::fs::create_dir_all(bench.path("full/below")).unwrap();
    refused(&bench.arg("full"), &["full: is not empty"]);
    std::fs::create_dir(bench.store.join("objects/empty")).unwrap();
    refused(bench.store.join("objects/empty").to_str().unwrap(), &["is in the vault"]);
}

/// A mount whose process was killed stays, and answers nobody.
#[test]
fn a_killed_one_leaves_a_mount_that_can_be_removed() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new("balanced");
    bench.backup("vm/vda", &bench.file("disk", &random(MIB, 16)));
    let mounted = Mounted::start(&bench, "mnt", &[]);
    let file = File::open(mounted.file("vm/vda/latest.raw")).unwrap();
    mounted.signal(Signal::KILL);
    until("the mount to be dead", || mounted.path.read_dir().is_err());
    bench.fails(&["mount", &bench.arg("mnt")], REFUSED, &["process died", "fusermount3 -u"]);
    drop(file);
    mounted.unmount();
    drop(mounted);
    Mounted::start(&bench, "mnt", &[]).end().expect_done();
    bench.collect();
}

/// Who may not mount has `fusermount3` do it.
#[test]
fn users_mount_by_the_helper() {
    const NOBODY: u32 = 65534;
    if !can_mount() {
        return;
    }
    if !rustix::process::getuid().is_root() {
        return testing::skip("root", "another user mounts");
    }
    let bench = Bench::new("balanced");
    let content = random(MIB, 17);
    bench.backup("vm/vda", &bench.file("disk", &content));
    let place = bench.path("mnt");
    std::fs::create_dir(&place).unwrap();
    let owned = Command::new("chown").args(["-R", "65534:65534"]).arg(bench.dir.path()).status().unwrap();
    assert!(owned.success());
    let program = bench.path("sapwood");
    std::fs::copy(bench.command(&["x"]).get_program(), &program).unwrap();
    let command = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.env("SAPWOOD_STORE", &bench.store).args(args).uid(NOBODY).gid(NOBODY);
        command
    };

    let arg = place.to_str().unwrap();
    let mut without = command(&["mount", arg]);
    without.env("PATH", "/nonexistent");
    Child::start(without, "mount without fusermount3")
        .wait()
        .expect_failure(FAILED, &["fusermount3", "fuse3"]);
    let not_ours = bench.path("not-ours");
    std::fs::create_dir(&not_ours).unwrap();
    let refused = Child::start(command(&["mount", not_ours.to_str().unwrap()]), "mount elsewhere").wait();
    refused.expect_failure(FAILED, &["not-ours", "write access"]);
    chown(&not_ours, Some(NOBODY), None).unwrap();

    // Only who mounted it may look into it, so another process of the same user does.
    let reading = format!("cat {arg}/vm/vda/latest.raw");
    let ended = Child::start(command(&["-q", "mount", arg, "--", "sh", "-c", &reading]), "mount").wait();
    assert!(ended.stdout == content, "{ended}");
    ended.expect_done();
    let holding = format!(
        "exec 3<{arg}/vm/vda/latest.raw; sleep 300 >/dev/null 2>&1 & echo $! >{}",
        bench.arg("not-ours/pid")
    );
    let ended = Child::start(command(&["-q", "mount", arg, "--", "sh", "-c", &holding]), "mount").wait();
    let pid: i32 = std::fs::read_to_string(not_ours.join("pid")).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    ended.expect_one_line(&["files were open"]);
    assert!(!std::fs::read_to_string("/proc/self/mounts").unwrap().contains(arg));
}
