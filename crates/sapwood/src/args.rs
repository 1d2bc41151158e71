//! The arguments.

use crate::terminal::streams;
use clap::{Parser, Subcommand};
use std::convert::Infallible;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Deduplicating storage for the disks of virtual machines
#[derive(Parser)]
#[command(version, propagate_version = true)]
pub struct Args {
    /// Where the vault is: /path or file:///path
    #[arg(long, global = true, env = "SAPWOOD_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// Print exactly one JSON object
    #[arg(long, global = true)]
    pub json: bool,
    /// Show no progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Seconds to wait for locks that other processes have
    #[arg(long, global = true, default_value_t = store::LOCK_WAIT.as_secs(), value_name = "SECONDS")]
    pub lock_wait: u64,
    #[command(subcommand)]
    pub command: Command,
}

/// Parses permissions.
fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is no mode: three octal digits, such as 644"))
}

#[derive(Subcommand)]
pub enum Command {
    /// Create a vault
    Init {
        /// Policy of its backups: balanced, reverse, vm-centric, vm-centric-bloom or conventional
        #[arg(long, default_value = "balanced")]
        policy: String,
        /// Only this host will ever write to the vault, so it may be on storage that other hosts see (NFS, SMB, FUSE, a
        /// cluster); they may read it. For an existing vault: from now on only this host writes to it
        #[arg(long)]
        one_host: bool,
    },
    /// Back a disk up
    Backup(Box<Backup>),
    /// List snapshots
    Snapshots {
        /// Only those of this disk (vm/disk)
        #[arg(value_parser = parse_name)]
        disk: Option<String>,
    },
    /// Restore a snapshot
    Restore(Restore),
    /// Delete snapshots
    Delete {
        /// vm/disk@SNAP, all of them of one disk
        #[arg(value_parser = parse_name, required = true)]
        snapshots: Vec<String>,
    },
    /// Show what changed between two snapshots: ranges of the disk, and files
    Diff(Diff),
    /// List or copy single files of a snapshot's file systems
    Files(Files),
    /// Remove the remains of crashes, and compact containers
    Gc {
        /// Only list what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Rewrite containers with much dead space
    Compact {
        /// Only those of this disk (vm/disk)
        #[arg(value_parser = parse_name)]
        disk: Option<String>,
        /// Share of dead chunks, in percent, from which on a container is rewritten
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        threshold: u8,
    },
    /// Rebuild the indexes
    Reindex,
    /// Show space, savings and fragmentation
    Stats {
        /// Only of this disk (vm/disk)
        #[arg(value_parser = parse_name, conflicts_with = "availability")]
        disk: Option<String>,
        /// Instead: how many disks would survive failures of machines in a cluster that holds the vault
        #[arg(long)]
        availability: bool,
        #[command(flatten)]
        cluster: Availability,
    },
    /// Keep a snapshot from being deleted
    Hold {
        /// vm/disk@SNAP
        #[arg(value_parser = parse_name)]
        snapshot: String,
    },
    /// Remove the hold of a snapshot
    Release {
        /// vm/disk@SNAP
        #[arg(value_parser = parse_name)]
        snapshot: String,
    },
    /// Draw where a snapshot's data lies
    Map {
        /// vm/disk, or vm/disk@SNAP
        #[arg(value_parser = parse_name)]
        snapshot: String,
    },
    /// Serve a snapshot as a disk, without restoring it
    Nbd(Nbd),
    /// Show all snapshots as read-only files: VM/DISK/SNAPSHOT.raw
    Mount(Mount),
    /// Build or show the popular set: chunks that many disks have, stored once
    Popular {
        #[command(subcommand)]
        what: Popular,
    },
    /// Show what deduplication would save, without storing anything
    Study {
        /// Files, disk images, directories
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// A chunker: 4k, 32k, cdc:8k
        #[arg(long, value_name = "SPEC", default_values = ["4k", "8k", "12k", "cdc:4k"])]
        chunk: Vec<String>,
        /// Read all of them as this format instead of going by their content (raw, qcow2, vmdk)
        #[arg(long, value_name = "FORMAT")]
        source_format: Option<String>,
    },
    /// Look for damage, and list the snapshots that it affects
    Verify {
        /// Only this disk (vm/disk) or snapshot (vm/disk@SNAP)
        #[arg(value_parser = parse_name)]
        name: Option<String>,
        /// Read all chunks, too
        #[arg(long)]
        data: bool,
    },
}

#[derive(clap::Args)]
pub struct Availability {
    /// With --availability: machines of the cluster
    #[arg(long, default_value_t = 100, value_name = "N", requires = "availability")]
    pub machines: u32,
    /// With --availability: replicas of each container
    #[arg(long, default_value_t = 3, value_name = "N", requires = "availability")]
    pub replicas: u32,
    /// With --availability: replicas of containers that disks share
    #[arg(long, default_value_t = 6, value_name = "N", requires = "availability")]
    pub shared_replicas: u32,
}

#[derive(Subcommand)]
pub enum Popular {
    /// Build the set anew from what is stored; later backups refer to it
    Build {
        /// Share of the unique chunks, in percent; only chunks of two disks or more are taken
        #[arg(long, default_value_t = 100.0 * vault::POPULAR_FRACTION, value_name = "PERCENT")]
        fraction: f64,
        /// Where chunks are counted: about 40 bytes for each [default: TMPDIR, or else /var/tmp]
        #[arg(long, value_name = "DIR")]
        scratch: Option<PathBuf>,
    },
    /// Show how popular chunks are, and what sets of other sizes would hold
    Status {
        /// Where chunks are counted: about 40 bytes for each [default: TMPDIR, or else /var/tmp]
        #[arg(long, value_name = "DIR")]
        scratch: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
pub struct Backup {
    /// vm/disk, for example web01/vda: two parts of letters, digits and . _ - + :, neither beginning with . or -, of at
    /// most 255 bytes each; with qmp:SOCKET and libvirt:DOMAIN the vm alone
    #[arg(value_parser = parse_name)]
    pub disk: String,
    /// File or block device (raw, qcow2, VMDK, by content), nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH,
    /// qmp:SOCKET#NODE (a disk of a running QEMU; point in time, dirty bitmap and export are set up), qmp:SOCKET (all
    /// its disks at one instant), libvirt:DOMAIN (the same of a running domain), or - for standard input
    pub source: PathBuf,
    /// Instead of the vault's policy
    #[arg(long)]
    pub policy: Option<String>,
    /// auto, zstd:LEVEL, lz4 or none
    #[arg(long)]
    pub codec: Option<String>,
    /// The newest snapshot, where --changed or --bitmap begins: its id, or the beginning of that
    #[arg(long, value_name = "SNAP", requires = "what_changed")]
    pub since: Option<String>,
    /// What changed since: lines of OFFSET LENGTH in bytes, or what rbd diff --format json,
    /// nbdinfo --map=qemu:dirty-bitmap:NAME --json or thin_delta print. Nothing else is read
    #[arg(long, value_name = "FILE", requires = "since", group = "what_changed")]
    pub changed: Option<PathBuf>,
    /// Dirty bitmap of the NBD export that tells what changed since. Nothing else is read
    #[arg(long, value_name = "NAME", requires = "since", group = "what_changed")]
    pub bitmap: Option<String>,
    /// Read all of the disk, whatever QEMU's bitmap says has changed
    #[arg(long, conflicts_with = "since")]
    pub full: bool,
    /// With qmp and libvirt: where the guest's old data is kept while the backup runs [default: TMPDIR, or else /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// With qmp: socket of the guest agent, which freezes file systems for the point in time
    #[arg(long, value_name = "SOCKET")]
    pub agent: Option<PathBuf>,
    /// Read at most this much in a second (50M, 1.5G, 20MiB), at idle CPU and I/O priority
    #[arg(long, value_name = "RATE", value_parser = crate::sizes::parse_rate)]
    pub limit: Option<u64>,
    /// Point in time of the source, UTC (2026-11-21T22:00:00) [default: now]
    #[arg(long, value_name = "T")]
    pub time: Option<String>,
    /// A tag to store with the snapshot
    #[arg(long, value_name = "K=V")]
    pub tag: Vec<String>,
    /// Read the source as this format instead of going by its content (raw, qcow2, vmdk). An image's backing files are
    /// followed only if this was given, now or before: the guest of a raw disk can write an image's header into it
    #[arg(long, value_name = "FORMAT")]
    pub source_format: Option<String>,
    /// Follow backing files and extents that an image names outside its own folder
    #[arg(long)]
    pub allow_backing_outside: bool,
    /// Read files even while a running machine has them open for writing: the snapshot may be torn
    #[arg(long = "unsafe")]
    pub allow_in_use: bool,
}

#[derive(clap::Args)]
pub struct Restore {
    /// vm/disk, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time
    #[arg(value_parser = parse_name)]
    pub snapshot: String,
    /// File or block device, or - for standard output
    pub target: PathBuf,
    /// raw or qcow2
    #[arg(long, default_value = "raw")]
    pub format: String,
    /// Replace an existing file, or write to a device
    #[arg(long)]
    pub force: bool,
    /// With --force: overwrite it even while a running machine has it open. The machine loses what it has written
    #[arg(long = "unsafe", requires = "force")]
    pub allow_in_use: bool,
    /// Permissions of the file, in octal, such as 644 [default: those of the file that is replaced, or else 640 less the umask]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, conflicts_with = "live")]
    pub mode: Option<u32>,
    /// Serve the disk over NBD from the first moment, to be read and written, while it is restored
    #[arg(long)]
    pub live: bool,
    /// With --live: file that records what has arrived [default: beside the target file]
    #[arg(long, value_name = "FILE", requires = "live")]
    pub map: Option<PathBuf>,
    /// With --live: restore at most this much in a second (50M, 1.5G, 20MiB), apart from data that a client waits for
    #[arg(long, value_name = "RATE", requires = "live", value_parser = crate::sizes::parse_rate)]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub serve: Serve,
    /// With --live: serve while this command runs, with NBD_URI and NBD_SOCKET in its environment
    #[arg(last = true, value_name = "COMMAND", requires = "live")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args)]
pub struct Nbd {
    /// vm/disk, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time
    #[arg(value_parser = parse_name)]
    pub snapshot: String,
    /// Make the disk writable, and keep the writes in this file (qcow2), created if it is missing
    #[arg(long, value_name = "FILE", conflicts_with = "scratch")]
    pub overlay: Option<PathBuf>,
    /// Make the disk writable, and throw the writes away at the end; until then they are in DIR [default: TMPDIR, or else /var/tmp]
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    pub scratch: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub serve: Serve,
    /// Serve while this command runs, with NBD_URI and NBD_SOCKET in its environment, and end with it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// How a disk is served.
#[derive(clap::Args)]
pub struct Serve {
    /// Unix socket to listen on [default: one in a new directory below XDG_RUNTIME_DIR, or else TMPDIR, or else /var/tmp]
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub socket: Option<PathBuf>,
    /// Address and port to listen on instead, such as 127.0.0.1:10809. Anyone who can reach it can read the disk
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<std::net::SocketAddr>,
    /// Memory for decompressed data [default: a quarter of what is available]
    #[arg(long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
}

#[derive(clap::Args)]
pub struct Diff {
    /// The older one: vm/disk@SNAP
    #[arg(value_parser = parse_name)]
    pub old: String,
    /// The newer one: vm/disk@SNAP
    #[arg(value_parser = parse_name)]
    pub new: String,
    /// List changed ranges, and do not look for files
    #[arg(long)]
    pub ranges: bool,
    /// Memory for decompressed data [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
}

#[derive(clap::Args)]
pub struct Files {
    /// vm/disk, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time
    #[arg(value_parser = parse_name)]
    pub snapshot: String,
    /// What to do; without it, volumes are listed
    #[command(subcommand)]
    pub what: Option<FilesWhat>,
    /// Memory for decompressed data [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
}

#[derive(Subcommand)]
pub enum FilesWhat {
    /// List directories
    List {
        /// [VOLUME:]PATH; the root, where none is given
        paths: Vec<std::ffi::OsString>,
        /// Include subdirectories
        #[arg(short, long)]
        recursive: bool,
    },
    /// Copy files and directories
    Get {
        /// [VOLUME:]PATH
        #[arg(required = true)]
        paths: Vec<std::ffi::OsString>,
        /// Directory to copy into, or - for one file to standard output [default: .]
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Write a tar archive to standard output, sparse files sparse, with extended attributes
    Tar {
        /// [VOLUME:]PATH; the root, where none is given
        paths: Vec<std::ffi::OsString>,
    },
}

#[derive(clap::Args)]
pub struct Mount {
    /// An empty directory
    pub mountpoint: PathBuf,
    /// Let every user of this machine read the disks [default: only the user who mounts]
    #[arg(long)]
    pub allow_other: bool,
    /// Memory for decompressed data [default: a quarter of what is available]
    #[arg(long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
    /// Stay mounted while this command runs, with SAPWOOD_MOUNT in its environment, and end with it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// The name of a disk or snapshot. New names never begin with a dash; `./-vm/disk` names an old one that does.
fn parse_name(text: &str) -> Result<String, Infallible> {
    Ok(text.strip_prefix("./").unwrap_or(text).to_owned())
}

/// Prints what clap made of the arguments: help and version to standard output, an error to standard error.
pub fn explain(e: &clap::Error) -> ExitCode {
    let text = |is_terminal: bool| {
        if is_terminal && std::env::var_os("NO_COLOR").is_none() {
            e.render().ansi().to_string()
        } else {
            e.render().to_string()
        }
    };
    if e.use_stderr() {
        streams::err(&text(std::io::stderr().is_terminal()));
    } else {
        streams::out(&text(std::io::stdout().is_terminal()));
    }
    ExitCode::from(e.exit_code() as u8)
}
