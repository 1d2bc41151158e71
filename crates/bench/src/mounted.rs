//! A mounted file system to measure: that of a pool, or ext4 in a file on a loop device.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files;
use crate::run::{check_interrupted, is_installed};

/// How long a server may take until it has mounted.
const START_TIME: Duration = Duration::from_secs(60);

/// What is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `sapwood pool serve --mount`.
    Pool,
    /// ext4 on a loop device, as `mount -o loop` makes one.
    Ext4,
}

/// A file system of its own in a file. Dropped, it is unmounted, and removed.
pub struct Side {
    /// What it is.
    pub kind: Kind,
    program: PathBuf,
    home: PathBuf,
    is_mounted: bool,
    server: Option<Child>,
}

/// Those that can be mounted here. Without root there is no ext4, and nothing to compare with.
pub fn kinds() -> Result<Vec<Kind>> {
    ensure!(
        File::options().read(true).write(true).open("/dev/fuse").is_ok(),
        "mounting needs /dev/fuse: load the kernel module fuse"
    );
    let is_root = rustix::process::geteuid().is_root();
    let has_ext4 = is_root && ["mkfs.ext4", "mount", "umount"].into_iter().all(is_installed);
    if !has_ext4 {
        eprintln!("ext4 is left out: it needs root, mkfs.ext4 and mount");
    }
    Ok([Some(Kind::Pool), has_ext4.then_some(Kind::Ext4)].into_iter().flatten().collect())
}

impl Side {
    /// Makes a file system that holds `bytes` of data, below a directory. It is not mounted yet.
    pub fn create(context: &Context, kind: Kind, below: &Path, bytes: u64) -> Result<Self> {
        let name = match kind {
            Kind::Pool => "pool",
            Kind::Ext4 => "ext4",
        };
        let home = files::fresh_dir(&below.join(name))?;
        let side = Side { kind, program: context.sapwood()?, home, is_mounted: false, server: None };
        fs::create_dir(side.place())?;
        // What either takes beside the data is below this.
        let bytes = (bytes + bytes / 8 + (512 << 20)).next_multiple_of(1 << 20);
        match kind {
            Kind::Pool => {
                let mut command = Command::new(&side.program);
                command.args(["--quiet", "pool", "create"]).arg(side.image());
                finish(command.args(["--size", &format!("{}MiB", bytes >> 20)]))?;
            }
            Kind::Ext4 => {
                File::create(side.image())?.set_len(bytes)?;
                // All of it is written now, none in the background while something is measured.
                let now = "lazy_itable_init=0,lazy_journal_init=0";
                finish(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-E", now]).arg(side.image()))?;
            }
        }
        Ok(side)
    }

    fn image(&self) -> PathBuf {
        self.home.join("image")
    }

    /// Where it is mounted.
    pub fn place(&self) -> PathBuf {
        self.home.join("mounted")
    }

    /// Mounts it.
    pub fn mount(&mut self) -> Result<()> {
        match self.kind {
            Kind::Ext4 => {
                finish(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.place()))?
            }
            Kind::Pool => self.serve()?,
        }
        self.is_mounted = true;
        Ok(())
    }

    fn serve(&mut self) -> Result<()> {
        let above = fs::metadata(&self.home)?;
        let mut command = Command::new(&self.program);
        command.args(["--quiet", "pool", "serve"]).arg(self.image()).arg("--mount").arg(self.place());
        let server = command.stdin(Stdio::null()).spawn().context("cannot start sapwood")?;
        let server = self.server.insert(server);
        let start = Instant::now();
        loop {
            check_interrupted()?;
            if let Some(status) = server.try_wait()? {
                bail!("sapwood pool serve ended before it had mounted: {status}");
            }
            if fs::metadata(self.home.join("mounted")).is_ok_and(|mounted| mounted.dev() != above.dev()) {
                return Ok(());
            }
            ensure!(start.elapsed() < START_TIME, "sapwood pool serve does not mount");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Unmounts it, and empties the page cache.
    pub fn make_cold(&mut self, context: &Context) -> Result<()> {
        self.unmount()?;
        context.make_cold(&self.home)?;
        self.mount()
    }

    /// Processor time that the server has taken since it was started; none of what the kernel serves.
    pub fn server_seconds(&self) -> Result<Option<f64>> {
        let Some(server) = &self.server else { return Ok(None) };
        let (user, system) = crate::machine::cpu_seconds(&server.id().to_string())?;
        Ok(Some(user + system))
    }

    /// Bytes that its file takes on the disk.
    pub fn stored_bytes(&self) -> Result<u64> {
        Ok(files::Space::of(&self.image())?.allocated_bytes)
    }

    /// Unmounts it. Everything is on the disk then.
    pub fn unmount(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_mounted) && self.kind == Kind::Ext4 {
            finish(Command::new("umount").arg(self.place()))?;
        }
        if let Some(mut server) = self.server.take() {
            if let Some(pid) = rustix::process::Pid::from_raw(server.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let status = server.wait()?;
            ensure!(status.success(), "sapwood pool serve ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{}: {error}", self.place().display());
            return;
        }
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Runs a command that must succeed.
fn finish(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}
