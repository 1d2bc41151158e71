//! Options of commands that read snapshots: `diff`, `files`, `mount`.

use super::values::parse_name;
use clap::Subcommand;
use std::path::PathBuf;

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
    /// Memory for decompressed data [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
}

#[derive(clap::Args)]
pub struct Files {
    /// vm/disk for its latest snapshot, or vm/disk@SNAP: an id or its beginning, latest, latest~N, or a time such as
    /// 2026-11-21T22:00 or 2026-11-21 (the newest snapshot up to then)
    #[arg(value_parser = parse_name)]
    pub snapshot: String,
    /// What to do [default: list volumes]
    #[command(subcommand)]
    pub what: Option<FilesWhat>,
    /// Memory for decompressed data [default: 64M]
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
    /// Memory for decompressed data [default: 64M]; more makes repeated reads faster
    #[arg(long, value_name = "SIZE", value_parser = crate::sizes::parse_size)]
    pub cache: Option<u64>,
    /// Stay mounted while this command runs, with SAPWOOD_MOUNT in its environment, and end with it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}
