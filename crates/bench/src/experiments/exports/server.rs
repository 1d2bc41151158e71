//! A server of one disk, in a process of its own.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};

use crate::run::check_interrupted;

/// How long a server may take until it listens.
const START_TIME: Duration = Duration::from_secs(20);

/// A running server. Dropped, it is ended.
pub struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Sapwood, with a snapshot of the vault at `vault`; `more` as `sapwood nbd` takes it.
    pub fn sapwood(
        program: &Path,
        vault: &Path,
        snapshot: &str,
        more: &[&str],
        socket: &Path,
    ) -> Result<Server> {
        let mut command = Command::new(program);
        command.args(["--quiet", "--store"]).arg(vault).args(["nbd", snapshot]).args(more);
        command.arg("--socket").arg(socket);
        Self::start(command, socket)
    }

    /// qemu-nbd with a raw file, read-only, through the page cache.
    pub fn qemu(image: &Path, socket: &Path) -> Result<Server> {
        let mut command = Command::new("qemu-nbd");
        command.args(["--read-only", "--format=raw", "--persistent", "--shared=16", "--cache=writeback"]);
        command.arg("--socket").arg(socket).arg(image);
        Self::start(command, socket)
    }

    /// Sapwood, with all volumes of a pool; `how` and `place` as `sapwood pool serve` takes them.
    pub fn pool(program: &Path, pool: &Path, how: &str, place: &Path, socket: &Path) -> Result<Server> {
        let mut command = Command::new(program);
        command.args(["--quiet", "pool", "serve"]).arg(pool).arg(how).arg(place);
        Self::start(command, socket)
    }

    /// qemu-storage-daemon with a file or device that can be written, through the page cache; the export is called `disk`.
    pub fn storage_daemon(image: &Path, format: &str, socket: &Path) -> Result<Server> {
        let mut command = Command::new("qemu-storage-daemon");
        let driver = qemu_driver(image);
        command.arg("--blockdev").arg(format!("driver={driver},node-name=file,filename={}", image.display()));
        command.arg("--blockdev").arg(format!("driver={format},node-name=disk,file=file"));
        command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", socket.display()));
        command.args(["--export", "type=nbd,id=export,node-name=disk,name=disk,writable=on"]);
        Self::start(command, socket)
    }

    /// The same with a raw file, by vhost-user-blk.
    pub fn storage_daemon_vhost(image: &Path, socket: &Path) -> Result<Server> {
        let mut command = Command::new("qemu-storage-daemon");
        command.arg("--blockdev").arg(format!("driver=file,node-name=disk,filename={}", image.display()));
        command.arg("--export");
        command.arg(format!(
            "type=vhost-user-blk,id=export,node-name=disk,addr.type=unix,addr.path={},writable=on",
            socket.display()
        ));
        Self::start(command, socket)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn start(mut command: Command, socket: &Path) -> Result<Server> {
        let _ = fs::remove_file(socket);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {name}"))?;
        let mut server = Server { child, socket: socket.to_owned() };
        let start = Instant::now();
        while UnixStream::connect(&server.socket).is_err() {
            check_interrupted()?;
            if let Some(status) = server.child.try_wait()? {
                bail!("{name} ended before it listened: {status}");
            }
            if start.elapsed() > START_TIME {
                bail!("{name} does not listen on {}", socket.display());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// What clients call it.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }
}

/// QEMU's driver for an image: it has one for files and one for devices.
pub fn qemu_driver(image: &Path) -> &'static str {
    let is_device = fs::metadata(image).is_ok_and(|m| m.file_type().is_block_device());
    if is_device {
        "host_device"
    } else {
        "file"
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}
