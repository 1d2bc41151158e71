//! A vault on a file system that is full, or cannot be written.

use super::Kept;
use crate::common::mounted::can_mount;
use crate::common::{
    files_below, line_of, random, sapwood, Bench, Child, Mount, DAMAGED, DONE, FAILED, REFUSED,
};
use rustix::fs::{fallocate, FallocateFlags};
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;

/// Room that backups leave for deletion and collection is within it.
const ROOM: u64 = 40 << 20;

#[test]
fn a_full_vault_still_restores_deletes_and_collects() {
    let bench = Bench::bare();
    let Some(_mount) = Mount::tmpfs(&bench.store, ROOM) else { return };
    bench.done(&["init"]);
    let kept = Kept::with(bench);
    let bench = &kept.bench;
    let mut contents = Vec::new();
    loop {
        assert!(contents.len() < 20, "it never became full");
        let content = random(4 << 20, contents.len() as u64 + 10);
        let source = bench.file("source", &content);
        let ended = bench.run(&["-q", "backup", "vm/big", &source]);
        if ended.code() != Some(0) {
            ended.expect_failure(
                FAILED,
                &["no space left on", bench.store.to_str().unwrap(), "sapwood delete"],
            );
            break;
        }
        contents.push(content);
    }
    assert!(contents.len() > 2);
    let compare = |contents: &[Vec<u8>]| {
        for (back, content) in contents.iter().rev().enumerate() {
            assert!(bench.restored(&format!("vm/big@latest~{back}")) == *content);
        }
        kept.check_content();
    };
    compare(&contents);
    // Another disk is refused as well, and nothing of it stays.
    let objects = bench.objects();
    bench.fails(&["-q", "backup", "vm/other", &bench.arg("source")], FAILED, &["no space left on"]);
    bench.collect();
    assert_eq!(bench.objects(), objects);

    let oldest = format!("vm/big@latest~{}", contents.len() - 1);
    bench.done(&["delete", &oldest]);
    contents.remove(0);
    bench.collect();
    compare(&contents);
    bench.done(&["-q", "backup", "vm/big", &bench.arg("source")]);
    contents.push(std::fs::read(bench.path("source")).unwrap());
    compare(&contents);
}

/// Files of a whole reserve.
const RESERVE_FILES: usize = 60;

/// Another program, which takes what is left of a file system.
struct Filler<'a> {
    mount: &'a Path,
    /// Whether it takes files as well as bytes.
    files: bool,
    /// Those that it has made.
    made: Cell<usize>,
}

impl Filler<'_> {
    /// Takes all, to the last file and the last byte.
    fn fill(&self) {
        let dir = self.mount.join("filler");
        let _ = std::fs::create_dir(&dir);
        while self.files && File::create_new(dir.join(self.made.get().to_string())).is_ok() {
            self.made.set(self.made.get() + 1);
        }
        let path = self.mount.join("filler-bytes");
        let Ok(all) = File::options().append(true).create(true).open(path) else { return };
        let mut len = all.metadata().unwrap().len();
        for shift in (10..27).rev() {
            while fallocate(&all, FallocateFlags::empty(), len, 1 << shift).is_ok() {
                len += 1 << shift;
            }
        }
        all.sync_all().unwrap();
    }
}

/// Runs a command that reads a full vault. It must succeed; all that it may say is that it could not register.
fn reads(bench: &Bench, args: &[&str]) -> Vec<u8> {
    let ended = bench.run(args);
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.contains(" to -: ")).collect();
    assert!(
        lines.len() <= 1 && lines.iter().all(|line| line.contains("cannot register as a reader")),
        "{ended}"
    );
    ended.stdout
}

