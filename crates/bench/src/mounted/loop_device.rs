//! Loop devices over files, opened past the page cache, as disks of their own; as slow as is asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context as _, Result};

use crate::run::{is_installed, succeed};

/// Where the kernel's first version of control groups limits devices: in its root, for all processes, writes from the page cache
/// among them.
const LIMITS: &str = "/sys/fs/cgroup/blkio";

/// A loop device. Dropped, it is given back.
pub struct LoopDevice {
    pub path: PathBuf,
    /// Of the kernel, `MAJOR:MINOR`, where it is limited.
    limited: Option<String>,
}

impl LoopDevice {
    /// Whether this process may make them, with file systems on them.
    pub fn are_there() -> bool {
        let needed = ["losetup", "mkfs.ext4", "mount", "umount"];
        rustix::process::geteuid().is_root() && needed.into_iter().all(is_installed)
    }

    /// Makes one of a file. With a `rate` it reads so many bytes a second at most, and writes as many.
    pub fn attach(file: &Path, rate: Option<u64>) -> Result<Self> {
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--direct-io=on"]).arg(file);
        let said = attach.output().context("cannot start losetup")?;
        if !said.status.success() {
            bail!("losetup: {}", String::from_utf8_lossy(&said.stderr).trim());
        }
        let path = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
        let mut device = LoopDevice { path, limited: None };
        if let Some(rate) = rate {
            device.limit(rate)?;
        }
        Ok(device)
    }

    fn limit(&mut self, rate: u64) -> Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        let number = fs::read_to_string(Path::new("/sys/block").join(name).join("dev"))?.trim().to_owned();
        set_limit(&number, rate).with_context(|| {
            format!("a rate of the disk needs {LIMITS} (control groups of version 1, blkio), and root")
        })?;
        self.limited = Some(number);
        Ok(())
    }
}

/// Limits reads and writes of a device. 0: no limit.
fn set_limit(number: &str, rate: u64) -> std::io::Result<()> {
    ["read", "write"].into_iter().try_for_each(|what| {
        fs::write(
            Path::new(LIMITS).join(format!("blkio.throttle.{what}_bps_device")),
            format!("{number} {rate}"),
        )
    })
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let unlimited = self.limited.take().map_or(Ok(()), |number| set_limit(&number, 0));
        if let Err(error) = unlimited {
            eprintln!("bench: {}: still limited: {error}", self.path.display());
        }
        if let Err(error) = succeed(Command::new("losetup").arg("--detach").arg(&self.path)) {
            eprintln!("bench: {error:#}");
        }
    }
}
