//! Where Glance keeps its images: the mounted file system of a pool, or ext4; each on a loop device over a file of the
//! working directory, opened past the page cache, as on a disk of its own. Who may not make loop devices gets a pool in a file
//! and a plain directory instead.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use serde::Serialize;

use crate::files;
use crate::run::{self, check_interrupted};

/// How long a server may take until it has mounted.
const START_TIME: Duration = Duration::from_secs(60);

/// What the images lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The mount of a pool.
    Pool,
    /// An ordinary file system.
    Ext4,
}

impl Kind {
    /// Both, in an order that changes from run to run.
    pub fn in_turn(run: usize) -> [Kind; 2] {
        if run % 2 == 0 {
            [Kind::Pool, Kind::Ext4]
        } else {
            [Kind::Ext4, Kind::Pool]
        }
    }
}

/// A place for images, mounted. Dropped, it is gone.
pub struct ImageStore {
    kind: Kind,
    home: PathBuf,
    sapwood: PathBuf,
    disk: Option<LoopDevice>,
    server: Option<Child>,
    is_mounted: bool,
}

impl ImageStore {
    /// Whether loop devices are there for this process.
    pub fn has_disks() -> bool {
        rustix::process::geteuid().is_root() && run::is_installed("losetup") && run::is_installed("mkfs.ext4")
    }

    /// Makes an empty one of so many bytes in a directory, and mounts it.
    pub fn create(kind: Kind, home: &Path, bytes: u64, sapwood: &Path) -> Result<Self> {
        let home = files::fresh_dir(home)?;
        let mut store = ImageStore {
            kind,
            sapwood: sapwood.to_owned(),
            disk: None,
            server: None,
            is_mounted: false,
            home,
        };
        fs::create_dir(store.mountpoint())?;
        let file = store.home.join("disk");
        if Self::has_disks() {
            fs::File::create(&file)?.set_len(bytes)?;
            store.disk = Some(LoopDevice::attach(&file)?);
        }
        match (kind, &store.disk) {
            (Kind::Pool, Some(disk)) => {
                succeed(Command::new(sapwood).args(["--quiet", "pool", "create"]).arg(&disk.0))?
            }
            (Kind::Pool, None) => succeed(
                Command::new(sapwood)
                    .args(["--quiet", "pool", "create"])
                    .arg(&file)
                    .args(["--size", &bytes.to_string()]),
            )?,
            (Kind::Ext4, Some(disk)) => succeed(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.0))?,
            (Kind::Ext4, None) => {}
        }
        store.mount()?;
        fs::create_dir(store.images())?;
        Ok(store)
    }

    fn mountpoint(&self) -> PathBuf {
        self.home.join("mnt")
    }

    /// The directory for Glance.
    pub fn images(&self) -> PathBuf {
        self.mountpoint().join("images")
    }

    /// What is measured.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Processor time of the server so far, where there is one.
    pub fn cpu_seconds(&self) -> f64 {
        self.server.as_ref().map_or(0.0, |server| run::cpu_seconds(server.id()))
    }

    fn mount(&mut self) -> Result<()> {
        let place = self.mountpoint();
        match (self.kind, &self.disk) {
            (Kind::Pool, disk) => {
                let pool = disk.as_ref().map_or_else(|| self.home.join("disk"), |disk| disk.0.clone());
                let outside = fs::metadata(&place)?.dev();
                let mut serve = Command::new(&self.sapwood);
                serve.args(["--quiet", "pool", "serve"]).arg(pool).arg("--mount").arg(&place);
                let server = serve.stdin(Stdio::null()).spawn().context("cannot start sapwood")?;
                let server = self.server.insert(server);
                let start = Instant::now();
                while fs::metadata(&place).map_or(outside, |m| m.dev()) == outside {
                    check_interrupted()?;
                    if let Some(status) = server.try_wait()? {
                        bail!("sapwood pool serve ended before it had mounted: {status}");
                    }
                    if start.elapsed() > START_TIME {
                        bail!("sapwood pool serve does not mount on {}", place.display());
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            }
            (Kind::Ext4, Some(disk)) => succeed(Command::new("mount").arg(&disk.0).arg(&place))?,
            (Kind::Ext4, None) => return Ok(()),
        }
        self.is_mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        let was_mounted = std::mem::take(&mut self.is_mounted);
        let Some(mut server) = self.server.take() else {
            return if was_mounted { succeed(Command::new("umount").arg(self.mountpoint())) } else { Ok(()) };
        };
        if let Some(pid) = rustix::process::Pid::from_raw(server.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let status = server.wait()?;
        if !status.success() {
            bail!("sapwood pool serve ended with {status}");
        }
        Ok(())
    }

    /// Makes durable what was written. A file system over FUSE is not told of `syncfs`, but of a directory's `fsync`.
    pub fn sync(&self) -> Result<()> {
        files::sync_file_system(&self.images())?;
        Ok(fs::File::open(self.images())?.sync_all()?)
    }

    /// Mounts it anew: what the file system, or the server, had in memory is gone.
    pub fn remount(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }
}

impl Drop for ImageStore {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("bench: {error:#}");
            return;
        }
        drop(self.disk.take());
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A loop device. Dropped, it is given back.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn attach(file: &Path) -> Result<Self> {
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--direct-io=on"]).arg(file);
        let said = attach.output().context("cannot start losetup")?;
        if !said.status.success() {
            bail!("losetup: {}", String::from_utf8_lossy(&said.stderr).trim());
        }
        Ok(LoopDevice(String::from_utf8_lossy(&said.stdout).trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = succeed(Command::new("losetup").arg("--detach").arg(&self.0)) {
            eprintln!("bench: {error:#}");
        }
    }
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
