//! `mtar`: archives come back byte for byte, through files and pipes, and nothing is left half done.

use crate::common;
use crate::common::{peak, Bench, Child, DAMAGED, FAILED, INTERRUPTED, REFUSED, USAGE};
use crate::names;
use rustix::process::Signal;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An archive of a tree beside the vault. Returns its path and its bytes.
fn archive(bench: &Bench) -> (String, Vec<u8>) {
    let tree = bench.path("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    for n in 0..200u64 {
        std::fs::write(tree.join(format!("sub/{n}")), testing::noise(n, (n * 131) as usize)).unwrap();
    }
    let made =
        Command::new("tar").arg("-C").arg(&tree).args(["--format=pax", "-cf", "-", "sub"]).output().unwrap();
    assert!(made.status.success());
    (bench.file("a.tar", &made.stdout), made.stdout)
}

#[test]
fn an_archive_comes_back_with_its_mode_and_time() {
    let bench = Bench::new("balanced");
    let (tar, bytes) = archive(&bench);
    std::fs::set_permissions(&tar, Permissions::from_mode(0o640)).unwrap();
    let (mtar, back) = (bench.arg("a.mtar"), bench.arg("back.tar"));
    let json = bench.json(&["mtar", "migrate", &tar, &mtar]);
    assert_eq!(json["tar_bytes"].as_u64(), Some(bytes.len() as u64));
    // A pax header each, of two parts, and one of the directory.
    assert!((201..1000).contains(&json["headers"].as_u64().unwrap()), "{json}");
    bench.done(&["mtar", "restore", &mtar, &back]);
    assert!(std::fs::read(&back).unwrap() == bytes);
    let (old, new) = (std::fs::metadata(&tar).unwrap(), std::fs::metadata(&back).unwrap());
    assert_eq!((new.mode() & 0o777, new.mtime(), new.mtime_nsec()), (0o640, old.mtime(), old.mtime_nsec()));
    // By pipes, as tar does it.
    let shell = format!(
        "{0} mtar migrate - - < {tar} | {0} mtar restore - - | cmp - {tar}",
        env!("CARGO_BIN_EXE_sapwood")
    );
    let piped = Command::new("bash").args(["-o", "pipefail", "-c", &shell]).output().unwrap();
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    let by_pipe =
        format!("{} mtar migrate - - --align 4KiB < {tar} | cmp - {mtar}", env!("CARGO_BIN_EXE_sapwood"));
    assert!(Command::new("bash").args(["-o", "pipefail", "-c", &by_pipe]).status().unwrap().success());
    // A reader that has gone is no message.
    let head = format!("{} mtar restore {mtar} - | head -c 100 | wc -c", env!("CARGO_BIN_EXE_sapwood"));
    let ended = Command::new("bash").args(["-c", &head]).output().unwrap();
    assert_eq!((ended.stdout.as_slice(), ended.stderr.as_slice()), (&b"100\n"[..], &b""[..]));
}

#[test]
fn what_is_there_stays_and_what_fails_leaves_nothing() {
    let bench = Bench::new("balanced");
    let (tar, _) = archive(&bench);
    let (mtar, back) = (bench.arg("a.mtar"), bench.arg("back.tar"));
    bench.done(&["mtar", "migrate", &tar, &mtar]);
    bench.fails(&["mtar", "migrate", &tar, &mtar], REFUSED, &["a.mtar: exists", "--force"]);
    bench.done(&["mtar", "migrate", &tar, &mtar, "--force", "--align", "512"]);
    bench.fails(&["mtar", "restore", &tar, &back], DAMAGED, &["a.tar", "byte 0", "not an mtar stream"]);
    bench.fails(&["mtar", "migrate", &tar, &back, "--align", "5000"], USAGE, &["5000", "power of two"]);
    // Whatever --force says, a device stays one.
    let pipe = bench.arg("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for place in [&pipe, "/dev/null"] {
        bench.fails(&["mtar", "migrate", &tar, place, "--force"], REFUSED, &["is not a regular file"]);
    }
    bench.fails(&["mtar", "migrate", &bench.arg("none"), &back], FAILED, &["none: cannot open"]);
    bench.fails(&["mtar", "migrate", &tar, &bench.arg("none/a")], FAILED, &["none/a: cannot create"]);
    let mut bytes = std::fs::read(&mtar).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let harmed = bench.file("harmed.mtar", &bytes);
    bench.fails(
        &["mtar", "restore", &harmed, &back],
        DAMAGED,
        &["harmed.mtar", "damaged at byte", "checksum"],
    );
    std::fs::write(&back, b"mine").unwrap();
    bench.fails(&["mtar", "restore", &harmed, &back, "--force"], DAMAGED, &["damaged at byte"]);
    assert_eq!(std::fs::read(&back).unwrap(), b"mine");
    assert_eq!(names(&bench, ".sapwood"), Vec::<String>::new());
    assert_eq!(names(&bench, "back"), ["back.tar"]);
}

