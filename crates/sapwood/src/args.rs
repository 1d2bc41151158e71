//! The command line: commands, options and their help.

mod help;

pub use help::{explain, parse};

use clap::{Parser, Subcommand};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::LazyLock;
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
        match &self.command {
            Command::Restore(Restore { target, to, .. }) => to.is_none() && is_out(target),
            Command::Files(Files { what, .. }) => match what {
                Some(FilesWhat::Get { to, .. }) => to.as_ref().is_some_and(is_out),
                Some(FilesWhat::Tar { .. }) => true,
                _ => false,
            },
            _ => false,
        }
    }
}

/// Parses octal permissions.
fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is no mode: three octal digits, such as 644"))
}

#[derive(Subcommand)]
pub enum Command {
    /// Create a vault
    Init {
        /// Default policy for its backups: balanced, reverse, vm-centric, vm-centric-bloom or conventional
        #[arg(long, default_value = "balanced")]
        policy: String,
        /// Disks take nothing from each other but the popular set: more space, but damage stays with one disk
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
        /// vm/disk@SNAP; may be given several times, for several disks too
        #[arg(value_parser = parse_name, required = true)]
        snapshots: Vec<String>,
        /// Ask nothing
        #[arg(long)]
        yes: bool,
    },
    /// Set tags of a snapshot, or take them away
    Tag {
        /// vm/disk@SNAP
        #[arg(value_parser = parse_name)]
        snapshot: String,
        /// Tags to set
        #[arg(value_name = "K=V", required_unless_present = "remove")]
        tags: Vec<String>,
        /// A tag to take away
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
        /// Ask nothing
        #[arg(long)]
        yes: bool,
    },
    /// Delete all snapshots of disks but those that rules keep
    ///
    /// Of each of the last N hours, days, weeks, months and years that have a snapshot, the newest one stays. What any rule
    /// keeps stays, and so do held snapshots. Times are those of the snapshots, in UTC; weeks begin on Monday.
    Retain(Retain),
    /// Copy snapshots to another vault, oldest first: only what that vault lacks is read and written
    ///
    /// Copied are the snapshots behind the newest one that both vaults have, with their ids, times, tags and holds. What is
    /// read is compared with its fingerprints. An interrupted copy continues with the first snapshot that is missing.
    Copy(Copy),
    /// Run jobs of the configuration file
    ///
    /// One timer or cron line with `sapwood run --due` every 15 minutes serves all jobs. A failed disk does
    /// not stop the others. Exit codes: 0 all is well, 1 something failed, 4 a job is running already, 130
    /// interrupted.
    Run {
        /// Jobs [default: all]
        #[arg(value_name = "JOB")]
        jobs: Vec<String>,
        /// Only those whose schedule says so, also if their time was missed
        #[arg(long)]
        due: bool,
    },
    /// Show the health of the vault and its jobs, with the exit codes of monitoring plugins
    ///
    /// Exit codes: 0 OK, 1 warning (a job is overdue, a newest snapshot too old), 2 critical (a job failed,
    /// damage), 3 unknown (the vault cannot be read). Damage is what the vault has recorded: `sapwood verify`
    /// looks for it.
    Status {
        /// Warn if the newest snapshot of a disk is older (48h, 14d, 8w); jobs may say otherwise for their
        /// disks
        #[arg(long, value_name = "D", value_parser = crate::sizes::parse_duration)]
        warn_age: Option<u64>,
        /// Also write the figures to this file, for the textfile collector of Prometheus
        #[arg(long, value_name = "FILE")]
        prometheus: Option<PathBuf>,
    },
    /// Look at the configuration file
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
        #[arg(long)]
        dry_run: bool,
    },
    /// Rewrite containers that have many dead chunks, without these
    Compact {
        /// Only those of this disk (vm/disk)
        #[arg(value_parser = parse_name)]
        disk: Option<String>,
        /// Rewrite containers with at least this percentage of dead chunks
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        threshold: u8,
    },
    /// Rebuild the hooks, by which backups find chunks of other disks
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
        /// Which
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command
    #[command(hide = true)]
    Man {
        /// Where to
        dir: PathBuf,
    },
    /// Heal damaged objects from what is left of them, from the rest of the vault, other vaults and disk images
    Repair(Repair),
    /// Check the vault for damage, and list the snapshots that it affects
    Verify {
        /// Only this disk (vm/disk) or snapshot (vm/disk@SNAP)
        #[arg(value_parser = parse_name)]
        name: Option<String>,
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
    /// Read all chunks first, as `verify --data` does [default: those that a verification has found damaged]
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
#[command(group = clap::ArgGroup::new("rules").required(true).multiple(true))]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub struct Retain {
    /// vm/disk; vm for all its disks; or a pattern with * and ?, such as 'web*/vda'
    #[arg(value_name = "DISK|PATTERN", value_parser = parse_name, group = "which")]
    pub disks: Vec<String>,
    /// All disks
    #[arg(long, group = "which")]
    pub all: bool,
    /// Keep the N newest snapshots
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// Keep the newest snapshot of each of the last N hours that have one
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub hourly: Option<u32>,
    /// The same for days
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub daily: Option<u32>,
    /// The same for weeks
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub weekly: Option<u32>,
    /// The same for months
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub monthly: Option<u32>,
    /// The same for years
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub yearly: Option<u32>,
    /// Keep all snapshots that are at most this much older than the newest one of the disk: 48h, 14d, 8w
    #[arg(long, value_name = "D", group = "rules", value_parser = crate::sizes::parse_duration)]
    pub within: Option<u64>,
    /// Change nothing; only show what would stay, and why
    #[arg(long)]
    pub dry_run: bool,
}