/// No byte or no inode was left, and not even a deletion could begin, because each command makes a file first.
///
/// Another program takes everything that any command gives back, until the last deletion. `deep`: files as well as bytes.
fn works_when_filled(make: impl FnOnce(&Path) -> Option<Mount>, deep: bool) {
    let bench = Bench::bare();
    let Some(mount) = make(&bench.path("mount")) else { return };
    let bench = Bench { store: mount.path.join("vault"), ..bench };
    bench.done(&["init"]);
    let reserve = || files_below(&bench.store.join("reserve")).len();
    assert_eq!(reserve(), RESERVE_FILES);
    let mut content = random(3 << 20, 1);
    let mut contents = Vec::new();
    for n in 0..3 {
        content[n << 20..(n << 20) + 100_000].copy_from_slice(&random(100_000, 50 + n as u64));
        bench.done(&["-q", "backup", "vm/a", &bench.file("source", &content)]);
        contents.push(content.clone());
    }
    for n in 0..2 {
        let other = bench.file("source", &random(20 << 20, 20 + n));
        bench.done(&["-q", "backup", "vm/b", &other, "--force"]);
    }
    for n in 0..20 {
        bench.done(&["-q", "backup", "vm/c", &bench.file("source", &random(50_000, 100 + n))]);
    }
    let filler = Filler { mount: &mount.path, files: deep, made: Cell::new(0) };
    let eat = || filler.fill();
    let compare = |contents: &[Vec<u8>]| {
        for (back, content) in contents.iter().rev().enumerate() {
            let bytes = reads(&bench, &["-q", "restore", &format!("vm/a@latest~{back}"), "-"]);
            assert!(bytes == *content, "vm/a@latest~{back}");
            eat();
        }
    };
    eat();
    assert!(std::fs::write(mount.path.join("one-more"), [1; 5000]).is_err());
    bench.fails(&["-q", "backup", "vm/new", &bench.arg("source")], FAILED, &["no space left"]);
    for _ in 0..4 {
        for args in [
            &["snapshots"][..],
            &["-q", "verify"],
            &["-q", "verify", "--data"],
            &["stats"],
            &["map", "vm/a@latest"],
            &["diff", "vm/a@latest~2", "vm/a@latest"],
            &["gc", "--dry-run"],
        ] {
            reads(&bench, args);
            eat();
        }
        compare(&contents);
    }
    for args in [
        &["hold", "vm/a@latest"][..],
        &["release", "vm/a@latest"],
        &["delete", "vm/a@latest~1"],
        &["gc"],
        &["delete", "vm/b@latest~1"],
    ] {
        bench.done(args);
        eat();
    }
    contents.remove(1);
    compare(&contents);
    // From here on nobody takes what is given back.
    let rest: Vec<String> = (1..20).map(|n| format!("vm/c@latest~{n}")).collect();
    let mut args = vec!["delete", "vm/b@latest"];
    args.extend(rest.iter().map(String::as_str));
    bench.done(&args);
    bench.done(&["gc"]);
    content[1_000_000..1_200_000].fill(7);
    bench.done(&["-q", "backup", "vm/a", &bench.file("source", &content)]);
    contents.push(content);
    bench.verify();
    for (back, content) in contents.iter().rev().enumerate() {
        assert!(bench.restored(&format!("vm/a@latest~{back}")) == *content);
    }
    std::fs::remove_dir_all(mount.path.join("filler")).unwrap();
    let _ = std::fs::remove_file(mount.path.join("filler-bytes"));
    bench.collect();
    assert_eq!(reserve(), RESERVE_FILES, "the reserve is whole again");
}

#[test]
fn a_tmpfs_without_a_byte_left() {
    works_when_filled(|at| Mount::tmpfs(at, 120 << 20), false);
}

#[test]
fn a_tmpfs_without_an_inode_left() {
    works_when_filled(|at| Mount::tmpfs_with(at, "size=200m,nr_inodes=1000"), true);
}

#[test]
fn an_ext4_without_a_byte_left() {
    works_when_filled(|at| Mount::image(at, 120 << 20, &["mkfs.ext4", "-q", "-F", "-m", "0"]), false);
}

#[test]
fn an_ext4_without_an_inode_left() {
    works_when_filled(
        |at| Mount::image(at, 200 << 20, &["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-N", "1100"]),
        true,
    );
}

#[test]
fn an_xfs_without_anything_left() {
    // A few thousand inodes.
    works_when_filled(|at| Mount::image(at, 320 << 20, &["mkfs.xfs", "-q", "-f", "-i", "maxpct=2"]), true);
}

