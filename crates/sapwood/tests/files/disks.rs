//! Images of file systems, mounted to be filled and compared, and disks that are put together from them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;

/// How long other users of the loop devices are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time: loop devices are few.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program, which must succeed, and returns what it printed.
pub fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> String {
    let out = Command::new(program)
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .env("LVM_SUPPRESS_FD_WARNINGS", "1")
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .output()
        .unwrap_or_else(|why| panic!("{program}: {why}; see `tools/install-packages test`"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {}: {said}", crate::common::line_of(args));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A new file of holes.
pub fn blank(path: &Path, bytes: u64) -> PathBuf {
    File::create(path).and_then(|f| f.set_len(bytes)).unwrap();
    path.to_owned()
}

/// A new file system; `how` is the program and its options.
pub fn make(path: &Path, bytes: u64, how: &str) -> PathBuf {
    blank(path, bytes);
    let words: Vec<&str> = how.split_whitespace().chain([text(path)]).collect();
    run(words[0], &words[1..]);
    path.to_owned()
}

/// A mounted image; unmounted when dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// To be filled.
    pub fn new(image: &Path) -> Mounted {
        Mounted::with(image, "loop")
    }

    /// As it is, without a byte of it being changed.
    pub fn as_it_is(image: &Path) -> Mounted {
        let xfs = run("blkid", &["-p", "-o", "value", "-s", "TYPE", text(image)]).trim() == "xfs";
        Mounted::with(image, if xfs { "loop,ro,norecovery,nouuid" } else { "loop,ro,noload" })
    }

    fn with(image: &Path, options: &str) -> Mounted {
        let at = image.with_extension("mounted");
        std::fs::create_dir_all(&at).unwrap();
        let started = Instant::now();
        loop {
            let mut mount = Command::new("mount");
            let output = mount.args(["-o", options]).arg(image).arg(&at).output().unwrap();
            if output.status.success() {
                return Mounted(at);
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                said.contains("loop device") && started.elapsed() < PATIENCE,
                "mounting {} (as root?): {said}",
                image.display()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        testing::unmount(&self.0);
    }
}

/// ntfs-3g writes on after `umount`.
pub fn await_end(program: &str, at: &Path) {
    let serves = |pid: &Path| {
        let line = std::fs::read(pid.join("cmdline")).unwrap_or_default();
        line.starts_with(program.as_bytes()) && String::from_utf8_lossy(&line).contains(text(at))
    };
    while std::fs::read_dir("/proc").unwrap().flatten().any(|p| serves(&p.path())) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A loop device on a part of a file, detached when dropped.
pub struct Loop(pub String);

impl Loop {
    pub fn attach(image: &Path, offset: u64, bytes: u64) -> Loop {
        let (offset, bytes) = (offset.to_string(), bytes.to_string());
        let started = Instant::now();
        loop {
            let mut losetup = Command::new("/usr/sbin/losetup");
            losetup.args(["-f", "--show", "-o", &offset, "--sizelimit", &bytes]).arg(image);
            let out = losetup.output().unwrap();
            if out.status.success() {
                return Loop(String::from_utf8_lossy(&out.stdout).trim().into());
            }
            assert!(started.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&out.stderr));
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("/usr/sbin/losetup").args(["-d", &self.0]).status();
    }
}

/// Writes a table that a script of sfdisk describes.
pub fn partition(disk: &Path, script: &str) {
    let mut child = Command::new("/usr/sbin/sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel", text(disk)])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Puts an image into a disk at an offset, its holes left out.
pub fn put(image: &Path, disk: &Path, at: u64) {
    let seek = (at / 4096).to_string();
    assert_eq!(at % 4096, 0);
    let of = format!("of={}", text(disk));
    let from = format!("if={}", text(image));
    run("dd", &[&from[..], &of, "bs=4096", &format!("seek={seek}"), "conv=notrunc,sparse", "status=none"]);
}

/// Changes bytes of a file.
pub fn patch(file: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(file).unwrap().write_all_at(bytes, at).unwrap();
}

/// Runs LVM's programs on a machine without a device mapper, with one device.
pub fn lvm(device: &str, args: &[&str]) {
    let config = format!(
        "devices {{ filter=[\"a|^{device}$|\",\"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0 \
         scan=[\"/dev\"] }} activation {{ udev_sync=0 udev_rules=0 monitoring=0 }} global {{ event_activation=0 }}"
    );
    run(args[0], &[&["--driverloaded", "n", "--config", &config], &args[1..]].concat());
}

/// Runs commands of debugfs, which may write.
pub fn debugfs(image: &Path, commands: &[&str]) -> String {
    let script = image.with_extension("commands");
    std::fs::write(&script, commands.join("\n")).unwrap();
    run("debugfs", &["-w", "-f", text(&script), text(image)])
}
