//! Standard input, output and error that are closed, full, or lead to a pipe that nobody reads.

use super::Kept;
use crate::common::{commands, line_of, random, Bench, Child, Ended, DONE, FAILED, USAGE};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What is wrong with a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Broken {
    /// The other end of it is closed.
    Pipe,
    /// `/dev/full`.
    Full,
    /// There is no such descriptor.
    Closed,
}

const ALL: [Broken; 3] = [Broken::Pipe, Broken::Full, Broken::Closed];

/// A command, and what it is said to have done by whoever cannot be given its report.
struct Case {
    args: &'static [&'static str],
    done: Option<&'static str>,
}

const fn reads(args: &'static [&'static str]) -> Case {
    Case { args, done: None }
}

const fn changes(args: &'static [&'static str], done: &'static str) -> Case {
    Case { args, done: Some(done) }
}

/// Every command. Words in capitals stand for paths.
const CASES: &[Case] = &[
    changes(&["--store", "NEW", "init"], "a vault was made at"),
    changes(&["--store", "NEW", "--json", "init"], "a vault was made at"),
    changes(&["backup", "vm/a", "SOURCE", "--force"], " is stored"),
    changes(&["backup", "vm/new", "SOURCE"], " is stored"),
    changes(&["--json", "backup", "vm/a", "SOURCE", "--force"], " is stored"),
    changes(&["backup", "vm/a", "SOURCE", "--limit", "1M", "--force"], " is stored"),
    reads(&["snapshots"]),
    reads(&["--json", "snapshots"]),
    reads(&["restore", "vm/a", "-"]),
    reads(&["-q", "restore", "vm/a", "-"]),
    changes(&["restore", "vm/a", "TARGET"], " is restored to"),
    changes(&["--json", "restore", "vm/a", "TARGET", "--format", "qcow2"], " is restored to"),
    reads(&["restore", "vm/a", "TARGET", "--live", "--", "true"]),
    changes(&["delete", "vm/a@latest~1"], "vm/a@"),
    changes(&["--json", "delete", "vm/a@latest"], " deleted"),
    reads(&["diff", "vm/a@latest~1", "vm/a"]),
    reads(&["diff", "vm/a@latest~1", "vm/a", "--ranges"]),
    reads(&["--json", "diff", "vm/a@latest~1", "vm/a"]),
    reads(&["files", "vm/a"]),
    reads(&["--json", "files", "vm/a"]),
    reads(&["files", "vm/a", "list", "-r"]),
    reads(&["--json", "files", "vm/a", "list", "-r"]),
    reads(&["files", "vm/a", "get", "/file", "--to", "-"]),
    changes(&["files", "vm/a", "get", "/file", "--to", "DIRECTORY"], "1 files copied"),
    reads(&["files", "vm/a", "tar"]),
    reads(&["gc", "--dry-run"]),
    changes(&["gc"], " given back"),
    changes(&["--json", "compact"], " given back"),
    changes(&["reindex"], "hooks and reference indexes were rebuilt"),
    reads(&["stats"]),
    reads(&["--json", "stats"]),
    reads(&["stats", "--availability"]),
    changes(&["hold", "vm/a"], " is held"),
    changes(&["release", "vm/a"], " is already released"),
    reads(&["map", "vm/a"]),
    reads(&["nbd", "vm/a", "--socket", "SOCKET", "--", "true"]),
    reads(&["--json", "nbd", "vm/a", "--scratch", "--socket", "SOCKET", "--", "true"]),
    reads(&["mount", "EMPTY", "--", "true"]),
    changes(&["popular", "build"], "the popular set was built"),
    reads(&["popular", "status"]),
    reads(&["study", "SOURCE"]),
    reads(&["verify"]),
    reads(&["--json", "verify", "--data"]),
    changes(&["copy", "--all", "--to", "OTHER"], " snapshots were copied"),
    changes(&["retain", "vm/a", "--last", "1"], " snapshots were deleted"),
    changes(&["tag", "vm/a", "k=v"], "the tags of vm/a@"),
    changes(&["rename", "vm/a", "vm/b"], "vm/a is called vm/b"),
    changes(&["remove", "vm/a", "--yes"], "vm/a was removed"),
    changes(&["repair"], " damaged containers were written again"),
    reads(&["status"]),
    reads(&["config", "check", "CONFIG"]),
    changes(&["--config", "CONFIG", "run"], " is stored"),
    changes(&["restore", "vm", "--to", "NEW"], " is restored to"),
    changes(&["backup", "vm/t", "TAR", "--format", "tar"], " is stored"),
    reads(&["mtar", "migrate", "TAR", "-"]),
    changes(&["mtar", "migrate", "TAR", "TARGET"], " is written"),
    reads(&["mtar", "restore", "MTAR", "-"]),
    changes(&["mzip", "TAR", "--keep", "-o", "TARGET"], " is written"),
    reads(&["mzip", "TAR", "-c"]),
    reads(&["munzip", "MZIP", "-c"]),
    reads(&["munzip", "MZIP", "-l"]),
    reads(&["pool", "create", "NEW", "--size", "160MiB"]),
    reads(&["pool", "stats", "POOL"]),
    reads(&["pool", "check", "POOL"]),
    reads(&["pool", "serve", "POOL", "--nbd", "SOCKET"]),
    reads(&["--json", "pool", "serve", "POOL", "--nbd", "SOCKET"]),
    reads(&["volume", "--pool", "POOL", "create", "v", "--size", "1MiB"]),
    reads(&["volume", "--pool", "POOL", "list"]),
    reads(&["--json", "volume", "--pool", "POOL", "list"]),
    reads(&["volume", "--pool", "POOL", "resize", "there", "2MiB"]),
    reads(&["volume", "--pool", "POOL", "share", "there", "off"]),
    reads(&["volume", "--pool", "POOL", "snapshot", "there@later"]),
    reads(&["volume", "--pool", "POOL", "clone", "there@now", "v"]),
    reads(&["volume", "--pool", "POOL", "delete", "there@now"]),
    reads(&["completions", "bash"]),
    reads(&["--help"]),
    reads(&["backup", "--help"]),
    reads(&["--version"]),
    // Those that fail.
    reads(&["frobnicate"]),
    reads(&["restore", "vm/none", "-"]),
    reads(&["delete", "vm/a"]),
    reads(&["--json", "backup", "vm/a", "/missing"]),
];

