//! What the tests of all crates share.

pub mod vhost;

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Names the file in which skipped tests are listed. `tools/test` sets it, and counts the tests that the file names.
const LIST: &str = "SAPWOOD_SKIPPED";

/// Bytes that do not compress and that each number gives its own of: test disks are made of them, blocks at a time.
pub fn noise(number: u64, bytes: usize) -> Vec<u8> {
    let mut x = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut noise = vec![0; bytes];
    for word in noise.chunks_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        word.copy_from_slice(&x.to_le_bytes()[..word.len()]);
    }
    noise
}

/// Where tests put small vaults: in memory, where that is there. Syncing is not what they test, and a file system without a
/// journal searches long for a free inode when many files were removed a moment ago.
pub fn memory_dir() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    }
}

/// Reports that this test, or a part of it, cannot run on this machine. Call it on the thread of the test, which then
/// returns or leaves the part out.
///
/// The test harness knows passed and failed only, and counts such a test as passed. Therefore it is listed by name in
/// the file that `SAPWOOD_SKIPPED` names, one line per call, and `tools/test` moves it from passed to skipped.
///
/// # Panics
/// With `CI` set, where every test must run.
pub fn skip(needs: &str, why: impl Display) {
    let program = std::env::current_exe().unwrap_or_default();
    let test = name_of_test(&program, thread::current().name());
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    report(&test, needs, &why.to_string(), set("CI").is_some(), set(LIST).map(PathBuf::from).as_deref());
}

/// Unmounts what is mounted there. While another thread starts a process, that has all open files, until it becomes its
/// program: a file system without open files is busy for a moment.
///
/// # Panics
/// If it stays busy for ten seconds, unless the test has failed. It is unmounted lazily then.
pub fn unmount(at: &Path) {
    let unmount = |args: &[&str]| Command::new("umount").args(args).arg(at).output();
    let start = Instant::now();
    loop {
        match unmount(&[]) {
            Ok(output) if output.status.success() => return,
            _ if start.elapsed() < Duration::from_secs(10) => thread::sleep(Duration::from_millis(50)),
            found => {
                let _ = unmount(&["-l"]);
                assert!(thread::panicking(), "{} cannot be unmounted: {found:?}", at.display());
                return;
            }
        }
    }
}

/// Whether this test may attach loop devices, and mount file systems of a kind where one is named. If not, it is reported
/// as skipped ([`skip`]).
pub fn can_mount(kind: &str) -> bool {
    // Both need the right to administer the system, which root in a container need not have.
    let loops = File::options().read(true).write(true).open("/dev/loop-control");
    let why = match loops {
        Err(e) => format!("/dev/loop-control: {e}"),
        Ok(_) if !kind.is_empty() && !has_file_system(kind) => format!("the kernel has no {kind}"),
        Ok(_) => return true,
    };
    skip("root, loop devices and mount", why);
    false
}

/// Whether the kernel mounts a kind of file system, if need be by a module.
fn has_file_system(kind: &str) -> bool {
    let list = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    list.lines().any(|line| line.split_whitespace().next_back() == Some(kind))
        || Command::new("modprobe").args(["-q", kind]).status().is_ok_and(|status| status.success())
}

/// `mount::a_vault_is_mounted`: the test binary without its hash, and the harness's name of the test's thread.
fn name_of_test(program: &Path, thread: Option<&str>) -> String {
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    let binary = program.rsplit_once('-').map_or(&*program, |(name, _hash)| name);
    format!("{binary}::{}", thread.unwrap_or("unnamed-thread"))
}

fn report(test: &str, needs: &str, why: &str, must_run: bool, list: Option<&Path>) {
    let line = format!("skipped: {test}: needs {needs}: {}", why.replace('\n', "; "));
    assert!(!must_run, "{line}; where CI is set, every test must run");
    eprintln!("{line}");
    if let Some(list) = list {
        // One write: tests of several processes append to it.
        let mut file =
            File::options().append(true).create(true).open(list).expect("the list of skipped tests");
        file.write_all(format!("{line}\n").as_bytes()).expect("the list of skipped tests");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_listed_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let list = dir.path().join("skipped");
        report("mount::one", "root", "mount: denied\ntry again", false, Some(&list));
        report("mount::two", "/dev/fuse", "No such file", false, Some(&list));
        let text = std::fs::read_to_string(&list).expect("the list");
        assert_eq!(
            text,
            "skipped: mount::one: needs root: mount: denied; try again\n\
             skipped: mount::two: needs /dev/fuse: No such file\n"
        );
        report("mount::three", "root", "there is no list", false, None);
    }

    #[test]
    #[should_panic(
        expected = "skipped: mount::one: needs root: denied; where CI is set, every test must run"
    )]
    fn a_skipped_test_fails_where_all_must_run() {
        report("mount::one", "root", "denied", true, None);
    }

    #[test]
    fn a_test_is_named_after_its_binary_and_its_thread() {
        let this = name_of_test(Path::new("/target/debug/deps/live_restore-0123456789abcdef"), Some("case"));
        assert_eq!(this, "live_restore::case");
        let own = name_of_test(&std::env::current_exe().expect("a path"), thread::current().name());
        let expected = "tests::a_test_is_named_after_its_binary_and_its_thread";
        // With --test-threads=1 the harness runs tests on its main thread.
        assert!(own == format!("testing::{expected}") || own == "testing::main", "{own}");
    }
}
