//! Options of `sapwood restore` and `sapwood nbd`.

use super::values::{parse_mode, parse_name};
use std::path::PathBuf;

/// Restoring all disks of a machine.
const MACHINE: &str = "Whole machines";
/// Restoring a disk that is in use.
const LIVE: &str = "Using the disk while it is restored";
/// Where a disk is served.
const SERVED: &str = "Where the disk is served";

#[derive(clap::Args)]
pub struct Restore {
    /// vm/disk for its latest snapshot, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time such as
    /// 2026-11-21T22:00 or 2026-11-21 (the newest snapshot up to then)
    #[arg(value_parser = parse_name)]
    pub snapshot: String,
    /// File or block device, or - for standard output
    #[arg(required_unless_present = "to", default_value = "-", hide_default_value = true)]
    pub target: PathBuf,
    /// Restore a machine (vm, or vm@TIME) into this directory: all its disks of one instant, and its definition,
    /// which then names the restored disks
    #[arg(help_heading = MACHINE, long, value_name = "DIR", conflicts_with_all = ["target", "live"])]
    pub to: Option<PathBuf>,
    /// With --to: define the machine in libvirt
    #[arg(help_heading = MACHINE, long, requires = "to")]
    pub define: bool,
    /// Format of the target: raw or qcow2 [default: what a file's name says (.qcow2, .raw), or else the format of the source
    /// that was backed up]. Of a tar archive: tar, or mtar, as it is stored [default: tar]
    #[arg(long)]
    pub format: Option<String>,
    /// Replace an existing file, or overwrite a device
    #[arg(long)]
    pub force: bool,
    /// With --force: overwrite the target even if a running machine has it open. The machine loses what it has written
    #[arg(long = "unsafe", requires = "force")]
    pub allow_in_use: bool,
    /// Turn an existing raw file or device into the disk: only blocks that differ are written. If this is
    /// interrupted, run it again. A qcow2 image is refused: --force replaces it as a whole
    #[arg(long, conflicts_with_all = ["force", "format", "mode", "live", "to"])]
    pub in_place: bool,
    /// Permissions of the file, in octal, such as 644 [default: those of the file that is replaced, or else 640 minus
    /// the umask]
    #[arg(long, value_name = "MODE", value_parser = parse_mode, conflicts_with = "live")]
    pub mode: Option<u32>,
    /// Serve the disk over NBD, readable and writable, from the first moment, while it is being restored
    #[arg(help_heading = LIVE, long)]
    pub live: bool,
    /// With --live: file that records which blocks have been restored [default: beside the target file]
    #[arg(help_heading = LIVE, long, value_name = "FILE", requires = "live")]
    pub map: Option<PathBuf>,
    /// With --live: restore at most this many bytes per second (50M, 1.5G, 20MiB), not counting data that a client
    /// waits for
    #[arg(help_heading = LIVE, long, value_name = "RATE", requires = "live", value_parser = crate::sizes::parse_rate)]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub serve: Serve,
    /// With --live: serve while this command runs, with NBD_URI and NBD_SOCKET in its environment
    #[arg(last = true, value_name = "COMMAND", requires = "live")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(clap::Args)]
pub struct Nbd {
    /// vm/disk for its latest snapshot, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time such as
    /// 2026-11-21T22:00 or 2026-11-21 (the newest snapshot up to then)
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
    #[arg(help_heading = SERVED, long, value_name = "PATH", conflicts_with = "listen")]
    pub socket: Option<PathBuf>,
    /// Address and port to listen on instead of a socket, such as 127.0.0.1:10809. Without --tls anyone who can
    /// reach it can use the disk
    #[arg(help_heading = SERVED, long, value_name = "ADDR")]
    pub listen: Option<std::net::SocketAddr>,
    /// Only with TLS: DIR has server-cert.pem and server-key.pem. If it has ca-cert.pem, clients must show a certificate signed
    /// by that
    #[arg(help_heading = SERVED, long, value_name = "DIR")]
    pub tls: Option<PathBuf>,
    /// Memory for decompressed data [default: 64M]; more makes repeated reads faster
    #[arg(help_heading = SERVED, long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
}
