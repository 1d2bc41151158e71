//! The commands of pools and volumes.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use pool::Sharing;
use serde::{Deserialize, Serialize};

use crate::sizes::{parse_rate, parse_size};

/// When blocks of equal content are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShareMode {
    /// When they are written
    Inline,
    /// Later, while the pool is served, when they have not been written for a while
    Background,
    /// Never
    Off,
}

impl ShareMode {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            ShareMode::Inline => "inline",
            ShareMode::Background => "background",
            ShareMode::Off => "off",
        }
    }
}

impl From<Sharing> for ShareMode {
    fn from(sharing: Sharing) -> Self {
        match sharing {
            Sharing::Inline => ShareMode::Inline,
            Sharing::Background => ShareMode::Background,
            Sharing::Off => ShareMode::Off,
        }
    }
}

impl From<ShareMode> for Sharing {
    fn from(mode: ShareMode) -> Self {
        match mode {
            ShareMode::Inline => Sharing::Inline,
            ShareMode::Background => Sharing::Background,
            ShareMode::Off => Sharing::Off,
        }
    }
}

/// What is done with a pool.
#[derive(Subcommand)]
pub enum PoolWhat {
    /// Make an empty pool: a sparse file, or a block device, whose content is lost
    ///
    /// Fingerprints and journal take about 2 % of a pool's space, and 130 MiB at least. While it is served, it takes 2 GiB of memory
    /// for each TiB of different blocks in it.
    Create {
        /// The file, which must not exist, or the block device
        path: PathBuf,
        /// Size of the file, such as 100GiB; a block device is used whole
        #[arg(long, value_parser = parse_size)]
        size: Option<u64>,
        /// Make a pool of a block device, whatever is on it
        #[arg(long)]
        force: bool,
    },
    /// Serve the volumes of a pool over NBD or to virtual machines, or mount its file system, until it is interrupted
    Serve(PoolServe),
    /// Compare maps, reference counts and fingerprints
    ///
    /// A pool that is being served is read while it is in use: maps and fingerprints, with --data all content. Reference counts
    /// are compared only when nobody serves it.
    Check {
        /// The file or block device
        path: PathBuf,
        /// Compare all blocks with their fingerprints as well
        #[arg(long)]
        data: bool,
        /// Rebuild reference counts, fingerprints and the list of free blocks from the volumes' maps and blocks
        #[arg(long)]
        repair: bool,
        /// While it is served: how much --data reads in a second at most [default: no limit]
        #[arg(long, value_name = "RATE", value_parser = parse_rate)]
        limit: Option<u64>,
    },
    /// Show space, and what sharing saves
    Stats {
        /// The file or block device
        path: PathBuf,
    },
}

/// How a pool is served.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("ways").args(["nbd", "vhost", "mount"]).required(true).multiple(true)))]
pub struct PoolServe {
    /// The file or block device
    pub path: PathBuf,
    /// Where: the path of a Unix socket, or an address and a port, such as 127.0.0.1:10809. Without --tls anyone who can reach
    /// an address can use the volumes
    #[arg(long, value_name = "ADDR|SOCKET")]
    pub nbd: Option<String>,
    /// With --nbd: only with TLS. DIR has server-cert.pem and server-key.pem; if it has ca-cert.pem, clients must show a
    /// certificate signed by that
    #[arg(long, value_name = "DIR", requires = "nbd")]
    pub tls: Option<PathBuf>,
    /// Make a socket for each volume, NAME.socket, in this directory: virtual machines on this host share their memory with the
    /// server, and use the volume through it (vhost-user-blk). One machine at a time may
    #[arg(long, value_name = "DIRECTORY")]
    pub vhost: Option<PathBuf>,
    /// Mount the pool's file system on an empty directory: its files share their blocks with all volumes
    #[arg(long, value_name = "DIRECTORY")]
    pub mount: Option<PathBuf>,
    /// With --mount: other users may use it as well, as far as permissions go
    #[arg(long, requires = "mount")]
    pub allow_other: bool,
    /// Memory for fingerprints and maps, beside the index
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub cache: u64,
    /// How much background sharing reads in a second at most; hashing it takes a part of a core
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "32MiB")]
    pub share_rate: u64,
    /// How much volumes made with --from read from their vaults in a second at most [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub fill_rate: Option<u64>,
    /// Memory for decompressed data of the vaults that volumes are filled from
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub fill_cache: u64,
    /// Seconds from one scan of background sharing to the next; a block is shared when two have seen no write to it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), default_value = "60")]
    pub share_pause: u64,
}

/// What is done with volumes.
#[derive(Subcommand)]
pub enum VolumeWhat {
    /// Make an empty volume, or one of a snapshot in a vault
    ///
    /// With --from it can be used as soon as the pool is served: what has not arrived is read from the vault, and the rest
    /// arrives in the background. It goes on where it was when the pool is served again. The snapshot is held until all of it
    /// has arrived.
    Create {
        /// Its name
        name: String,
        /// Its size, such as 20GiB; blocks that were not written take no space. With --from: that of the snapshot, or more
        #[arg(long, value_parser = parse_size, required_unless_present = "from")]
        size: Option<u64>,
        /// Fill it with this snapshot of the vault that --store names, or with the newest one if none is named
        #[arg(long, value_name = "VM/DISK[@SNAP]")]
        from: Option<String>,
        /// With --from: wait until all of it has arrived
        #[arg(long, requires = "from")]
        wait: bool,
        /// When blocks of equal content are shared with all other volumes of the pool
        #[arg(long, value_enum, default_value = "inline")]
        share: ShareMode,
    },
    /// List volumes and snapshots
    List,
    /// Change the size of a volume. It can grow while it is in use
    ///
    /// Clients and machines see a larger size when they connect again. A volume that is in use cannot become smaller. What lies
    /// beyond a smaller size is lost.
    Resize {
        /// The volume
        name: String,
        /// Its new size
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Choose when blocks of a volume and its snapshots are shared, also while it is in use
    ///
    /// What was written before stays as it is. Blocks that were written in another mode than inline are shared in the
    /// background as soon as the mode is not off.
    Share {
        /// The volume
        name: String,
        /// When
        #[arg(value_enum)]
        mode: ShareMode,
    },
    /// Take a snapshot: NAME@SNAPSHOT. It takes no time and no space
    Snapshot {
        /// NAME@SNAPSHOT
        snapshot: String,
    },
    /// Make a volume that begins as a snapshot. It takes no time and no space
    ///
    /// Both may be files of the pool's file system, by their paths in it: @/images/web01.raw. A volume may become a file
    /// without a snapshot.
    Clone {
        /// NAME@SNAPSHOT, or @/PATH of a file
        snapshot: String,
        /// The new volume, or @/PATH of a new file
        name: String,
    },
    /// Delete a volume or a snapshot that is not in use
    Delete {
        /// NAME or NAME@SNAPSHOT
        name: String,
    },
}
