//! A virtual machine that runs bonnie++ on a disk: the kernel and the first file system of a Debian image, bonnie++ of this
//! machine, no other system. It mounts the disk, says what bonnie++ printed, and ends.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};

use super::initramfs::Initramfs;
use crate::context::Context;
use crate::experiments::exports::server::qemu_driver;
use crate::images::ImageSet;
use crate::peers::{snapshot, Vault};
use crate::run::check_interrupted;

const QEMU: &str = "qemu-system-x86_64";
const BONNIE: &str = "bonnie++";
/// Memory of the machine, in MiB. bonnie++ should write at least twice as much.
pub const MEMORY_MIB: u64 = 320;
/// How long a machine may take.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// What begins the line with the exit status of bonnie++.
const ENDED: &str = "bonnie++ ended with ";

/// How QEMU gets at a disk.
pub enum Attached<'a> {
    /// QEMU opens a raw file or device, through the page cache or past it.
    Raw { path: &'a Path, is_cached: bool },
    /// A socket of an NBD server, and the name of the export.
    Nbd(&'a Path, &'a str),
    /// A socket of vhost-user-blk.
    Vhost(&'a Path),
}

/// What machines boot from.
pub struct Boot {
    kernel: PathBuf,
    initrd: PathBuf,
    home: PathBuf,
}

impl Boot {
    /// Takes the kernel and its first file system from the newest version of the first of `images`, and puts bonnie++ into it, with
    /// what it is given.
    pub fn make(context: &Context, images: &ImageSet, home: &Path, arguments: &[String]) -> Result<Self> {
        let image = images.disks.first().and_then(|disk| disk.versions.last()).context("no image")?;
        let program = context.sapwood()?;
        let store = home.join("vault");
        let vault = Vault::new(&program, store.clone(), "balanced", None);
        vault.init()?;
        let named = format!("guest/vda@{}", snapshot(&vault.backup("guest/vda", &image.path)?)?);
        let taken = |path: &str| -> Result<Vec<u8>> {
            let mut get = Command::new(&program);
            get.args(["--quiet", "--store"]).arg(&store).args(["files", &named, "get", path, "--to", "-"]);
            let output = get.stdin(Stdio::null()).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{}: {path}: {}", image.path.display(), said.trim());
            Ok(output.stdout)
        };
        let boot = Boot { kernel: home.join("kernel"), initrd: home.join("initrd"), home: home.to_owned() };
        fs::write(&boot.kernel, taken("/vmlinuz")?)?;
        fs::write(&boot.initrd, with_bonnie(taken("/initrd.img")?, arguments)?)?;
        fs::remove_dir_all(&store)?;
        Ok(boot)
    }

    /// Runs a machine with a disk that has an ext4; the line that bonnie++ printed.
    pub fn run(&self, disk: &Attached<'_>) -> Result<String> {
        let (console, said) = (self.home.join("console.log"), self.home.join("said.log"));
        let mut command = Command::new(QEMU);
        command.args(["-M", "q35,memory-backend=memory", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        command.args(["-smp", "2", "-m", &MEMORY_MIB.to_string(), "-display", "none", "-nodefaults"]);
        command.args(["-no-reboot", "-object"]);
        command.arg(format!("memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on"));
        for log in [&console, &said] {
            command.arg("-serial").arg(named("file:", log, ""));
        }
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initrd);
        // The kernel's check of the timer fails on a busy machine. Memory is cleared because an emulated processor does not see
        // what a server writes into it.
        let told = "console=ttyS0 rdinit=/bonnie/init panic=-1 quiet init_on_alloc=1 no_timer_check";
        command.args(["-append", told]);
        disk.give_to(&mut command);
        let errors = self.home.join("qemu.log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?);
        let mut machine = Machine(command.spawn().context("cannot start QEMU")?);
        let start = Instant::now();
        let status = loop {
            if let Some(status) = machine.0.try_wait()? {
                break status;
            }
            check_interrupted()?;
            ensure!(start.elapsed() < TIME_MAX, "the machine does not end");
            std::thread::sleep(Duration::from_millis(50));
        };
        let heard = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        ensure!(status.success(), "QEMU ended with {status}: {}", heard(&errors).trim());
        let said = heard(&said);
        if !said.lines().any(|line| line.trim() == format!("{ENDED}0")) {
            let console = heard(&console);
            let lines: Vec<&str> = console.lines().rev().take(10).collect();
            bail!(
                "bonnie++ did not end well in the machine: {} (its console, last line first: {})",
                said.trim(),
                lines.join(" / ")
            );
        }
        said.lines()
            .map(str::trim)
            .find(|line| line.contains(','))
            .map(str::to_owned)
            .context("bonnie++ printed nothing in the machine")
    }
}

impl Attached<'_> {
    fn give_to(&self, command: &mut Command) {
        match self {
            Attached::Raw { path, is_cached } => {
                let driver = qemu_driver(path);
                let direct = if *is_cached { "off" } else { "on" };
                let disk =
                    format!("driver={driver},node-name=disk,cache.direct={direct},discard=unmap,filename=");
                command.arg("-blockdev").arg(named(&disk, path, ""));
                command.args(["-device", "virtio-blk-pci,drive=disk"]);
            }
            Attached::Nbd(socket, export) => {
                let export = format!(",export={export}");
                let disk = "driver=nbd,node-name=disk,discard=unmap,server.type=unix,server.path=";
                command.arg("-blockdev").arg(named(disk, socket, &export));
                command.args(["-device", "virtio-blk-pci,drive=disk"]);
            }
            Attached::Vhost(socket) => {
                command.arg("-chardev").arg(named("socket,id=disk,path=", socket, ""));
                command.args(["-device", "vhost-user-blk-pci,chardev=disk"]);
            }
        }
    }
}

/// A path among what is said about it.
fn named(before: &str, path: &Path, after: &str) -> OsString {
    let mut all = OsString::from(before);
    all.push(path);
    all.push(after);
    all
}

/// A running machine. Dropped, it is ended.
struct Machine(std::process::Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A first file system that runs bonnie++ instead of looking for a system.
fn with_bonnie(initrd: Vec<u8>, arguments: &[String]) -> Result<Vec<u8>> {
    let program = program(BONNIE)?;
    let mut made = Initramfs::after(initrd);
    made.directory("bonnie");
    made.program("bonnie/bonnie++", &fs::read(&program)?);
    let mut loader = None;
    for library in libraries(&program)? {
        let name = library.file_name().context("a library without a name")?.to_string_lossy().into_owned();
        made.program(&format!("bonnie/{name}"), &fs::read(&library)?);
        if name.starts_with("ld-") {
            loader = Some(name);
        }
    }
    let loader = loader.context("bonnie++ is not a dynamic program, or for another system")?;
    let script = format!(
        "#!/bin/sh\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sys /sys\n\
         mount -t devtmpfs dev /dev\n\
         exec >/dev/ttyS0 2>&1\n\
         for module in virtio_pci virtio_blk ext4; do modprobe $module; done\n\
         mkdir -p /disk\n\
         mount -t ext4 /dev/vda /disk &&\n\
         /bonnie/{loader} --library-path /bonnie /bonnie/bonnie++ -d /disk -u root {} >/dev/ttyS1\n\
         status=$?\n\
         umount /disk || status=1\n\
         echo {ENDED}$status >/dev/ttyS1\n\
         sync\n",
        arguments.join(" ")
    );
    // A kernel whose first program has ended panics, and is told to restart at once then, which ends QEMU.
    made.program("bonnie/init", script.as_bytes());
    // bonnie++ looks up the user that it runs as.
    made.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n");
    made.file("etc/group", b"root:x:0:\n");
    Ok(made.finish())
}

fn program(name: &str) -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed"))
}

/// The libraries of a program, and what loads them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    let said = String::from_utf8_lossy(&output.stdout);
    // `libc.so.6 => /lib/libc.so.6 (0x…)`, or only the path.
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(said.lines().filter_map(path).collect())
}