impl Retain {
    /// What stays.
    pub fn rules(&self) -> vault::RetentionRules {
        let n = Option::unwrap_or_default;
        vault::RetentionRules {
            last: n(self.last),
            hourly: n(self.hourly),
            daily: n(self.daily),
            weekly: n(self.weekly),
            monthly: n(self.monthly),
            yearly: n(self.yearly),
            within_seconds: self.within,
        }
    }
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Copy {
    /// vm/disk@SNAP; vm/disk for all its snapshots; vm for all its disks; or a pattern with * and ?, such as 'web*/vda'
    #[arg(value_name = "DISK[@SNAP]|PATTERN", value_parser = parse_name, group = "what")]
    pub names: Vec<String>,
    /// All snapshots of all disks
    #[arg(long, group = "what")]
    pub all: bool,
    /// The other vault: /path or file:///path
    #[arg(long, value_name = "URL")]
    pub to: String,
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
        #[arg(long, default_value_t = 100.0 * vault::POPULAR_FRACTION, value_name = "PERCENT")]
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

#[derive(Clone, Default, clap::Args)]
pub struct Backup {
    /// vm/disk, for example web01/vda: two parts of letters, digits and . _ - + :, at most 255 bytes each, not
    /// beginning with . or -. With qmp:SOCKET and libvirt:DOMAIN only the vm; with libvirt:PATTERN '*', since each machine
    /// keeps its own name
    #[arg(value_parser = parse_name)]
    pub disk: String,
    /// File or block device (raw, qcow2 or VMDK, detected by content), nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH, qmp:SOCKET#NODE (a disk of a running QEMU; Sapwood sets up point in time, dirty
    /// bitmap and export), qmp:SOCKET (all its disks at one instant), libvirt:DOMAIN (the same for a domain; one that is
    /// off is backed up from its images), libvirt:PATTERN (all domains that fit, such as 'libvirt:*'), or - for standard
    /// input
    #[arg(required_unless_present = "from_command", default_value = "-", hide_default_value = true)]
    pub source: PathBuf,
    /// Instead of a source: a command of sh that writes the disk to its standard output. If it fails, nothing is stored; of a
    /// pipeline the last part counts
    #[arg(long, value_name = "CMD", conflicts_with_all = ["source", "what_changed", "agent", "scratch"])]
    pub from_command: Option<String>,
    /// With - and --from-command: how many bytes come (20GiB, 5368709120). If others come, nothing is stored: the writer of a
    /// pipe may have failed
    #[arg(long, value_name = "N", value_parser = crate::sizes::parse_size)]
    pub stdin_size: Option<u64>,
    /// Store it even if the source is empty, has become much smaller, or has nothing in common with the newest snapshot
    #[arg(long)]
    pub force: bool,
    /// Policy of this backup [default: the vault's]
    #[arg(long)]
    pub policy: Option<String>,
    /// Take nothing from other disks but the popular set, and offer them nothing: more space, but what this backup writes
    /// is not affected by damage of other disks
    #[arg(long)]
    pub isolate: bool,
    /// Compression: auto, zstd:LEVEL, lz4 or none [default: the policy's]
    #[arg(long)]
    pub codec: Option<String>,
    /// Id, or its beginning, of the newest snapshot, since which --changed or --bitmap lists the changes
    #[arg(long, value_name = "SNAP", requires = "what_changed")]
    pub since: Option<String>,
    /// File that lists what changed since then: lines of OFFSET LENGTH in bytes, or the output of rbd diff --format
    /// json, nbdinfo --map=qemu:dirty-bitmap:NAME --json or thin_delta. Nothing else is read
    #[arg(long, value_name = "FILE", requires = "since", group = "what_changed")]
    pub changed: Option<PathBuf>,
    /// Dirty bitmap of the NBD export that records what changed since then. Nothing else is read
    #[arg(long, value_name = "NAME", requires = "since", group = "what_changed")]
    pub bitmap: Option<String>,
    /// Read the whole disk, even if QEMU's bitmap or libvirt's checkpoint could be used
    #[arg(long, conflicts_with = "since")]
    pub full: bool,
    /// With qmp and libvirt: directory for old data that the guest overwrites while the backup runs [default: TMPDIR,
    /// or else /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// With qmp: socket of the guest agent, which freezes the guest's file systems for the point in time
    #[arg(long, value_name = "SOCKET")]
    pub agent: Option<PathBuf>,
    /// Read at most this many bytes per second (50M, 1.5G, 20MiB), and run at idle CPU and I/O priority
    #[arg(long, value_name = "RATE", value_parser = crate::sizes::parse_rate)]
    pub limit: Option<u64>,
    /// Point in time of the source, UTC (2026-11-21T22:00:00) [default: now]
    #[arg(long, value_name = "T")]
    pub time: Option<String>,
    /// A tag to store with the snapshot
    #[arg(long, value_name = "K=V")]
    pub tag: Vec<String>,
    /// Format of the source: raw, qcow2 or vmdk [default: detected by content]. Backing files of an image are followed
    /// only if this was given, now or for an earlier backup: the guest of a raw disk can write an image header into it
    #[arg(long, value_name = "FORMAT")]
    pub source_format: Option<String>,
    /// Follow backing files and extents outside the image's own folder
    #[arg(long)]
    pub allow_backing_outside: bool,
    /// Read files even if a running machine has them open for writing: the snapshot may be torn
    #[arg(long = "unsafe")]
    pub allow_in_use: bool,
}

#[derive(clap::Args)]
pub struct Restore {
    /// vm/disk, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time in UTC (the newest snapshot up to
    /// then)
    #[arg(value_parser = parse_name)]
    pub snapshot: String,
    /// File or block device, or - for standard output
    #[arg(required_unless_present = "to", default_value = "-", hide_default_value = true)]
    pub target: PathBuf,
    /// Restore a machine (vm, or vm@TIME): all its disks of one instant, and its definition with the disks where they are
    /// then, into this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["target", "live"])]
    pub to: Option<PathBuf>,
    /// With --to: make libvirt know the machine
    #[arg(long, requires = "to")]
    pub define: bool,
    /// Format of the target: raw or qcow2 [default: what a file's name says (.qcow2, .raw), or else the format of the source
    /// that was backed up]
    #[arg(long)]
    pub format: Option<String>,
    /// Replace an existing file, or overwrite a device
    #[arg(long)]
    pub force: bool,
    /// With --force: overwrite the target even if a running machine has it open. The machine loses what it has written
    #[arg(long = "unsafe", requires = "force")]
    pub allow_in_use: bool,
    /// Make a raw file or a device that is there the disk: only blocks that differ are written. If it is stopped, run it again
    #[arg(long, conflicts_with_all = ["force", "format", "mode", "live", "to"])]
    pub in_place: bool,
    /// Permissions of the file, in octal, such as 644 [default: those of the file that is replaced, or else 640 minus
    /// the umask]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, conflicts_with = "live")]
    pub mode: Option<u32>,
    /// Serve the disk over NBD, readable and writable, from the first moment, while it is being restored
    #[arg(long)]
    pub live: bool,
    /// With --live: file that records which blocks have been restored [default: beside the target file]
    #[arg(long, value_name = "FILE", requires = "live")]
    pub map: Option<PathBuf>,
    /// With --live: restore at most this many bytes per second (50M, 1.5G, 20MiB), not counting data that a client
    /// waits for
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
    /// vm/disk, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time in UTC (the newest snapshot up to
    /// then)
    #[arg(value_parser = parse_name)]
    pub snapshot: String,
    /// Make the disk writable, and keep writes in this file (qcow2), which is created if it is missing
    #[arg(long, value_name = "FILE", conflicts_with = "scratch")]
    pub overlay: Option<PathBuf>,
    /// Make the disk writable, and discard the writes at the end; until then they are in DIR [default: TMPDIR, or else
    /// /var/tmp]
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
    /// Unix socket to listen on [default: in a new directory below XDG_RUNTIME_DIR, or else TMPDIR, or else /var/tmp]
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub socket: Option<PathBuf>,
    /// Address and port to listen on instead of a socket, such as 127.0.0.1:10809. Anyone who can reach it can use the
    /// disk
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<std::net::SocketAddr>,
    /// Memory for decompressed data [default: a quarter of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
}

#[derive(clap::Args)]
pub struct Diff {
    /// The older snapshot: vm/disk@SNAP
    #[arg(value_parser = parse_name)]
    pub old: String,
    /// The newer snapshot: vm/disk@SNAP
    #[arg(value_parser = parse_name)]
    pub new: String,
    /// List changed ranges only, not files
    #[arg(long)]
    pub ranges: bool,
    /// Memory for decompressed data [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
}

#[derive(clap::Args)]
pub struct Files {
    /// vm/disk, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time in UTC (the newest snapshot up to
    /// then)
    #[arg(value_parser = parse_name)]
    pub snapshot: String,
    /// What to do [default: list volumes]
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
        /// [VOLUME:]PATH [default: the root]
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
    /// Write a tar archive to standard output; sparse files stay sparse, extended attributes are included
    Tar {
        /// [VOLUME:]PATH [default: the root]
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
    /// Memory for decompressed data [default: a quarter of the available memory]
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
