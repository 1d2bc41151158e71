//! What tests borrow from the machine: QEMU's tools, small file systems, loop devices.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs one of QEMU's tools, which must be installed.
fn tool<S: AsRef<OsStr>>(name: &str, args: &[S]) -> Vec<u8> {
    let mut command = Command::new(name);
    command.args(args);
    let out = command.output().unwrap_or_else(|e| panic!("{name} is needed by this test (qemu-utils): {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// Runs `qemu-img`.
pub fn qemu_img<S: AsRef<OsStr>>(args: &[S]) -> Vec<u8> {
    tool("qemu-img", args)
}

/// Runs one command of `qemu-io` on a qcow2 image.
pub fn qemu_io(image: &str, command: &str) {
    tool("qemu-io", &["-f", "qcow2", "-c", command, image]);
}

/// Runs a command of the system; says why where it fails.
fn system(name: &str, args: &[&OsStr]) -> Result<String, String> {
    match Command::new(name).args(args).output() {
        Err(e) => Err(format!("{name}: {e}")),
        Ok(out) if !out.status.success() => {
            Err(format!("{name}: {}", String::from_utf8_lossy(&out.stderr).trim()))
        }
        Ok(out) => Ok(String::from_utf8_lossy(&out.stdout).trim().to_string()),
    }
}

/// A small file system in memory, unmounted when dropped.
pub struct Mount {
    pub path: PathBuf,
}

impl Mount {
    /// `None` where that is not allowed: the test is reported as skipped.
    pub fn tmpfs(path: &Path, bytes: u64) -> Option<Mount> {
        Self::tmpfs_with(path, &format!("size={bytes}"))
    }

    /// The same with any options.
    pub fn tmpfs_with(path: &Path, options: &str) -> Option<Mount> {
        Self::on(path, &["-t", "tmpfs", "-o", options, "tmpfs"].map(OsStr::new))
    }

    /// A file system that `mkfs` makes, a command and its arguments, on an image file beside the mount point.
    pub fn image(path: &Path, bytes: u64, mkfs: &[&str]) -> Option<Mount> {
        let image = path.with_extension("image");
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let mut args: Vec<&OsStr> = mkfs[1..].iter().map(OsStr::new).collect();
        args.push(image.as_os_str());
        if let Err(why) = system(mkfs[0], &args) {
            testing::skip("root and mount", why);
            return None;
        }
        Self::on(path, &[OsStr::new("-o"), OsStr::new("loop"), image.as_os_str()])
    }

    /// The file system on a block device.
    pub fn device(path: &Path, device: &str) -> Option<Mount> {
        Self::on(path, &[OsStr::new(device)])
    }

    /// What stands in a directory, at another path at which nothing can be written.
    pub fn read_only_view(of: &Path, path: &Path) -> Option<Mount> {
        Self::on(path, &[OsStr::new("-o"), OsStr::new("bind,ro"), of.as_os_str()])
    }

    fn on(path: &Path, args: &[&OsStr]) -> Option<Mount> {
        std::fs::create_dir_all(path).unwrap();
        match system("mount", &[args, &[path.as_os_str()]].concat()) {
            Ok(_) => Some(Mount { path: path.to_path_buf() }),
            Err(why) => {
                testing::skip("root and mount", why);
                None
            }
        }
    }

    /// Nothing can be written from now on.
    pub fn read_only(&self) {
        system("mount", &[OsStr::new("-o"), OsStr::new("remount,ro"), self.path.as_os_str()]).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        testing::unmount(&self.path);
    }
}

/// A block device on a file, given back when dropped.
pub struct LoopDevice {
    pub device: String,
}

impl LoopDevice {
    /// `None` where that is not allowed: the test is reported as skipped.
    pub fn on(file: &Path) -> Option<LoopDevice> {
        let args = [OsStr::new("--find"), OsStr::new("--show"), file.as_os_str()];
        match system("losetup", &args) {
            Ok(device) => Some(LoopDevice { device }),
            Err(why) => {
                testing::skip("root and loop devices", why);
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = system("losetup", &[OsStr::new("--detach"), OsStr::new(&self.device)]);
    }
}
