//! Experiments: one for each table or figure, with the tools people use today
//! measured beside Sapwood in the same run.
//!
//! `bench NAME [--tiny]` runs one, prints its tables, and writes a JSON result
//! with every single measurement, and figures, into `--out`.

mod context;
mod experiments;
mod files;
mod images;
mod install;
mod layout;
mod machine;
mod mounted;
mod peers;
mod results;
mod run;
mod vaults;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use context::{Context, Options};
use experiments::fleet::FleetOptions;
use experiments::index::IndexOptions;
use experiments::lin::{mzip, LinOptions, PackagesOptions};
use experiments::mounts;
use experiments::peers::{Measured, PeersOptions};
use experiments::pools::paulo::PauloOptions;
use experiments::pools::{self, PoolsOptions};
use experiments::requests::RequestsOptions;
use experiments::revdedup::{self, RevdedupOptions};
use experiments::vmc::{self, VmcOptions};
use mounted::DiskOptions;

/// Static binaries have the allocator that the program has: musl's has one lock for all threads.
#[cfg(not(target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "bench", about = "Sapwood's experiments", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Command {
    /// First backup, beside borg, restic, casync and plain copies
    PeersBackup(PeersOptions),
    /// First and later versions, beside the same
    PeersIncremental(PeersOptions),
    /// Restore of the newest and oldest version, beside the same
    PeersRestore(PeersOptions),
    /// All three over one set of repositories
    Peers(PeersOptions),
    /// Many clones of few templates, with data of their own and common upgrades, beside restic and borg
    Fleet(FleetOptions),
    /// Searching and joining the hooks of vaults of up to a petabyte: requests, memory, time
    Index(IndexOptions),
    /// What each operation asks of the store, with few and many disks and snapshots, and its time behind a network
    Requests(RequestsOptions),
    /// Where the time of a first and of a later backup goes, and what other codecs would change
    Stages,
    /// Backup of an unchanged disk against only reading and hashing it
    Unchanged,
    /// Reading a snapshot over NBD against qemu-nbd over the raw image, and against a restore
    ExportsReads,
    /// Booting a guest from a snapshot against the raw image
    ExportsBoot,
    /// Space saved on images of several distributions (LiveDFS 2011, experiment B1)
    LivedfsB1,
    /// Volumes of a pool against plain files: unique write, read, duplicate write (LiveDFS 2011, experiments A1 to A3)
    LivedfsA(PoolsOptions),
    /// Files of a mounted pool against files of ext4: unique write, read, duplicate write, random reads (the same)
    LivedfsAMount {
        #[command(flatten)]
        pools: PoolsOptions,
        #[command(flatten)]
        disk: DiskOptions,
    },
    /// A pool without spatial locality, prefetching or its journal, by the model of a disk with a moving head (LiveDFS 2011, table 1)
    LivedfsVariants(PoolsOptions),
    /// Opening a pool after a kill (LiveDFS 2011, experiment A4)
    LivedfsA4(PoolsOptions),
    /// Inserting images into OpenStack Glance, on a pool's mount and on ext4 (LiveDFS 2011, experiment B2)
    LivedfsB2(DiskOptions),
    /// Starting machines whose images Glance has, on a pool's mount and on ext4 (LiveDFS 2011, experiment B3)
    LivedfsB3(DiskOptions),
    /// Memory of the fingerprint filter, and the time to fill it (LiveDFS 2011, section 2.2)
    LivedfsMem(PoolsOptions),
    /// Writes of machines with background sharing and without, beside an oracle (Paulo 2009, tables 6.5 and 6.6)
    #[command(name = "paulo-6.5")]
    Paulo65(PauloOptions),
    /// Reads of blocks that were shared in the background, against blocks that were not (Paulo 2009, table 6.7)
    #[command(name = "paulo-6.7")]
    Paulo67(PauloOptions),
    /// Volumes of one pool written by 1 to 16 threads
    PoolScale(pools::scale::ScaleOptions),
    /// A volume over NBD against qcow2 and raw files served by qemu-storage-daemon
    PeersLive(PoolsOptions),
    /// A volume of a pool over NBD against a raw file served by qemu-storage-daemon
    PoolNbd(PoolsOptions),
    /// The same by vhost-user-blk, as a virtual machine on the host uses them
    PoolVhost(PoolsOptions),
    /// Backup and restore of a sparse 1 TiB disk against a dense one of the same data
    SparseHuge,
    /// bonnie++ in a mounted pool and in ext4 (Paulo 2009, table 6.2)
    #[command(name = "paulo-6.2")]
    Bonnie {
        #[command(flatten)]
        pools: PoolsOptions,
        #[command(flatten)]
        disk: DiskOptions,
    },
    /// bonnie++ in a virtual machine whose disk is a volume of a pool, and on a raw disk (Paulo 2009, table 6.2)
    #[command(name = "paulo-6.2-guest")]
    BonnieGuest {
        #[command(flatten)]
        pools: PoolsOptions,
        #[command(flatten)]
        disk: DiskOptions,
    },
    /// Unique data against plain files (RevDedup 2013, table 1)
    RevdedupT1(RevdedupOptions),
    /// Space of many disks' weekly versions (RevDedup 2013, figure 6)
    RevdedupF6(RevdedupOptions),
    /// Backup and restore of many disks' weekly versions (RevDedup 2013, figure 7)
    RevdedupF7(RevdedupOptions),
    /// A long chain: the reverse pass and the rebuild threshold (RevDedup 2013, figures 8 and 9)
    RevdedupF8(RevdedupOptions),
    /// A long chain: tracing old versions (RevDedup 2013, figure 10)
    RevdedupF10(RevdedupOptions),
    /// Efficiency and memory of a cluster's backups (VM-centric 2014, table 1)
    VmcT1(VmcOptions),
    /// Backups that share a limited rate (VM-centric 2014, table 2)
    VmcT2(VmcOptions),
    /// Where the time of a dirty segment goes (VM-centric 2014, table 3)
    VmcT3(VmcOptions),
    /// Backups without a limit, told what has changed (VM-centric 2014, table 4)
    VmcT4(VmcOptions),
    /// Ways of deleting snapshots (VM-centric 2014, table 5)
    VmcT5(VmcOptions),
    /// What deletion by filters leaks (VM-centric 2014, table 6)
    VmcT6(VmcOptions),
    /// Popularity of chunks by rank (VM-centric 2014, figure 2)
    VmcF2(VmcOptions),
    /// Blocks that a disk needs, as disks are added (VM-centric 2014, figure 9)
    VmcF9(VmcOptions),
    /// Availability of snapshots when machines fail (VM-centric 2014, table 7 and figure 7)
    VmcT7(VmcOptions),
    /// Compressors alone, and behind migration (Lin 2015, figures 2.4 and 2.5)
    #[command(name = "lin-2.4")]
    LinMzip(LinOptions),
    /// The three movers when memory is short, here and on a model of a rotating disk (Lin 2015, figure 2.6)
    #[command(name = "lin-2.6")]
    LinMovers,
    /// Migration beside deltas (Lin 2015, figure 2.7)
    #[command(name = "lin-2.7")]
    LinDeltas(LinOptions),
    /// Chunks of 2 to 32 KiB (Lin 2015, figure 2.8)
    #[command(name = "lin-2.8")]
    LinLengths(LinOptions),
    /// Fixed and content-defined chunks (Lin 2015, figure 2.9)
    #[command(name = "lin-2.9")]
    LinCuts(LinOptions),
    /// Levels of compressors (Lin 2015, figure 2.10)
    #[command(name = "lin-2.10")]
    LinLevels(LinOptions),
    /// Packages of a distribution over a slow link (Lin 2015, figures 2.12 and 2.13)
    #[command(name = "lin-2.12")]
    LinPackages(PackagesOptions),
    /// Series of releases as tar archives and migrated (Lin 2015, figure 3.5)
    #[command(name = "lin-3.5")]
    LinMtar,
    /// Headers, data blocks and files of series of releases, each kind by itself (Lin 2015, figure 3.6)
    #[command(name = "lin-3.6")]
    LinApart,
    /// Reads a file and hashes each 4 KiB, nothing else; prints one JSON object
    HashOnly {
        /// The file
        file: PathBuf,
        /// Pass over holes and null blocks, as a backup may
        #[arg(long)]
        data_only: bool,
    },
}