/// A snapshot of a file system with the file `hello`, and a directory for what is served, open to every user.
fn with_files(bench: Bench) -> Kept {
    let image = bench.arg("fat");
    let tool = |name: &str, args: &[&str]| {
        let out = Command::new(name).args(args).output().unwrap();
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    };
    tool("mkfs.fat", &["-C", &image, "1024"]);
    tool("mcopy", &["-i", &image, &bench.file("hello", b"hello"), "::/hello"]);
    bench.backup("vm/files", &image);
    std::fs::create_dir(bench.path("room")).unwrap();
    std::fs::create_dir(bench.path("room/mnt")).unwrap();
    for dir in ["room", "room/mnt"] {
        std::fs::set_permissions(bench.path(dir), PermissionsExt::from_mode(0o777)).unwrap();
    }
    Kept::with(bench)
}

/// Serving a snapshot, and files out of it, only read the vault.
fn can_be_served(kept: &Kept, run: impl Fn(&[&str]) -> crate::common::Ended) {
    let [room, overlay, mnt] = ["room", "room/overlay", "room/mnt"].map(|name| kept.bench.arg(name));
    let serve = |args: &[&str], script: &str| {
        let ended = run(&[args, &["--", "sh", "-c", script]].concat());
        assert_eq!(ended.code(), Some(DONE), "{ended}");
        let said = ended.stderr.lines().filter(|line| line.contains("cannot register as a reader")).count();
        assert_eq!(said, 1, "once: {ended}");
        ended.stdout
    };
    let is_content = |copied: &[u8]| copied[..kept.content.len()] == *kept.content;
    let (copy, write) = ("nbdcopy \"$NBD_URI\" -", "qemu-io -f raw -c 'write -q -P 7 0 4k' \"$NBD_URI\"");
    assert!(is_content(&serve(&["-q", "nbd", "vm/kept"], copy)));
    serve(&["-q", "nbd", "vm/kept", &format!("--scratch={room}")], write);
    // Its snapshot would have to be held for as long as the overlay is there.
    let refused = run(&["-q", "nbd", "vm/kept", "--overlay", &overlay, "--", "true"]);
    assert_eq!(refused.code(), Some(REFUSED), "{refused}");
    let why = refused.stderr.lines().last().unwrap();
    assert!(why.contains(kept.bench.store.to_str().unwrap()) && why.contains("cannot be written"), "{why}");
    if can_mount() {
        let cat = format!("cat {mnt}/vm/kept/latest.raw");
        assert!(is_content(&serve(&["-q", "mount", &mnt], &cat)));
    }
    let got = format!("{room}/got");
    let ended = run(&["-q", "files", "vm/files", "get", "/hello", "--to", &got]);
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    assert_eq!(std::fs::read(format!("{got}/hello")).unwrap(), b"hello");
}

/// What only reads must work on a vault that cannot be written, and says that it is not protected.
fn can_be_read(kept: &Kept, run: impl Fn(&[&str]) -> crate::common::Ended) {
    let reads = |args: &[&str], registers: bool| {
        let ended = run(args);
        assert_eq!(ended.code(), Some(DONE), "{ended}");
        let said = ended.stderr.lines().filter(|line| line.contains("cannot register as a reader")).count();
        assert_eq!(said, usize::from(registers), "once: {ended}");
        ended.stdout
    };
    reads(&["snapshots"], false);
    assert!(reads(&["-q", "restore", "vm/kept", "-"], true) == kept.content);
    for args in [
        &["-q", "verify"][..],
        &["-q", "verify", "--data"],
        &["diff", "vm/kept", "vm/kept"],
        &["stats", "vm/kept"],
        &["map", "vm/kept"],
        &["gc", "--dry-run"],
    ] {
        reads(args, true);
    }
    let store = kept.bench.store.to_str().unwrap();
    let source = kept.bench.arg("kept");
    for args in [
        &["gc"][..],
        &["delete", "vm/kept@latest"],
        &["hold", "vm/kept@latest"],
        &["backup", "vm/kept", &source],
        &["backup", "vm/new", &source],
        &["init"],
    ] {
        run(args).expect_failure(REFUSED, &[store, "cannot be written"]);
    }
    assert_eq!(kept.bench.objects(), kept.objects);
}

