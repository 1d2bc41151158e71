//! Who may read what is made: the owner, and in a vault the owner's group; nobody else, whatever the umask.
//!
//! The story: under umask 077 the group that should read the vault could not, under 022 and 000 restored disks and sockets
//! were open to everybody.

use crate::common;
use crate::common::qemu::Machine;
use crate::common::{qemu_img, random, Bench, Child};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const UMASKS: [&str; 3] = ["000", "022", "077"];

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn everything_below(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(everything_below(&path))
        } else {
            all.push(path)
        }
    }
    all
}

/// The binary, under a umask.
fn under(bench: &Bench, umask: &str, args: &[&str]) -> Command {
    let inner = bench.command(args);
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"])
        .arg(inner.get_program())
        .args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(k, v)| v.map(|v| (k, v))));
    command
}

fn done(bench: &Bench, umask: &str, args: &[&str]) {
    Child::start(under(bench, umask, args), &format!("umask {umask}: {args:?}")).wait().expect_done();
}

#[test]
fn a_vault_is_for_its_owner_and_its_group() {
    for umask in UMASKS {
        let mut bench = Bench::bare();
        let above = bench.path("above");
        fs::create_dir(&above).unwrap();
        // What a directory hands down to those in it stays: here, its group.
        fs::set_permissions(&above, fs::Permissions::from_mode(0o2755)).unwrap();
        bench.store = above.join("made/vault");
        let source = bench.file("disk", &random(1 << 20, 1));
        for args in [
            &["init", "--policy", "conventional"][..],
            &["backup", "vm/disk", &source],
            &["backup", "vm/other", &source],
            &["backup", "vm/disk", &source],
            &["delete", "vm/disk@latest~1"],
            &["popular", "build"],
            &["init", "--one-host"],
            &["gc"],
            &["reindex"],
        ] {
            done(&bench, umask, args);
        }
        assert_eq!(mode(&above), 0o2755, "what was there is not touched");
        for path in everything_below(&above.join("made")) {
            let wanted = if path.is_dir() { 0o2750 } else { 0o640 };
            assert_eq!(mode(&path), wanted, "umask {umask}: {}", path.display());
        }
    }
}

#[test]
fn restored_disks_are_not_for_others() {
    let bench = Bench::new("balanced");
    let source = bench.file("disk", &random(1 << 20, 1));
    bench.backup("vm/disk", &source);
    for (umask, wanted) in [("000", 0o640), ("022", 0o640), ("077", 0o600)] {
        for format in ["raw", "qcow2"] {
            let target = bench.arg(&format!("{umask}.{format}"));
            done(&bench, umask, &["-q", "restore", "vm/disk", &target, "--format", format]);
            assert_eq!(mode(target.as_ref()), wanted, "umask {umask}, {format}");
        }
        let asked = bench.arg(&format!("asked.{umask}"));
        done(&bench, umask, &["-q", "restore", "vm/disk", &asked, "--mode", "664"]);
        assert_eq!(mode(asked.as_ref()), 0o664, "umask {umask}");
        // A file that is replaced passes its own on.
        fs::set_permissions(&asked, fs::Permissions::from_mode(0o604)).unwrap();
        done(&bench, umask, &["-q", "restore", "vm/disk", &asked, "--force"]);
        assert_eq!(mode(asked.as_ref()), 0o604, "umask {umask}");
        done(&bench, umask, &["-q", "restore", "vm/disk", &asked, "--force", "--mode", "600"]);
        assert_eq!(mode(asked.as_ref()), 0o600, "umask {umask}");

        let live = bench.arg(&format!("live.{umask}"));
        let child = under(&bench, umask, &["-q", "restore", "vm/disk", &live, "--live", "--", "true"]);
        Child::start(child, "restore --live").wait();
        assert_eq!(mode(live.as_ref()) & 0o007, 0, "umask {umask}");
        let overlay = bench.arg(&format!("overlay.{umask}"));
        let child = under(&bench, umask, &["-q", "nbd", "vm/disk", "--overlay", &overlay, "--", "true"]);
        Child::start(child, "nbd --overlay").wait();
        assert_eq!(mode(overlay.as_ref()) & 0o007, 0, "umask {umask}");
    }
    bench.fails(&["restore", "vm/disk", "-", "--mode", "600"], common::REFUSED, &["permissions"]);
    let usage = bench.run(&["restore", "vm/disk", &bench.arg("x"), "--mode", "1777"]);
    assert_eq!(usage.code(), Some(common::USAGE), "{usage}");
}

