//! A mounted file system to measure: that of a pool, or ext4; each on a loop device over a file of the working directory, as on a
//! disk of its own. Who may not make loop devices gets a pool in a file, and a plain directory for ext4.

mod loop_device;

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
use crate::machine::touch_memory;
use crate::run::{self, check_interrupted, succeed};
pub use loop_device::LoopDevice;

/// How long a server may take until it has mounted.
const START_TIME: Duration = Duration::from_secs(60);

/// The disks that are measured.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct DiskOptions {
    /// Limit the disks to N MB/s, reads and writes each (needs the blkio controller of cgroups v1)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    pub disk_rate: Option<u64>,
}

impl DiskOptions {
    /// In words.
    pub fn words(self) -> String {
        match self.disk_rate {
            _ if !has_disks() => "no loop devices: a pool in a file, a directory".to_owned(),
            Some(rate) => format!("loop devices of {rate} MB/s"),
            None => "loop devices".to_owned(),
        }
    }

    /// Bytes a second.
    pub fn rate(self) -> Option<u64> {
        self.disk_rate.map(|rate| rate * 1_000_000)
    }
}

/// What is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `sapwood pool serve --mount`.
    Pool,
    /// ext4.
    Ext4,
}

impl Kind {
    /// All, in an order that changes from run to run.
    pub fn in_turn(run: usize) -> [Kind; 2] {
        if run % 2 == 0 {
            [Kind::Pool, Kind::Ext4]
        } else {
            [Kind::Ext4, Kind::Pool]
        }
    }
}

/// Whether each file system gets a disk.
pub fn has_disks() -> bool {
    LoopDevice::are_there()
}

/// Those that can be compared here, in an order that changes from run to run: a directory is no ext4 to compare with.
pub fn comparable(run: usize) -> Result<Vec<Kind>> {
    ensure!(
        File::options().read(true).write(true).open("/dev/fuse").is_ok(),
        "mounting needs /dev/fuse: load the kernel module fuse"
    );
    if !has_disks() {
        eprintln!("ext4 is left out: it needs root, losetup, mkfs.ext4 and mount");
        return Ok(vec![Kind::Pool]);
    }
    Ok(Kind::in_turn(run).to_vec())
}

/// A file system of its own. Dropped, it is unmounted, and removed.
pub struct Mounted {
    /// What it is.
    pub kind: Kind,
    program: PathBuf,
    home: PathBuf,
    disk: Option<LoopDevice>,
    is_mounted: bool,
    server: Option<Child>,
}

impl Mounted {
    /// Makes a file system that holds `bytes` of data, below a directory. It is not mounted yet.
    pub fn create(
        context: &Context,
        kind: Kind,
        below: &Path,
        bytes: u64,
        options: DiskOptions,
    ) -> Result<Self> {
        let name = match kind {
            Kind::Pool => "pool",
            Kind::Ext4 => "ext4",
        };
        let home = files::fresh_dir(&below.join(name))?;
        let program = context.sapwood()?;
        let mut made = Mounted { kind, program, home, disk: None, is_mounted: false, server: None };
        fs::create_dir(made.place())?;
        // What either takes beside the data is below this.
        let bytes = (bytes + bytes / 8 + (512 << 20)).next_multiple_of(1 << 20);
        File::create(made.file())?.set_len(bytes)?;
        if has_disks() {
            // It is made at full speed.
            made.disk = Some(LoopDevice::attach(&made.file(), None)?);
        }
        match (kind, &made.disk) {
            (Kind::Pool, disk) => {
                let mut create = Command::new(&made.program);
                create.args(["--quiet", "pool", "create"]);
                match disk {
                    Some(disk) => create.arg(&disk.path),
                    None => create.arg(made.fresh_file()?).args(["--size", &bytes.to_string()]),
                };
                succeed(&mut create)?;
            }
            (Kind::Ext4, Some(disk)) => {
                // All of it is written now, none in the background while something is measured.
                let now = "lazy_itable_init=0,lazy_journal_init=0";
                succeed(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-E", now]).arg(&disk.path))?;
            }
            (Kind::Ext4, None) => {}
        }
        if let Some(rate) = options.rate() {
            drop(made.disk.take());
            made.disk = Some(LoopDevice::attach(&made.file(), Some(rate))?);
        }
        Ok(made)
    }

    fn file(&self) -> PathBuf {
        self.home.join("disk")
    }

    /// The file's place, where nothing is.
    fn fresh_file(&self) -> Result<PathBuf> {
        fs::remove_file(self.file())?;
        Ok(self.file())
    }

    /// Where it is mounted.
    pub fn place(&self) -> PathBuf {
        self.home.join("mounted")
    }

    /// A directory of this name in it, made if it is not there.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.place().join(name);
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// Mounts it.
    pub fn mount(&mut self) -> Result<()> {
        match (self.kind, &self.disk) {
            (Kind::Ext4, Some(disk)) => succeed(Command::new("mount").arg(&disk.path).arg(self.place()))?,
            (Kind::Ext4, None) => return Ok(()),
            (Kind::Pool, _) => self.serve()?,
        }
        self.is_mounted = true;
        Ok(())
    }

    fn serve(&mut self) -> Result<()> {
        let above = fs::metadata(&self.home)?;
        let pool = self.disk.as_ref().map_or_else(|| self.file(), |disk| disk.path.clone());
        let mut command = Command::new(&self.program);
        command.args(["--quiet", "pool", "serve"]).arg(pool).arg("--mount").arg(self.place());
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

    /// Mounts it anew: what the file system, or the server, had in memory is gone.
    pub fn remount(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// Unmounts it, empties the page cache, and mounts it again. What is measured next will take `memory` bytes.
    pub fn make_cold(&mut self, context: &Context, memory: u64) -> Result<()> {
        self.unmount()?;
        context.make_cold(&self.home)?;
        if !context.options.tiny {
            touch_memory(memory);
        }
        self.mount()
    }

    /// Makes durable what was written. A file system over FUSE is not told of `syncfs`, but of a directory's `fsync`.
    pub fn sync(&self) -> Result<()> {
        files::sync_file_system(&self.place())?;
        Ok(File::open(self.place())?.sync_all()?)
    }

    /// Processor time that the server has taken since it was started, where there is one; none of what the kernel serves.
    pub fn server_seconds(&self) -> f64 {
        self.server.as_ref().map_or(0.0, |server| run::cpu_seconds(server.id()))
    }

    /// Bytes that its disk takes.
    pub fn stored_bytes(&self) -> Result<u64> {
        Ok(files::Space::of(&self.file())?.allocated_bytes)
    }

    /// Unmounts it. Everything is on the disk then.
    pub fn unmount(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_mounted) && self.kind == Kind::Ext4 {
            succeed(Command::new("umount").arg(self.place()))?;
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

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("bench: {}: {error:#}", self.place().display());
            return;
        }
        drop(self.disk.take());
        let _ = fs::remove_dir_all(&self.home);
    }
}