/// A vault with two snapshots of a disk that has a file system, and what other commands work on.
struct Template {
    bench: Bench,
}

impl Template {
    fn new() -> Template {
        let bench = Bench::new("vm-centric");
        let tree = bench.path("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), random(300_000, 1)).unwrap();
        let disk = bench.arg("disk");
        File::create(&disk).and_then(|f| f.set_len(8 << 20)).unwrap();
        let options = ["-q", "-F", "-d", tree.to_str().unwrap(), &disk];
        let made = Command::new("/sbin/mkfs.ext4").args(options).status();
        assert!(made.is_ok_and(|m| m.success()), "mkfs.ext4 is needed by this test (e2fsprogs)");
        bench.backup("vm/a", &disk);
        std::fs::write(&disk, [std::fs::read(&disk).unwrap(), random(9000, 2)].concat()).unwrap();
        bench.backup("vm/a", &disk);
        let path = |name| bench.arg(name);
        let tarred =
            Command::new("tar").args(["-cf", &path("TAR"), "-C", tree.to_str().unwrap(), "file"]).status();
        assert!(tarred.is_ok_and(|t| t.success()));
        let job = format!("[jobs.a]\ndisks = {{ \"vm/j\" = \"{disk}\" }}\n");
        let config = format!("state_dir = \"{}\"\n{job}", path("state"));
        bench.file("CONFIG", config.as_bytes());
        bench.file("SOURCE", &random(700_000, 3));
        bench.done(&["--store", &path("OTHER"), "init"]);
        bench.done(&["-q", "mtar", "migrate", &path("TAR"), &path("MTAR")]);
        bench.done(&["-q", "mzip", &path("TAR"), "--keep", "-o", &path("MZIP")]);
        bench.done(&["pool", "create", &path("POOL"), "--size", "160MiB"]);
        for what in [&["create", "there", "--size", "1MiB"][..], &["snapshot", "there@now"]] {
            bench.done(&[&["volume", "--pool", &path("POOL")], what].concat());
        }
        Template { bench }
    }

    /// A copy of the vault and of what a command works on, and room of its own.
    fn copy(&self, args: &[&str]) -> Bench {
        let bench = Bench::bare_in(&testing::memory_dir());
        let parts = ["SOURCE", "TAR", "CONFIG", "OTHER", "MTAR", "MZIP", "POOL"];
        let used = parts.into_iter().filter(|part| args.contains(part)).map(|part| self.bench.path(part));
        let mut copy = Command::new("cp");
        copy.args(["-a", "--sparse=auto"]).arg(&self.bench.store).args(used).arg(bench.dir.path());
        assert!(copy.status().is_ok_and(|c| c.success()));
        std::fs::create_dir(bench.path("EMPTY")).unwrap();
        bench
    }
}

fn is_path(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase())
}