fn main() -> ExitCode {
    match start(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(Arguments { command, options }: Arguments) -> anyhow::Result<()> {
    if options.install {
        install::missing()?;
    }
    run::catch_interrupts()?;
    let peers = |name, peers_options, measured| {
        experiments::peers::run(&Context::start(name, options.clone())?, &peers_options, measured)
    };
    let lin = |lin_options, experiment: mzip::Experiment| {
        mzip::run(&Context::start(experiment.name, options.clone())?, &lin_options, experiment)
    };
    match command {
        Command::PeersBackup(o) => peers("peers-backup", o, Measured::FIRST),
        Command::PeersIncremental(o) => peers("peers-incremental", o, Measured::LATER),
        Command::PeersRestore(o) => peers("peers-restore", o, Measured::RESTORE),
        Command::Peers(o) => peers("peers", o, Measured::ALL),
        Command::Fleet(o) => experiments::fleet::run(&Context::start("fleet", options)?, &o),
        Command::Index(o) => experiments::index::run(&Context::start("index", options)?, &o),
        Command::Requests(o) => experiments::requests::run(&Context::start("requests", options)?, &o),
        Command::Stages => experiments::stages::run(&Context::start("stages", options)?),
        Command::Unchanged => experiments::unchanged::run(&Context::start("unchanged", options)?),
        Command::ExportsReads => experiments::exports::reads::run(&Context::start("exports-reads", options)?),
        Command::ExportsBoot => experiments::exports::boot::run(&Context::start("exports-boot", options)?),
        Command::LivedfsB1 => mounts::space::run(&Context::start("livedfs-b1", options)?),
        Command::LivedfsA(o) => pools::sequential::run(&Context::start("livedfs-a", options)?, &o),
        Command::LivedfsAMount { pools, disk } => {
            mounts::sequential::run(&Context::start("livedfs-a-mount", options)?, &pools, disk)
        }
        Command::LivedfsVariants(o) => {
            pools::variants::run(&Context::start("livedfs-variants", options)?, &o)
        }
        Command::LivedfsA4(o) => pools::recovery::run(&Context::start("livedfs-a4", options)?, &o),
        Command::LivedfsB2(disk) => pools::glance::insert::run(&Context::start("livedfs-b2", options)?, disk),
        Command::LivedfsB3(disk) => {
            pools::glance::start_up::run(&Context::start("livedfs-b3", options)?, disk)
        }
        Command::LivedfsMem(o) => pools::filter::run(&Context::start("livedfs-mem", options)?, &o),
        Command::Paulo65(o) => pools::paulo::write(&Context::start("paulo-6.5", options)?, &o),
        Command::Paulo67(o) => pools::paulo::read(&Context::start("paulo-6.7", options)?, &o),
        Command::PoolScale(o) => pools::scale::run(&Context::start("pool-scale", options)?, &o),
        Command::PeersLive(o) => pools::served::peers(&Context::start("peers-live", options)?, &o),
        Command::PoolNbd(o) => pools::served::nbd(&Context::start("pool-nbd", options)?, &o),
        Command::PoolVhost(o) => pools::served::vhost(&Context::start("pool-vhost", options)?, &o),
        Command::Bonnie { pools, disk } => {
            pools::bonnie::mount::run(&Context::start("paulo-6.2", options)?, &pools, disk)
        }
        Command::BonnieGuest { pools, disk } => {
            pools::bonnie::guest::run(&Context::start("paulo-6.2-guest", options)?, &pools, disk)
        }
        Command::SparseHuge => experiments::sparse_huge::run(&Context::start("sparse-huge", options)?),
        Command::RevdedupT1(o) => revdedup::t1::run(&Context::start("revdedup-t1", options)?, &o),
        Command::RevdedupF6(o) => revdedup::f6::run(&Context::start("revdedup-f6", options)?, &o),
        Command::RevdedupF7(o) => revdedup::f7::run(&Context::start("revdedup-f7", options)?, &o),
        Command::RevdedupF8(o) => revdedup::f8::run(&Context::start("revdedup-f8", options)?, &o),
        Command::RevdedupF10(o) => revdedup::f10::run(&Context::start("revdedup-f10", options)?, &o),
        Command::VmcT1(o) => vmc::t1::run(&Context::start("vmc-t1", options)?, &o),
        Command::VmcT2(o) => vmc::t2::run(&Context::start("vmc-t2", options)?, &o),
        Command::VmcT3(o) => vmc::t3::run(&Context::start("vmc-t3", options)?, &o),
        Command::VmcT4(o) => vmc::t4::run(&Context::start("vmc-t4", options)?, &o),
        Command::VmcT5(o) => vmc::t5::run(&Context::start("vmc-t5", options)?, &o),
        Command::VmcT6(o) => vmc::t6::run(&Context::start("vmc-t6", options)?, &o),
        Command::VmcF2(o) => vmc::f2::run(&Context::start("vmc-f2", options)?, &o),
        Command::VmcF9(o) => vmc::f9::run(&Context::start("vmc-f9", options)?, &o),
        Command::VmcT7(o) => vmc::t7::run(&Context::start("vmc-t7", options)?, &o),
        Command::LinMzip(o) => lin(o, mzip::COMPRESSORS),
        Command::LinMovers => experiments::lin::movers::run(&Context::start("lin-2.6", options)?),
        Command::LinDeltas(o) => lin(o, mzip::DELTAS),
        Command::LinLengths(o) => lin(o, mzip::LENGTHS),
        Command::LinCuts(o) => lin(o, mzip::CUTS),
        Command::LinLevels(o) => lin(o, mzip::LEVELS),
        Command::LinPackages(o) => experiments::lin::packages::run(&Context::start("lin-2.12", options)?, &o),
        Command::LinApart => experiments::lin::apart::run(&Context::start("lin-3.6", options)?),
        Command::LinMtar => experiments::lin::mtar::run(&Context::start("lin-3.5", options)?),
        Command::HashOnly { file, data_only } => experiments::hash_only::print(&file, data_only),
    }
}
