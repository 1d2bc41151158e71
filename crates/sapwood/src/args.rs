//! The command line: commands, options and their help.

mod archives;
mod backup;
mod help;
mod pool;
mod reading;
mod restore;
mod retention;
mod snapshots;
mod values;

pub use archives::{Manners, MtarWhat, Munzip, Mzip};
pub use backup::Backup;
pub use help::{command, examples, exit_codes, explain, parse};
pub use pool::{PoolServe, PoolWhat, ShareMode, VolumeWhat};
pub use reading::{Diff, Files, FilesWhat, Mount};
pub use restore::{Nbd, Restore, Serve};
pub use retention::{Copy, Retain};
pub use snapshots::Snapshots;

use crate::sizes::parse_time_limit;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::sync::LazyLock;
use values::{parse_name, parse_percent};
use vault::FORMAT_VERSION;

/// The program's version, the commit that it is built from, and the version of the vaults that it writes.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("SAPWOOD_COMMIT"));
    format!("{version} ({commit}, vault format {FORMAT_VERSION})")
});

/// Above the options that all commands have, in their help.
const GLOBAL: &str = "Options of all commands";

/// Deduplicating storage for the disks of virtual machines
#[derive(Parser)]
#[command(version = VERSION.as_str(), propagate_version = true)]
pub struct Args {
    /// Where the vault is: /path or file:///path
    #[arg(long, global = true, help_heading = GLOBAL, env = "SAPWOOD_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// Configuration file, with jobs and the vault to use if neither --store nor SAPWOOD_STORE names one
    /// [default: /etc/sapwood/sapwood.toml, if it exists]
    #[arg(long, global = true, help_heading = GLOBAL, env = "SAPWOOD_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print exactly one JSON object
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// Print only what was asked for, and what went wrong
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub quiet: bool,
    /// Seconds to wait for locks that other processes have
    #[arg(long, global = true, help_heading = GLOBAL, default_value_t = store::LOCK_WAIT.as_secs(), value_name = "SECONDS")]
    pub lock_wait: u64,
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// Whether standard output is for the bytes of a disk or of files, if anything.
    pub fn prints_data(&self) -> bool {
        let is_out = |path: &PathBuf| path.as_os_str() == "-";
        let prints_result = |manners: &Manners| !manners.test && !manners.list && manners.is_to_stdout();
        match &self.command {
            Command::Restore(Restore { target, to, .. }) => to.is_none() && is_out(target),
            Command::Files(Files { what, .. }) => match what {
                Some(FilesWhat::Get { to, .. }) => to.as_ref().is_some_and(is_out),
                Some(FilesWhat::Tar { .. }) => true,
                _ => false,
            },
            Command::Mtar { what } => is_out(what.output()),
            Command::Mzip(a) => prints_result(&a.manners),
            Command::Munzip(Munzip { manners, range, .. }) => {
                prints_result(manners) || range.is_some() && manners.output.is_none()
            }
            _ => false,
        }
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Create a vault
    Init {
        /// Default policy for its backups: balanced, reverse, vm-centric, vm-centric-bloom or conventional
        #[arg(long, default_value = "balanced")]
        policy: String,
        /// Disks share nothing but the popular set: this takes more space, but damage stays with one disk
        #[arg(long)]
        isolate: bool,
        /// Promise that only this host writes to the vault. Needed on storage that other hosts see (NFS, SMB, FUSE, a
        /// cluster file system); they may read the vault. For an existing vault: from now on only this host writes to
        /// it
        #[arg(long)]
        one_host: bool,
    },
    /// Back up a disk
    Backup(Box<Backup>),
    /// List snapshots, those of one instant together
    ///
    /// The column `verified` says how long ago the last verification began that looked at a snapshot: `3 d` if it read all
    /// chunks, `(3 d)` if it did not, DAMAGED if it found that the snapshot cannot be restored whole. `stored` is what a
    /// backup wrote for the snapshot, at the time. --json has more.
    Snapshots(Snapshots),
    /// Restore a snapshot
    Restore(Restore),
    /// Delete snapshots
    Delete {
        /// vm/disk@SNAP; may be given several times, for several disks too
        #[arg(value_parser = parse_name, required = true)]
        snapshots: Vec<String>,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Set or remove tags of a snapshot
    Tag {
        /// vm/disk@SNAP
        #[arg(value_parser = parse_name)]
        snapshot: String,
        /// Tags to set
        #[arg(value_name = "K=V", required_unless_present = "remove")]
        tags: Vec<String>,
        /// A tag to remove
        #[arg(long, value_name = "K")]
        remove: Vec<String>,
    },
    /// Give a disk another name
    Rename {
        /// vm/disk
        #[arg(value_parser = parse_name)]
        old: String,
        /// vm/disk
        #[arg(value_parser = parse_name)]
        new: String,
    },
    /// Remove a disk: all its snapshots and its name
    Remove {
        /// vm/disk
        #[arg(value_parser = parse_name)]
        disk: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Delete the snapshots of disks that no rule keeps
    ///
    /// Of each of the last N hours, days, weeks, months and years that have a snapshot, the newest one stays. What any rule
    /// keeps stays, and so do held snapshots. Times are those of the snapshots, in UTC or the zone of the
    /// configuration; weeks begin on Monday.
    Retain(Retain),
    /// Copy snapshots to another vault, oldest first: only what that vault lacks is read and written
    ///
    /// The snapshots after the newest one that both vaults have are copied, with their ids, times, tags and holds.
    /// Every chunk that is read is compared with its fingerprint. An interrupted copy continues with the first
    /// snapshot that is missing.
    Copy(Copy),
    /// Run jobs of the configuration file
    ///
    /// One timer, or one cron line with `sapwood -q run --due`, every 15 minutes serves all jobs. A failed disk does
    /// not stop the others. With -q only failures are printed, so cron sends a mail only for them.
    Run {
        /// Jobs [default: all]
        #[arg(value_name = "JOB")]
        jobs: Vec<String>,
        /// Only jobs that are due, also those whose time was missed
        #[arg(long)]
        due: bool,
    },
    /// Show the health of the vault and its jobs, with the exit codes of monitoring plugins
    ///
    /// Damage is what the vault has recorded: `sapwood verify` looks for it.
    Status {
        /// Warn if the newest snapshot of a disk is older (48h, 14d, 8w); jobs may say otherwise for their
        /// disks
        #[arg(long, value_name = "D", value_parser = crate::sizes::parse_duration)]
        warn_age: Option<u64>,
        /// Also write the figures to this file, for the textfile collector of Prometheus
        #[arg(long, value_name = "FILE")]
        prometheus: Option<PathBuf>,
    },
    /// Check the configuration file
    Config {
        #[command(subcommand)]
        what: ConfigWhat,
    },
    /// Show what changed between two snapshots: ranges of the disk, and files
    Diff(Diff),
    /// List or copy single files of a snapshot's file systems
    Files(Files),
    /// Clean up after crashes, free space that deletions left, and compact containers
    Gc {
        /// Change nothing; only count the orphans in disks' folders that would be removed
        #[arg(long, conflicts_with = "all")]
        dry_run: bool,
        /// Look at all containers that disks share, not only at those that deletions listed: also finds space that
        /// damage has hidden from deletions
        #[arg(long)]
        all: bool,
    },
    /// Rewrite containers that have many dead chunks, and leave these chunks out
    Compact {
        /// Only those of this disk (vm/disk)
        #[arg(value_parser = parse_name)]
        disk: Option<String>,
        /// Rewrite containers with at least this percentage of dead chunks
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        threshold: u8,
        /// Then compress all containers again that have not been compressed at this level of zstd yet
        /// (9 takes about 7 % less space than backups do). It can be stopped and started again
        #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=19))]
        recompress: Option<u8>,
        /// Compress again for so long at most (90s, 10m, 2h); the next time goes on from there
        #[arg(long, value_name = "TIME", value_parser = parse_time_limit, requires = "recompress")]
        recompress_for: Option<u64>,
    },
    /// Rebuild the index by which backups find data that other disks have stored: if it is lost or damaged, clones take more space
    Reindex,
    /// Show space, savings and fragmentation
    Stats {
        /// Only for this disk (vm/disk)
        #[arg(value_parser = parse_name, conflicts_with = "availability")]
        disk: Option<String>,
        /// Show instead how many disks would survive machine failures if a cluster held the vault
        #[arg(long)]
        availability: bool,
        #[command(flatten)]
        cluster: Availability,
    },
    /// Protect a snapshot from deletion
    Hold {
        /// vm/disk@SNAP
        #[arg(value_parser = parse_name)]
        snapshot: String,
    },
    /// Remove the hold from a snapshot
    Release {
        /// vm/disk@SNAP
        #[arg(value_parser = parse_name)]
        snapshot: String,
    },
    /// Draw a map of a snapshot: which backup wrote which part of the disk
    Map {
        /// vm/disk, or vm/disk@SNAP
        #[arg(value_parser = parse_name)]
        snapshot: String,
    },
    /// Serve a snapshot as a disk, without restoring it
    Nbd(Nbd),
    /// Show all snapshots as read-only files: VM/DISK/SNAPSHOT.raw
    Mount(Mount),
    /// Live disks that share their blocks: make, serve and check a pool of them
    Pool {
        #[command(subcommand)]
        what: PoolWhat,
    },
    /// The volumes of a pool: disks that virtual machines run on
    ///
    /// While a server has the pool, the server carries these commands out.
    Volume {
        /// The pool: a file or a block device
        #[arg(long, env = "SAPWOOD_POOL", value_name = "PATH")]
        pool: PathBuf,
        #[command(subcommand)]
        what: VolumeWhat,
    },
    /// Tar archives whose headers stand apart from their data, so that deduplication finds the data
    Mtar {
        #[command(subcommand)]
        what: MtarWhat,
    },
    /// Compress a file: equal chunks are kept once and similar ones moved together first
    ///
    /// A compressor finds equal data only within its window of a few MiB. Disk images, dumps and archives also repeat
    /// data that lies farther apart. `munzip` restores the file, byte for byte. tar calls it with -I 'sapwood mzip'.
    ///
    /// The file is read twice. A stream or a device is kept meanwhile, in memory or in TMPDIR (or else /var/tmp), and nothing is written
    /// before it has ended. `munzip` keeps a stream, too.
    Mzip(Box<Mzip>),
    /// Decompress what mzip wrote, or a part of it
    Munzip(Munzip),
    /// Build or show the popular set: copies of the most common chunks, which later backups refer to
    Popular {
        #[command(subcommand)]
        what: Popular,
    },
    /// Show what deduplication would save, without storing anything
    Study {
        /// Files, disk images, directories
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Chunking to try: 4k, 32k, cdc:8k (content-defined)
        #[arg(long, value_name = "SPEC", default_values = ["4k", "8k", "12k", "cdc:4k"])]
        chunk: Vec<String>,
        /// Format of all of them: raw, qcow2 or vmdk [default: detected by content]
        #[arg(long, value_name = "FORMAT")]
        source_format: Option<String>,
    },
    /// Print completions for a shell: bash, zsh, fish, elvish or powershell
    ///
    /// For example: sapwood completions bash > /etc/bash_completion.d/sapwood
    Completions {
        /// The shell
        shell: Option<clap_complete::Shell>,
    },
    /// Write a manual page for each command
    #[command(hide = true)]
    Man {
        /// Directory to write them to
        dir: PathBuf,
    },
    /// Heal damaged objects from what is left of them, from the rest of the vault, other vaults and disk images
    Repair(Repair),
    /// Check the vault for damage, and list the snapshots that it affects
    Verify {
        /// Only these disks: vm/disk; vm for all its disks; or a pattern with * and ?, such as 'web*/vda'. Or only this
        /// snapshot: vm/disk@SNAP
        #[arg(value_name = "DISK|PATTERN|SNAPSHOT", value_parser = parse_name)]
        names: Vec<String>,
        /// Also read all chunks
        #[arg(long)]
        data: bool,
    },
}

#[derive(clap::Args)]
pub struct Repair {
    /// Only this disk (vm/disk)
    #[arg(value_parser = parse_name)]
    pub disk: Option<String>,
    /// Read all chunks first, as `verify --data` does [default: heal only what a verification has found damaged]
    #[arg(long)]
    pub data: bool,
    /// Take lost chunks from this vault, such as one that `copy` fills; may be repeated
    #[arg(long, value_name = "URL")]
    pub from_vault: Vec<String>,
    /// Take lost chunks from this image, device or NBD export, such as the disk that was backed up; may be repeated
    #[arg(long, value_name = "SOURCE")]
    pub from_source: Vec<PathBuf>,
    /// Format of the sources: raw, qcow2, vmdk [default: by content]
    #[arg(long, value_name = "FORMAT", requires = "from_source")]
    pub source_format: Option<String>,
}

#[derive(Subcommand)]
pub enum ConfigWhat {
    /// Check a configuration file, without running anything, and list its jobs with their next due times
    Check {
        /// The file [default: as all commands find it]
        file: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
pub struct Availability {
    /// With --availability: number of machines in the cluster
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
    /// Build a new set from the chunks that are stored now; later backups refer to it
    Build {
        /// Size of the set as a percentage of all unique chunks; it has only chunks that two or more disks have
        #[arg(long, default_value_t = 100.0 * vault::POPULAR_FRACTION, value_name = "PERCENT", value_parser = parse_percent)]
        fraction: f64,
        /// Directory for temporary files, about 40 bytes for each chunk [default: TMPDIR, or else /var/tmp]
        #[arg(long, value_name = "DIR")]
        scratch: Option<PathBuf>,
    },
    /// Show how many disks have the same chunks, and what sets of other sizes would save
    Status {
        /// Directory for temporary files, about 40 bytes for each chunk [default: TMPDIR, or else /var/tmp]
        #[arg(long, value_name = "DIR")]
        scratch: Option<PathBuf>,
    },
}