/// Runs a command with one of its streams (1, 2) broken.
fn run(bench: &Bench, args: &[String], broken: Option<(i32, Broken)>) -> Ended {
    let mut command = bench.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    match broken {
        None => {}
        Some((stream, Broken::Closed)) => {
            command = without(&command, &[stream]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Some((stream, broken)) => {
            let to: Stdio = match broken {
                Broken::Pipe => OwnedFd::from(UnixStream::pair().unwrap().0).into(),
                _ => OpenOptions::new().write(true).open("/dev/full").unwrap().into(),
            };
            if stream == 1 {
                command.stdout(to);
            } else {
                command.stderr(to);
            }
        }
    }
    let child = Child::start_as_is(command, &format!("{} ({broken:?})", line_of(args)));
    if args.iter().any(|word| word == "serve") {
        // It ends when it is told to.
        while !child.has_ended() && !bench.path("SOCKET").exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.signal(Signal::TERM);
    }
    child.wait()
}

/// The same command with descriptors closed.
fn without(command: &Command, closed: &[i32]) -> Command {
    let mut script = String::from("exec \"$@\"");
    closed.iter().for_each(|fd| script += &format!(" {fd}>&-"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?)))).stdin(Stdio::null());
    shell
}

/// `println!` panicked: exit code 101 and two lines about a bug, after the snapshot was committed, too.
#[test]
fn no_stream_that_is_broken_ends_any_command_badly() {
    let template = Template::new();
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(|| {
                while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    try_case(&template, case);
                }
            });
        }
    });
}

/// Runs a command with each of its outputs broken in each way.
fn try_case(template: &Template, case: &Case) {
    if case.args[0] == "mount" && !Path::new("/dev/fuse").exists() {
        testing::skip("/dev/fuse", "it is missing");
        return;
    }
    let outcome = |broken| {
        let bench = template.copy(case.args);
        let path = |w: &&str| if is_path(w) { bench.arg(w) } else { (*w).to_owned() };
        let args: Vec<String> = case.args.iter().map(path).collect();
        let ended = run(&bench, &args, broken);
        assert!(!ended.stderr.contains("panicked"), "{ended}");
        bench.verify();
        let made = bench.path("NEW/vault.json").exists();
        (ended, bench.all_snapshots().len(), made)
    };
    let (whole, snapshots, made) = outcome(None);
    for broken in ALL {
        let (ended, left, is_made) = outcome(Some((2, broken)));
        assert_eq!((ended.code(), left, is_made), (whole.code(), snapshots, made), "{ended}");
        assert_eq!(ended.stdout.is_empty(), whole.stdout.is_empty(), "{ended}");

        let (ended, left, is_made) = outcome(Some((1, broken)));
        assert_eq!((left, is_made), (snapshots, made), "{ended}");
        if whole.stdout.is_empty() {
            assert_eq!(ended.code(), whole.code(), "{ended}");
            continue;
        }
        let code = whole.code().map(|c| if c == DONE { FAILED } else { c });
        assert_eq!(ended.code(), code, "{ended}");
        match (case.done, broken) {
            (Some(done), _) => ended.expect_one_line(&[done, "standard output"]),
            (None, Broken::Pipe) => {
                assert!(!ended.stderr.contains("standard output"), "{ended}");
                assert!(!ended.stderr.contains("Broken pipe"), "{ended}");
            }
            (None, _) if case.args.contains(&"restore") && broken == Broken::Full => {
                assert!(ended.stderr.contains("No space left"), "{ended}");
            }
            (None, _) => assert!(ended.stderr.contains("standard output: cannot write"), "{ended}"),
        }
    }
}

