//! `paulo-6.2-guest` (Paulo 2009, table 6.2): bonnie++ inside a virtual machine, whose disk is a volume of a pool or a raw disk.
//!
//! As in the paper one machine runs it, on one disk after the other: volumes that share inline and in the background, over NBD and
//! by vhost-user-blk, and a raw disk that QEMU opens, past the page cache and through it, or that its storage daemon serves. Disks
//! are loop devices, as on hardware of their own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context as _, Result};
use pool::{FileDevice, Options, Pool, Sharing};

use super::machine::{Attached, Boot};
use super::report::{report, Measured};
use crate::context::Context;
use crate::experiments::exports::server::Server;
use crate::experiments::pools::PoolsOptions;
use crate::files::{self, Space};
use crate::images::{self, ImageSet};
use crate::mounted::{has_disks, DiskOptions, LoopDevice};
use crate::run::{check_interrupted, is_installed, succeed};

const VOLUME: &str = "disk";
/// What QEMU has of itself, and through the page cache as a pool reads.
const REFERENCE: &str = "raw, cached";

/// A disk of the machine.
#[derive(Clone, Copy)]
enum Side {
    /// Opened by QEMU.
    Raw { is_cached: bool },
    /// Served by QEMU's storage daemon.
    RawOverNbd,
    /// A volume, and whether it is served by vhost-user-blk.
    Volume { sharing: Sharing, by_vhost: bool },
}

const SIDES: [(&str, Side); 6] = [
    ("inline, NBD", Side::Volume { sharing: Sharing::Inline, by_vhost: false }),
    ("inline, vhost", Side::Volume { sharing: Sharing::Inline, by_vhost: true }),
    ("background, vhost", Side::Volume { sharing: Sharing::Background, by_vhost: true }),
    ("raw, NBD", Side::RawOverNbd),
    ("raw, direct", Side::Raw { is_cached: false }),
    (REFERENCE, Side::Raw { is_cached: true }),
];
const PIECE_BYTES: usize = 1 << 20;

/// Runs the experiment.
pub fn run(context: &Context, options: &PoolsOptions, disk: DiskOptions) -> Result<()> {
    for (program, package) in [
        ("bonnie++", "bonnie++"),
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("mkfs.ext4", "e2fsprogs"),
        ("ldd", "libc-bin"),
    ] {
        ensure!(is_installed(program), "{program} is not installed: it is in the package {package}");
    }
    // A kernel is in real images only.
    let images = match &context.options.images {
        Some(dir) => ImageSet::load(dir)?,
        None => ImageSet::load(&images::default_root()?.join("small"))?,
    };
    let bytes = options.bytes(context, 768, 16);
    context.require_free(8 * bytes)?;
    let chars = if context.options.tiny { 1 } else { 4 };
    let home = files::fresh_dir(&context.space().join("guest"))?;
    let boot = Boot::make(context, &images, &home, &super::arguments(bytes, chars))?;
    let socket = home.join(format!("{VOLUME}.socket"));
    let disks = Disks { context, home: &home, bytes, options: disk };
    let mut measured = Vec::new();
    for run in 0..context.runs() {
        let mut sides = SIDES;
        sides.rotate_left(run % SIDES.len());
        for (name, side) in sides {
            check_interrupted()?;
            let (line, stored) = match side {
                Side::Raw { is_cached } => {
                    let disk = disks.raw()?;
                    (boot.run(&Attached::Raw { path: disk.path(), is_cached })?, disk.stored_bytes()?)
                }
                Side::RawOverNbd => {
                    let disk = disks.raw()?;
                    let server = Server::storage_daemon(disk.path(), "raw", &socket)?;
                    let line = boot.run(&Attached::Nbd(&socket, VOLUME))?;
                    drop(server);
                    (line, disk.stored_bytes()?)
                }
                Side::Volume { sharing, by_vhost } => {
                    let disk = disks.pool(sharing)?;
                    let (how, place) = if by_vhost { ("--vhost", &home) } else { ("--nbd", &socket) };
                    let server = Server::pool(&context.sapwood()?, disk.path(), how, place, &socket)?;
                    let attached =
                        if by_vhost { Attached::Vhost(&socket) } else { Attached::Nbd(&socket, VOLUME) };
                    let line = boot.run(&attached)?;
                    drop(server);
                    (line, disk.stored_bytes()?)
                }
            };
            eprintln!("run {}, {name}: {line}", run + 1);
            measured.push(Measured::new(run, name, &line, stored)?);
        }
    }
    fs::remove_dir_all(&home)?;
    let title = format!("{}; the processor is emulated", disk.words());
    report(context, bytes, &title, (&SIDES.map(|(name, _)| name), REFERENCE), &measured)
}

/// How disks are made.
struct Disks<'a> {
    context: &'a Context,
    home: &'a Path,
    bytes: u64,
    options: DiskOptions,
}

impl Disks<'_> {
    /// A raw disk with an empty ext4 that has room for what bonnie++ writes.
    fn raw(&self) -> Result<Disk> {
        let file = self.home.join("raw");
        self.make_ext4(&file)?;
        self.attach(file)
    }

    /// A pool with one volume, of the same content.
    fn pool(&self, sharing: Sharing) -> Result<Disk> {
        let (ext4, file) = (self.home.join("ext4"), self.home.join("pool"));
        let size = self.make_ext4(&ext4)?;
        Pool::create(&FileDevice::create(&file, size + size / 4 + (512 << 20))?)?;
        let pool = Pool::open(Box::new(FileDevice::open(&file)?), Options::default())?;
        pool.create_volume(VOLUME, size, sharing)?;
        let volume = pool.volume(VOLUME)?;
        let source = File::open(&ext4)?;
        let mut piece = vec![0; PIECE_BYTES];
        for at in (0..size).step_by(PIECE_BYTES) {
            source.read_exact_at(&mut piece, at)?;
            if piece.iter().any(|byte| *byte != 0) {
                volume.write_at(at, &piece)?;
            }
        }
        drop(volume);
        pool.close().context("closing the pool")?;
        fs::remove_file(ext4)?;
        self.attach(file)
    }

    /// Makes a file with an empty ext4; its length.
    fn make_ext4(&self, path: &Path) -> Result<u64> {
        let size = (self.bytes + self.bytes / 8 + (64 << 20)).next_multiple_of(PIECE_BYTES as u64);
        File::create(path)?.set_len(size)?;
        // All of it is written now, none in the background while something is measured.
        let now = "lazy_itable_init=0,lazy_journal_init=0";
        succeed(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-E", now]).arg(path))?;
        Ok(size)
    }

    fn attach(&self, file: PathBuf) -> Result<Disk> {
        files::sync_file_system(&file)?;
        let device = if has_disks() { Some(LoopDevice::attach(&file, self.options.rate())?) } else { None };
        self.context.make_cold(&file)?;
        Ok(Disk { file, device })
    }
}

/// A disk of the machine, or of its pool. Dropped, it is gone.
struct Disk {
    file: PathBuf,
    device: Option<LoopDevice>,
}

impl Disk {
    fn path(&self) -> &Path {
        self.device.as_ref().map_or(&self.file, |device| &device.path)
    }

    fn stored_bytes(&self) -> Result<u64> {
        Ok(Space::of(&self.file)?.allocated_bytes)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.device.take());
        let _ = fs::remove_file(&self.file);
    }
}
