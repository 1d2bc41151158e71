//! Who may read what is made: the owner, and in a vault the owner's group; nobody else, whatever the umask.
//!
//! The story: under umask 077 the group that should read the vault could not, under 022 and 000 restored disks and sockets
//! were open to everybody.
#![allow(clippy::unwrap_used)]

mod common;

use common::{random, Bench, Child};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
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
        let directory = loop {
            if let Some(made) = fs::read_dir(&below).unwrap().next() {
                break made.unwrap().path();
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(mode(&directory), 0o700, "umask {umask}");
        wait_for(&directory.join("socket"));
        assert_eq!(mode(&directory.join("socket")) & 0o077, 0, "umask {umask}");
        child.signal(Signal::TERM);
        child.wait();
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