#[test]
fn sockets_are_for_their_owner() {
    let bench = Bench::new("balanced");
    let source = bench.file("disk", &random(1 << 20, 1));
    bench.backup("vm/disk", &source);
    for umask in UMASKS {
        let socket = bench.path(&format!("socket.{umask}"));
        let args = ["nbd", "vm/disk", "--socket", socket.to_str().unwrap()];
        let child = Child::start(under(&bench, umask, &args), "nbd --socket");
        wait_for(&socket);
        assert_eq!(mode(&socket) & 0o077, 0, "umask {umask}");
        child.signal(Signal::TERM);
        child.wait();

        let below = bench.path(&format!("tmp.{umask}"));
        fs::create_dir(&below).unwrap();
        let mut command = under(&bench, umask, &["nbd", "vm/disk"]);
        command.env("XDG_RUNTIME_DIR", &below);
        let child = Child::start(command, "nbd");
        let directory = first_in(&below);
        assert_eq!(mode(&directory), 0o700, "umask {umask}");
        wait_for(&directory.join("socket"));
        assert_eq!(mode(&directory.join("socket")) & 0o077, 0, "umask {umask}");
        child.signal(Signal::TERM);
        child.wait();
    }
}

/// Whoever may write to the control socket of a pool may delete its volumes.
#[test]
fn sockets_of_a_pool_are_for_their_owner() {
    let is_root = rustix::process::geteuid().is_root();
    let mut bench = Bench::bare();
    let pool = bench.arg("pool");
    bench.done(&["-q", "pool", "create", &pool, "--size", "160MiB"]);
    let made = fs::metadata(&pool).unwrap();
    let name = format!("{:x}-{:x}.socket", made.dev(), made.ino());
    for umask in UMASKS {
        let socket = bench.path(&format!("socket.{umask}"));
        let runtime = bench.path(&format!("run.{umask}"));
        fs::create_dir(&runtime).unwrap();
        bench.env = vec![("XDG_RUNTIME_DIR".into(), runtime.to_str().unwrap().into())];
        let served = under(&bench, umask, &["-q", "pool", "serve", &pool, "--nbd", socket.to_str().unwrap()]);
        // The directory of root is in /run, for all pools. A /run of its own shows with which mode it is made.
        let (command, runtime) = if is_root {
            let mut own = Command::new("unshare");
            own.args(["-m", "sh", "-c", "mount -t tmpfs none /run && exec \"$@\"", "sh"]);
            own.arg(served.get_program()).args(served.get_args());
            own.envs(served.get_envs().filter_map(|(k, v)| v.map(|v| (k, v))));
            (own, None)
        } else {
            (served, Some(runtime))
        };
        let child = Child::start(command, "pool serve");
        while !socket.exists() {
            if child.has_ended() {
                let ended = child.wait();
                assert!(is_root && ended.stderr.contains("unshare"), "{ended}");
                return testing::skip("a mount namespace", ended.stderr);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let own_run = || PathBuf::from(format!("/proc/{}/root/run", child.pid().as_raw_nonzero()));
        let directory = runtime.unwrap_or_else(own_run).join("sapwood");
        assert_eq!(mode(&directory), 0o700, "umask {umask}");
        for path in [&directory.join(&name), &socket] {
            assert!(fs::symlink_metadata(path).unwrap().file_type().is_socket());
            assert_eq!(mode(path) & 0o077, 0, "umask {umask}: {}", path.display());
        }
        child.signal(Signal::TERM);
        child.wait().expect_done();
    }
}

/// What the guest overwrites during its backup is kept in a directory, in which QEMU's socket is, too.
#[test]
fn the_directory_of_a_live_backup_is_for_its_owner() {
    let bench = Bench::new("balanced");
    let image = bench.arg("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, "8M"]);
    let mut vm = Machine::start(&bench, &image, "qcow2", vec![0; 8 << 20]);
    vm.write(0, 6 << 20, 1);
    let source = format!("qmp:{}#d0", bench.arg("qmp.sock"));
    for umask in UMASKS {
        let scratch = bench.path(&format!("s.{umask}"));
        fs::create_dir(&scratch).unwrap();
        let scratch_arg = scratch.to_str().unwrap();
        let args =
            ["-q", "backup", "vm/disk", &source, "--full", "--limit", "500k", "--scratch", scratch_arg];
        let child = Child::start(under(&bench, umask, &args), "a live backup");
        let directory = first_in(&scratch);
        assert_eq!(mode(&directory), 0o700, "umask {umask}");
        // What QEMU makes there has the mode that QEMU gives it.
        let socket = directory.join("nbd");
        wait_for(&socket);
        assert_eq!(mode(&directory), 0o700, "umask {umask}");
        let kept = everything_below(&directory);
        assert!(kept.len() > 3, "{kept:?}");
        for path in kept.iter().filter(|path| **path != socket) {
            assert_eq!(mode(path) & 0o007, 0, "umask {umask}: {}", path.display());
        }
        child.signal(Signal::INT);
        child.wait();
    }
}

/// What is made in an empty directory.
fn first_in(directory: &Path) -> PathBuf {
    loop {
        if let Some(made) = fs::read_dir(directory).unwrap().next() {
            return made.unwrap().path();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for(socket: &Path) {
    for _ in 0..10_000 {
        if fs::symlink_metadata(socket).is_ok_and(|m| m.file_type().is_socket()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{}: never came", socket.display());
}