/// Killed at any time, there is no file of the name.
#[test]
fn a_killed_command_leaves_no_half_result() {
    let bench = Bench::new("balanced");
    let large = bench.file("large.tar", &testing::noise(3, 60 << 20));
    let out = bench.arg("large.mtar");
    let mut killed = 0;
    for n in 0..12 {
        let child = Child::start(bench.command(&["mtar", "migrate", &large, &out]), "mtar");
        std::thread::sleep(Duration::from_millis(2 + n * 4));
        child.signal(Signal::KILL);
        let ended = child.wait();
        if ended.code().is_none() {
            killed += 1;
            // Killed between its name and its end, it is whole.
            if std::fs::metadata(&out).is_ok() {
                let back = bench.arg("back");
                bench.done(&["mtar", "restore", &out, &back, "--force"]);
                assert!(std::fs::read(&back).unwrap() == std::fs::read(&large).unwrap());
            }
        }
        let _ = std::fs::remove_file(&out);
    }
    assert!(killed >= 3, "{killed} of 12 were killed");
    let mut unread = bench.command(&["mtar", "migrate", "-", &out]);
    let mut child = unread.stdin(Stdio::piped()).spawn().unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    bench.done(&["mtar", "restore", &out, &bench.arg("empty.tar")]);
    assert_eq!(std::fs::metadata(bench.path("empty.tar")).unwrap().len(), 0);
}

/// Restoring, too: of a stream, and of a vault.
#[test]
fn a_killed_restore_leaves_no_half_result() {
    let bench = Bench::new("balanced");
    let bytes = testing::noise(3, 40 << 20);
    let tar = bench.file("large.tar", &bytes);
    let (mtar, out) = (bench.arg("large.mtar"), bench.arg("out.tar"));
    bench.done(&["mtar", "migrate", &tar, &mtar]);
    bench.done(&["-q", "backup", "host/etc", &tar, "--format", "tar"]);
    for restore in
        [&["mtar", "restore", &mtar, &out, "--force"][..], &["restore", "host/etc", &out, "--force"]]
    {
        let start = Instant::now();
        bench.done(restore);
        let whole = start.elapsed();
        let mut killed = 0;
        for n in 0..12 {
            // Half of the times over an older one, which stays until all of the new one is there.
            let old: &[u8] = b"old";
            let _ = std::fs::remove_file(&out);
            if n % 2 == 0 {
                std::fs::write(&out, old).unwrap();
            }
            let child = Child::start(bench.command(restore), "restore");
            std::thread::sleep(whole * n / 11);
            child.signal(Signal::KILL);
            if child.wait().code().is_none() {
                killed += 1;
                match std::fs::read(&out) {
                    Ok(there) => assert!(there == bytes || n % 2 == 0 && there == old, "{restore:?}"),
                    Err(_) => assert!(n % 2 != 0, "{restore:?}: the old one is gone"),
                }
            }
            // Between two names there is a hidden one.
            let hidden = names(&bench, ".sapwood");
            assert!(hidden.len() <= usize::from(n % 2 == 0), "{hidden:?}");
            hidden.iter().for_each(|name| std::fs::remove_file(bench.path(name)).unwrap());
        }
        assert!(killed >= 3, "{killed} of 12 were killed: {restore:?}");
    }
}

