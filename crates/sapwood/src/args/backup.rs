//! Options of `sapwood backup`.

use super::values::parse_name;
use std::path::PathBuf;

/// How the source is read.
const SOURCE: &str = "The source";
/// What is stored, and how.
const STORED: &str = "The snapshot";
/// Which parts of the source are read.
const CHANGES: &str = "Reading only changes";
/// Disks that a QEMU has open.
const RUNNING: &str = "Running machines";

#[derive(Clone, Default, clap::Args)]
pub struct Backup {
    /// vm/disk, for example web01/vda: two parts of letters, digits and . _ - + :, at most 255 bytes each, not
    /// beginning with . or -. With qmp:SOCKET and libvirt:DOMAIN only the vm; with libvirt:PATTERN '*', since each machine
    /// keeps its own name
    #[arg(value_parser = parse_name)]
    pub disk: String,
    /// File or block device (raw, qcow2 or VMDK, detected by content), nbd://HOST/EXPORT,
    /// nbds://HOST/EXPORT?tls-certificates=DIR, nbd+unix:///EXPORT?socket=PATH, qmp:SOCKET#NODE (a disk of a running QEMU; Sapwood sets up point in time, dirty
    /// bitmap and export), qmp:SOCKET (all its disks at one instant), libvirt:DOMAIN (the same for a domain; one that is
    /// off is backed up from its images), libvirt:PATTERN (all domains that fit, such as 'libvirt:*'),
    /// volume:NAME of a pool (a snapshot is made for the backup; only what changed since the last one is read),
    /// volume:NAME@SNAPSHOT (one that is there), or - for standard input
    #[arg(required_unless_present = "from_command", default_value = "-", hide_default_value = true)]
    pub source: PathBuf,
    /// Instead of a source: a shell command that writes the disk to its standard output. If it fails, nothing is
    /// stored; a pipeline has failed if its last command has
    #[arg(help_heading = SOURCE, long, value_name = "CMD", conflicts_with_all = ["source", "what_changed", "agent", "scratch"])]
    pub from_command: Option<String>,
    /// With - and --from-command: how many bytes to expect (20GiB, 5368709120). If more or fewer come, nothing is
    /// stored: the program that writes the pipe may have failed
    #[arg(help_heading = SOURCE, long, value_name = "N", value_parser = crate::sizes::parse_size)]
    pub stdin_size: Option<u64>,
    /// Store it even if the source is empty, has become much smaller, or is probably another disk
    #[arg(help_heading = STORED, long)]
    pub force: bool,
    /// Policy of this backup [default: the vault's]
    #[arg(help_heading = STORED, long)]
    pub policy: Option<String>,
    /// Share nothing with other disks but the popular set: this takes more space, but damage of other disks does not
    /// affect what this backup writes
    #[arg(help_heading = STORED, long)]
    pub isolate: bool,
    /// Compression: auto, zstd:LEVEL, lz4 or none [default: the policy's]
    #[arg(help_heading = STORED, long)]
    pub codec: Option<String>,
    /// The newest snapshot (its id, or how that begins): --changed or --bitmap lists what changed since then
    #[arg(help_heading = CHANGES, long, value_name = "SNAP", requires = "what_changed")]
    pub since: Option<String>,
    /// File that lists what changed since then: lines of OFFSET LENGTH in bytes, or the output of rbd diff --format
    /// json, nbdinfo --map=qemu:dirty-bitmap:NAME --json or thin_delta. Nothing else is read; an empty file means that
    /// nothing has changed
    #[arg(help_heading = CHANGES, long, value_name = "FILE", requires = "since", group = "what_changed")]
    pub changed: Option<PathBuf>,
    /// Dirty bitmap of the NBD export that records what changed since then. Nothing else is read
    #[arg(help_heading = CHANGES, long, value_name = "NAME", requires = "since", group = "what_changed")]
    pub bitmap: Option<String>,
    /// Read the whole disk, even if QEMU's bitmap or libvirt's checkpoint could be used
    #[arg(help_heading = CHANGES, long, conflicts_with = "since")]
    pub full: bool,
    /// With qmp and libvirt: directory for old data that the guest overwrites while the backup runs [default: TMPDIR,
    /// or else /var/tmp]
    #[arg(help_heading = RUNNING, long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// With volume: the pool, served or not
    #[arg(help_heading = SOURCE, long, env = "SAPWOOD_POOL", value_name = "PATH")]
    pub pool: Option<PathBuf>,
    /// With qmp and volume:NAME: socket of the guest agent, which freezes the guest's file systems for the point in time
    #[arg(help_heading = RUNNING, long, value_name = "SOCKET")]
    pub agent: Option<PathBuf>,
    /// Read at most this many bytes per second (50M, 1.5G, 20MiB), and run at idle CPU and I/O priority
    #[arg(help_heading = SOURCE, long, value_name = "RATE", value_parser = crate::sizes::parse_rate)]
    pub limit: Option<u64>,
    /// Point in time of the source: 2026-11-21T22:00:00, in UTC, or with an offset, 2026-11-21T23:00:00+01:00 [default: now]. A
    /// snapshot of an earlier time than the newest one does not become the latest
    #[arg(help_heading = STORED, long, value_name = "T")]
    pub time: Option<String>,
    /// A tag to store with the snapshot
    #[arg(help_heading = STORED, long, value_name = "K=V")]
    pub tag: Vec<String>,
    /// Format of the source: raw, qcow2 or vmdk [default: detected by content], or tar: an archive, whose headers are
    /// stored apart from its data, so that more of it is deduplicated; it is restored byte for byte, and later
    /// backups of this name are archives, too. Backing files of an image are followed only if this option was given,
    /// now or for an earlier backup, because the guest of a raw disk can write an image header into it
    #[arg(help_heading = SOURCE, long, visible_alias = "format", value_name = "FORMAT")]
    pub source_format: Option<String>,
    /// Follow backing files and extents outside the image's own folder
    #[arg(help_heading = SOURCE, long)]
    pub allow_backing_outside: bool,
    /// Read files even if a running machine has them open for writing: the snapshot may be torn
    #[arg(help_heading = SOURCE, long = "unsafe")]
    pub allow_in_use: bool,
}