/// A command that is added later is tried, too.
#[test]
fn every_command_is_among_them() {
    for command in commands::commands() {
        assert!(CASES.iter().any(|case| commands::is_of(case.args, &command)), "{command}");
    }
}

/// With the three closed, the first files that are opened could be given their numbers, and a report be written into an
/// object of the vault.
#[test]
fn no_object_of_the_vault_gets_the_number_of_a_closed_stream() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let source = bench.file("source", &random(2 << 20, 4));
    for closed in [&[0, 1, 2][..], &[1, 2], &[0, 1]] {
        for args in [&["backup", "vm/b", &source][..], &["snapshots"], &["verify", "--data"], &["nothing"]] {
            let mut command = without(&bench.command(args), closed);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let ended = Child::start_as_is(command, &line_of(args)).wait();
            let code = if args[0] == "nothing" { USAGE } else { FAILED };
            assert_eq!(ended.code(), Some(code), "{ended} without {closed:?}");
        }
        assert!(bench.restored("vm/b") == std::fs::read(&source).unwrap());
    }
    assert_eq!(bench.snapshots("vm/b").len(), 3);
    kept.check_content();
}

/// A standard input that is closed read as an empty disk.
#[test]
fn a_closed_standard_input_is_no_empty_disk() {
    let kept = Kept::new();
    let command = without(&kept.bench.command(&["backup", "vm/a", "-"]), &[0]);
    Child::start(command, "backup vm/a -").wait().expect_failure(FAILED, &["standard input is closed"]);
    kept.check();
}

/// The progress bar of a terminal that is gone: its writes fail with EIO.
#[test]
fn a_terminal_that_is_gone_ends_no_backup() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let source = bench.file("source", &random(1 << 20, 5));
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: the first two pointers are to locals, and the others may be null.
    let opened = unsafe {
        let none = std::ptr::null_mut();
        libc::openpty(&mut master, &mut slave, none, none.cast(), none.cast())
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were just opened, and nobody else has them.
    let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    drop(master);
    let mut command = bench.command(&["backup", "vm/b", &source, "--limit", "2M"]);
    command.stdout(Stdio::piped()).stderr(Stdio::from(slave));
    let ended = Child::start_as_is(command, "backup to a terminal that is gone").wait();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    assert_eq!(bench.snapshots("vm/b").len(), 1);
}

/// `sapwood ... | head -1`: no line about it, and not exit code 0 either, for not all of it was printed.
#[test]
fn a_reader_that_has_enough_is_told_nothing() {
    let template = Template::new();
    let bench = &template.bench;
    for args in [
        &["restore", "vm/a", "-"][..],
        &["files", "vm/a", "tar"],
        &["files", "vm/a", "get", "/file", "--to", "-"],
    ] {
        let child = Child::start_with_reader(bench.command(args), &line_of(args), |stdout| {
            let mut head = vec![0; 1000];
            stdout.read_exact(&mut head).unwrap();
            head
        });
        let ended = child.wait();
        assert_eq!((ended.code(), ended.stderr.as_str()), (Some(FAILED), ""), "{ended}");
    }
    bench.collect();
}

/// Another program (a terminal multiplexer, say) makes a pipe non-blocking: a write that would wait was an error.
#[test]
fn a_stream_that_another_program_made_non_blocking_is_waited_for() {
    let template = Template::new();
    let bench = &template.bench;
    let whole = bench.done(&["files", "vm/a", "tar"]).stdout;
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut command = bench.command(&["files", "vm/a", "tar"].map(OsStr::new));
    command.stdout(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::piped());
    let child = Child::start_as_is(command, "files tar to a non-blocking socket");
    let mut got = Vec::new();
    let mut ours = ours;
    std::thread::sleep(std::time::Duration::from_millis(100));
    ours.read_to_end(&mut got).unwrap();
    child.wait().expect_done();
    assert!(got == whole);
}