/// Whether a process catches a signal by now.
fn catches(process: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

/// Whatever it is told to stop in: between blocks, while it waits for its input, or for who reads its output.
#[test]
fn an_interrupted_command_ends_soon_and_cleans_up() {
    let bench = Bench::bare();
    let (tar, mtar) = (bench.file("a.tar", &testing::noise(3, 20 << 20)), bench.arg("a.mtar"));
    bench.done(&["mtar", "migrate", &tar, &mtar]);
    let out = bench.arg("out");
    let ends = |args: &[&str], signal, feed: &str, is_read: bool| {
        let mut command = bench.command(args);
        command.stderr(Stdio::piped()).stdout(Stdio::piped());
        let mut feeder = Command::new("bash").args(["-c", feed]).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = command.stdin(feeder.stdout.take().unwrap()).spawn().unwrap();
        drop(command);
        let mut stdout = child.stdout.take();
        if is_read {
            let mut stdout = stdout.take().unwrap();
            std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        }
        let start = Instant::now();
        while !catches(child.id(), signal) {
            assert!(start.elapsed() < Duration::from_secs(60), "{args:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        let _ = feeder.kill();
        let _ = feeder.wait();
        drop(stdout);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(INTERRUPTED), "{args:?}: {said}");
        assert_eq!(said, "sapwood: interrupted\n", "{args:?}");
        assert!(start.elapsed() < Duration::from_secs(3), "{args:?}: {:?}", start.elapsed());
        assert_eq!((names(&bench, "out"), names(&bench, ".sapwood")), (vec![], vec![]), "{args:?}");
    };
    for signal in [Signal::INT, Signal::TERM] {
        // A long input that keeps coming, and one that does not.
        ends(&["mtar", "migrate", "-", &out], signal, "cat /dev/zero", true);
        ends(&["mtar", "migrate", "-", &out], signal, "exec sleep 60", true);
        ends(
            &["mtar", "restore", "-", &out],
            signal,
            &format!("head -c 9000000 {mtar}; exec sleep 60"),
            true,
        );
    }
    // Nobody reads.
    ends(&["mtar", "migrate", "-", "-"], Signal::INT, "cat /dev/zero", false);
}

/// A terminal shows how far it is; what stays there is the report.
#[test]
fn a_terminal_shows_progress() {
    let bench = Bench::bare();
    let fifo = bench.arg("slow");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let log = bench.arg("log");
    let shown = |command: &str| {
        let line = format!("stty cols 100; {} {command}", env!("CARGO_BIN_EXE_sapwood"));
        let ended = Command::new("script").args(["-qec", &line, &log]).stdin(Stdio::null()).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned()
    };
    let slowly = |bytes: usize| {
        let to = fifo.clone();
        std::thread::spawn(move || {
            let mut to = std::fs::File::create(to).unwrap();
            for n in 0..10 {
                std::thread::sleep(Duration::from_millis(100));
                std::io::Write::write_all(&mut to, &testing::noise(n, bytes / 10)).unwrap();
            }
        })
    };
    let out = bench.arg("out");
    for command in ["mtar migrate", "mzip -f -o"] {
        let line = match command {
            "mtar migrate" => format!("{command} {fifo} {out} --force"),
            _ => format!("{command} {out} {fifo}"),
        };
        let feeder = slowly(30 << 20);
        let seen = shown(&line);
        feeder.join().unwrap();
        assert!(seen.contains("slow") && seen.contains("MiB/s"), "{command}: {seen:?}");
        // With -q nothing.
        let feeder = slowly(10 << 20);
        let seen = shown(&format!("-q {line}"));
        feeder.join().unwrap();
        assert!(!seen.contains("MiB/s"), "{command}: {seen:?}");
    }
}

/// A section, and what it is read and written with.
#[test]
fn memory_does_not_grow_with_the_archive() {
    let bench = Bench::bare();
    let tree = bench.path("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..3000u64 {
        std::fs::write(tree.join(format!("{n}")), testing::noise(n, (n * 31 % 60_000) as usize)).unwrap();
    }
    std::fs::write(tree.join("large"), testing::noise(1, 100 << 20)).unwrap();
    let (tar, mtar, back) = (bench.arg("a.tar"), bench.arg("a.mtar"), bench.arg("back"));
    let made =
        Command::new("tar").arg("-C").arg(&tree).args(["--format=pax", "-cf", &tar, "."]).status().unwrap();
    assert!(made.success());
    assert!(std::fs::metadata(&tar).unwrap().len() > 150 << 20);
    let within = |args: &[&str]| {
        let (taken, ended) = peak(bench.command(args), Stdio::piped());
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        eprintln!("{args:?}: {} MiB", taken >> 20);
        assert!((1 << 20..48 << 20).contains(&taken), "{args:?} took {taken} bytes");
    };
    within(&["mtar", "migrate", &tar, &mtar]);
    within(&["mtar", "restore", &mtar, &back]);
    assert!(Command::new("cmp").args([&tar, &back]).status().unwrap().success());
}

/// Backs an archive up, from standard input.
fn back_up(bench: &Bench, tar: &str, more: &str) {
    let shell = format!("{} -q backup host/etc - {more} < {tar}", env!("CARGO_BIN_EXE_sapwood"));
    let mut command = Command::new("bash");
    command.args(["-c", &shell]).env("SAPWOOD_STORE", &bench.store);
    Child::start(command, &shell).wait().expect_done();
}

/// The next version of an archive: other times in all headers, other bytes in a few files, of other lengths.
fn next_archive(bench: &Bench) -> (String, Vec<u8>) {
    let tree = bench.path("tree");
    for n in [3, 50, 51, 120u64] {
        std::fs::write(tree.join(format!("sub/{n}")), testing::noise(n + 1000, 7000)).unwrap();
    }
    let made = Command::new("tar")
        .arg("-C")
        .arg(&tree)
        .args(["--format=pax", "--mtime=2026-11-25", "-cf", "-", "sub"])
        .output()
        .unwrap();
    assert!(made.status.success());
    (bench.file("b.tar", &made.stdout), made.stdout)
}

#[test]
fn an_archive_is_backed_up_and_comes_back_in_one_command() {
    let bench = Bench::new("balanced");
    let (tar, bytes) = archive(&bench);
    back_up(&bench, &tar, "--format tar");
    let (next, next_bytes) = next_archive(&bench);
    // It stays an archive.
    back_up(&bench, &next, "");
    let listed = bench.json(&["snapshots", "host/etc"])["snapshots"].clone();
    for s in listed.as_array().unwrap() {
        assert_eq!(s["tags"]["source-format"], "tar", "{listed}");
    }
    // Its headers do not keep its files from being found again.
    let new = listed[1]["new_bytes"].as_u64().unwrap();
    assert!(new < next_bytes.len() as u64 / 2, "{new} of {}", next_bytes.len());
    assert!(bench.restored("host/etc@latest~1") == bytes);
    assert!(bench.restored("host/etc") == next_bytes);

    let back = bench.arg("back.tar");
    let json = bench.json(&["restore", "host/etc", &back, "--mode", "600"]);
    assert_eq!(
        (&json["format"], json["written_bytes"].as_u64()),
        (&"tar".into(), Some(next_bytes.len() as u64))
    );
    assert!(std::fs::read(&back).unwrap() == next_bytes);
    assert_eq!(std::fs::metadata(&back).unwrap().mode() & 0o777, 0o600);
    bench.fails(&["restore", "host/etc", &back], REFUSED, &["exists", "--force"]);
    bench.done(&["-q", "restore", "host/etc@latest~1", &back, "--format", "tar", "--force"]);
    assert!(std::fs::read(&back).unwrap() == bytes);
    assert_eq!(std::fs::metadata(&back).unwrap().mode() & 0o777, 0o600, "as the one that it replaces");
    // As it is stored.
    let mtar = bench.arg("stored.mtar");
    bench.done(&["-q", "restore", "host/etc", &mtar, "--format", "mtar"]);
    bench.done(&["-q", "mtar", "restore", &mtar, &back, "--force"]);
    assert!(std::fs::read(&back).unwrap() == next_bytes);
    // With others of its name.
    bench.done(&["-q", "restore", "host", "--to", &bench.arg("host")]);
    assert!(std::fs::read(bench.path("host/host-etc.tar")).unwrap() == next_bytes);

    // A copy, and what retention leaves, are archives.
    let second = bench.arg("second");
    assert!(common::sapwood(second.as_ref(), &["-q", "init", "--policy", "vm-centric"])
        .status()
        .unwrap()
        .success());
    bench.done(&["-q", "copy", "--all", "--to", &second]);
    let there = common::sapwood(second.as_ref(), &["-q", "restore", "host/etc", "-"]).output().unwrap();
    assert!(there.stdout == next_bytes);
    bench.done(&["-q", "retain", "--all", "--last", "1"]);
    assert!(bench.restored("host/etc") == next_bytes);
    bench.verify();
}

#[test]
fn an_archive_is_refused_where_a_disk_is_needed() {
    let bench = Bench::new("balanced");
    let (tar, bytes) = archive(&bench);
    bench.done(&["-q", "backup", "host/etc", &tar, "--source-format", "tar"]);
    let out = bench.file("out", b"there");
    let is_no_disk = ["host/etc@", "is a tar archive", "tar -tv"];
    for args in [
        &["files", "host/etc"][..],
        &["nbd", "host/etc", "--", "true"],
        &["diff", "host/etc", "host/etc"],
        &["restore", "host/etc", &bench.arg("live"), "--live"],
    ] {
        bench.fails(args, REFUSED, &is_no_disk);
    }
    bench.fails(&["restore", "host/etc", &out, "--in-place"], USAGE, &["is a tar archive", "--in-place"]);
    bench.fails(&["restore", "host/etc", &out, "--format", "qcow2"], USAGE, &["tar or mtar, not qcow2"]);
    bench.fails(&["restore", "host/etc", "/dev/null", "--force"], REFUSED, &["/dev/null", "is not a file"]);
    assert_eq!(std::fs::read(&out).unwrap(), b"there");
    bench.done(&["-q", "backup", "web01/vda", &out]);
    bench.fails(&["restore", "web01/vda", &bench.arg("none"), "--format", "tar"], USAGE, &["is a disk"]);
    // The user may make a disk of it.
    bench.done(&["-q", "backup", "host/etc", &tar, "--source-format", "raw"]);
    assert!(bench.restored("host/etc") == bytes);
    assert!(bench.restored("host/etc@latest~1") == bytes);
}

#[test]
fn an_archive_that_is_not_whole_is_not_stored() {
    let bench = Bench::new("balanced");
    let (tar, bytes) = archive(&bench);
    let before = bench.objects();
    let fails = |command: &str, more: &[&str], code: i32, said: &[&str]| {
        let args = ["backup", "host/etc", "--format", "tar", "--from-command", command];
        bench.fails(&[&args[..], more].concat(), code, said);
        assert!(bench.all_snapshots().is_empty());
    };
    fails(&format!("head -c 100000 {tar}; exit 3"), &[], FAILED, &["exit status: 3", "nothing was stored"]);
    fails("true", &[], REFUSED, &["host/etc", "is empty", "--force"]);
    let (cat, len) = (format!("cat {tar}"), bytes.len());
    fails(&cat, &["--stdin-size", "1MiB"], REFUSED, &["1048576", &len.to_string(), "nothing was stored"]);
    bench.fails(
        &["backup", "host/etc", &bench.arg("none"), "--format", "tar"],
        FAILED,
        &["none", "cannot open"],
    );
    let changed = ["backup", "host/etc", &tar, "--format", "tar", "--since", "latest", "--changed", &tar];
    bench.fails(&changed, USAGE, &["--changed", "read whole"]);
    bench.collect();
    assert_eq!(bench.objects(), before);
    bench.done(&[
        "-q",
        "backup",
        "host/etc",
        "--format",
        "tar",
        "--from-command",
        &cat,
        "--stdin-size",
        &len.to_string(),
    ]);
    // Damage of the vault is told as such, and leaves no file.
    let object = &bench.data_objects()[0];
    let mut stored = std::fs::read(object).unwrap();
    let middle = stored.len() / 2;
    stored[middle] ^= 1;
    std::fs::write(object, stored).unwrap();
    let ended = bench.run(&["restore", "host/etc", &bench.arg("back.tar")]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    assert!(ended.stderr.contains("sapwood repair"), "{ended}");
    assert_eq!(names(&bench, "back"), Vec::<String>::new());
    assert_eq!(names(&bench, ".sapwood"), Vec::<String>::new());
}