#[test]
fn a_vault_that_cannot_be_written() {
    let bench = Bench::bare();
    let Some(mount) = Mount::tmpfs(&bench.store, ROOM) else { return };
    bench.done(&["init"]);
    let kept = with_files(bench);
    mount.read_only();
    can_be_read(&kept, |args| kept.bench.run(args));
    can_be_served(&kept, |args| kept.bench.run(args));
    assert!(kept.bench.run(&["gc"]).stderr.contains("read-only; mount it writable"));
}

#[test]
fn a_damaged_vault_that_cannot_be_written() {
    let bench = Bench::bare();
    let Some(mount) = Mount::tmpfs(&bench.store, ROOM) else { return };
    bench.done(&["init"]);
    let kept = Kept::with(bench);
    let data = &kept.bench.data_objects()[0];
    let mut bytes = std::fs::read(data).unwrap();
    bytes[100_000] ^= 1;
    std::fs::write(data, bytes).unwrap();
    mount.read_only();
    let ended = kept.bench.run(&["-q", "verify", "--data"]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    assert!(ended.stderr.contains("could not be recorded"), "{ended}");
    let ended = kept.bench.run(&["-q", "restore", "vm/kept", "-"]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
}

/// Somebody who may read the files and not write them: an auditor, or the user of a web console.
#[test]
fn a_vault_that_a_user_may_only_read() {
    let kept = with_files(Bench::new("balanced"));
    let all_may_enter = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(kept.bench.dir.path(), all_may_enter).unwrap();
    let opened = Command::new("chmod").args(["-R", "o+rX"]).arg(&kept.bench.store).status();
    assert!(opened.is_ok_and(|status| status.success()));
    let command = |args: &[&str]| {
        let plain = sapwood(&kept.bench.store, args);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
        command.arg(plain.get_program()).args(plain.get_args()).stdin(std::process::Stdio::null());
        command.env("SAPWOOD_STORE", &kept.bench.store).current_dir("/");
        command
    };
    if !command(&["--version"]).output().is_ok_and(|out| out.status.success()) {
        return testing::skip(
            "root, setpriv and a binary that every user may run",
            "another user cannot run it",
        );
    }
    let run = |args: &[&str]| Child::start(command(args), &line_of(args)).wait();
    can_be_read(&kept, run);
    can_be_served(&kept, run);
    kept.check();
}

/// A reader that could not register loses what it reads to a deletion: it says that, and not that the vault is damaged.
#[test]
fn a_reader_that_cannot_register_says_that_its_snapshot_is_gone() {
    let bench = Bench::new("balanced");
    let older = random(96 << 20, 80);
    bench.backup("vm/d", &bench.file("disk", &older));
    bench.backup("vm/d", &bench.file("disk", &random(1 << 20, 81)));
    let Some(view) = Mount::read_only_view(&bench.store, &bench.path("view")) else { return };
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel();
    let read = move |out: &mut std::process::ChildStdout| {
        let mut bytes = vec![0; 100_000];
        out.read_exact(&mut bytes).unwrap();
        begun.send(()).unwrap();
        may_go_on.recv().unwrap();
        out.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let args = ["-q", "restore", "vm/d@latest~1", "-"];
    let child = Child::start_with_reader(sapwood(&view.path, &args), &line_of(&args), read);
    has_begun.recv().unwrap();
    bench.done(&["delete", "vm/d@latest~1"]);
    go_on.send(()).unwrap();
    let ended = child.wait();
    assert_eq!(ended.code(), Some(FAILED), "{}", ended.stderr);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let [notice, error] = lines[..] else { panic!("{}", ended.stderr) };
    assert!(notice.contains("cannot register as a reader (") && notice.contains("may fail"), "{notice}");
    assert!(error.starts_with("sapwood: disks/") && error.contains("another process has deleted"), "{error}");
    assert!(error.contains("this reader could not register; run it again"), "{error}");
    assert!(older.starts_with(&ended.stdout) && ended.stdout.len() < older.len());
    bench.verify();
}
