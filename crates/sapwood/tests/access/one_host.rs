//! A vault where other hosts may see it.
//!
//! The story: a `hold` and a `backup` at once, through two mounts whose locks knew nothing of each other (NFS with `nolock`,
//! SMB with `nobrl`, virtiofs, sshfs), lost every snapshot, and both ended with exit code 0.

use crate::common::{random, Bench, REFUSED};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system that a process serves through FUSE, for all that can be told like one that other hosts see.
struct Served {
    at: PathBuf,
}

impl Served {
    /// NTFS in a file: served by a process, with all that a store needs. `None` where that is not allowed: the
    /// test is reported as skipped.
    fn new(bench: &Bench) -> Option<Served> {
        let (image, at) = (bench.path("ntfs.image"), bench.path("served"));
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(&at).unwrap();
        run("mkntfs", &["-F".as_ref(), "-Q".as_ref(), "-q".as_ref(), image.as_os_str()])
            .and_then(|()| run("ntfs-3g", &[image.as_os_str(), at.as_os_str()]))
            .map_err(|why| testing::skip("root and ntfs-3g", why))
            .ok()?;
        Some(Served { at })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        testing::unmount(&self.at);
    }
}

fn run(name: &str, args: &[&std::ffi::OsStr]) -> Result<(), String> {
    let out = Command::new(name).args(args).output().map_err(|e| format!("{name}: {e}"))?;
    if out.status.success() {
        Ok(())
    } else {
        Err(format!("{name}: {}", String::from_utf8_lossy(&out.stderr).trim()))
    }
}

/// Lets the record name another host.
fn of_another_host(store: &Path) {
    let record = store.join("one-host");
    let text = std::fs::read_to_string(&record).unwrap();
    let machine = text.lines().find(|l| l.starts_with("machine ")).unwrap();
    let other = text.replace(machine, "machine 00000000000000000000000000000000");
    let here = text.lines().find(|l| l.starts_with("host ")).unwrap();
    std::fs::write(&record, other.replace(here, "host elsewhere")).unwrap();
}

/// Every command that writes is refused, every one that reads works.
fn is_read_only(bench: &Bench, content: &[u8], said: &str) {
    let source = bench.arg("disk");
    for args in [
        &["backup", "vm/disk", &source][..],
        &["backup", "vm/new", &source],
        &["hold", "vm/disk@latest"],
        &["delete", "vm/disk@latest"],
        &["gc"],
        &["compact"],
        &["popular", "build"],
    ] {
        bench.fails(args, REFUSED, &[said, "--one-host"]);
    }
    assert_eq!(bench.snapshots("vm/disk").len(), 1);
    assert_eq!(bench.restored("vm/disk"), content);
    let verified = bench.run(&["-q", "verify", "--data"]);
    assert_eq!(verified.code(), Some(0), "{verified}");
}

#[test]
fn what_other_hosts_may_see_is_written_by_one_host_that_said_so() {
    let mut bench = Bench::bare();
    let Some(served) = Served::new(&bench) else { return };
    bench.store = served.at.join("vault");
    let content = random(1 << 20, 1);
    let source = bench.file("disk", &content);
    bench.fails(&["init"], REFUSED, &["other hosts may see", "fuse", "--one-host"]);
    assert!(!bench.store.exists(), "a refusal leaves nothing");

    bench.done(&["init", "--one-host"]);
    bench.backup("vm/disk", &source);
    bench.verify();
    of_another_host(&bench.store);
    is_read_only(&bench, &content, "only host elsewhere writes there");
    std::fs::remove_file(bench.store.join("one-host")).unwrap();
    is_read_only(&bench, &content, "other hosts may see");

    // The user's word, again: the vault is the one that it was.
    bench.done(&["init", "--one-host"]);
    bench.backup("vm/disk", &source);
    assert_eq!(bench.snapshots("vm/disk").len(), 2);
    bench.verify();
    drop(served);
}

/// A server's own disk is local to it, also when a client of its share is the one that writes.
#[test]
fn where_one_host_is_recorded_the_others_are_refused_on_local_disks_too() {
    let bench = Bench::new("balanced");
    let content = random(1 << 20, 2);
    let source = bench.file("disk", &content);
    bench.backup("vm/disk", &source);
    bench.done(&["init", "--one-host"]);
    bench.backup("vm/disk", &source);
    of_another_host(&bench.store);
    bench.fails(&["backup", "vm/disk", &source], REFUSED, &["only host elsewhere writes there"]);
    bench.fails(&["delete", "vm/disk@latest"], REFUSED, &["only host elsewhere", "--one-host"]);
    assert_eq!(bench.restored("vm/disk"), content);
    std::fs::write(bench.store.join("one-host"), "sapwood one host 2\n").unwrap();
    bench.fails(&["backup", "vm/disk", &source], REFUSED, &["cannot be understood"]);
    bench.done(&["init", "--one-host"]);
    bench.backup("vm/disk", &source);
    assert_eq!(bench.snapshots("vm/disk").len(), 3);
}
