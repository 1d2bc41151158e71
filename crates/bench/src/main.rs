//! Experiments: one for each table or figure, with the tools people use today
//! measured beside Sapwood in the same run.
//!
//! `bench NAME [--tiny]` runs one, prints its tables, and writes a JSON result
//! with every single measurement, and figures, into `--out`.

mod context;
mod experiments;
mod files;
mod generate;
mod images;
mod install;
mod machine;
mod peers;
mod plot;
mod report;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use context::{Context, Options};
use experiments::peers::{Measured, PeersOptions};

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
    /// Backup of an unchanged disk against only reading and hashing it
    Unchanged,
    /// Space saved on images of several distributions (LiveDFS 2011, experiment B1)
    LivedfsB1,
    /// Backup and restore of a sparse 1 TiB disk against a dense one of the same data
    SparseHuge,
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
    match command {
        Command::PeersBackup(o) => peers("peers-backup", o, Measured::FIRST),
        Command::PeersIncremental(o) => peers("peers-incremental", o, Measured::LATER),
        Command::PeersRestore(o) => peers("peers-restore", o, Measured::RESTORE),
        Command::Peers(o) => peers("peers", o, Measured::ALL),
        Command::Unchanged => experiments::unchanged::run(&Context::start("unchanged", options)?),
        Command::LivedfsB1 => experiments::livedfs_b1::run(&Context::start("livedfs-b1", options)?),
        Command::SparseHuge => experiments::sparse_huge::run(&Context::start("sparse-huge", options)?),
        Command::HashOnly { file, data_only } => experiments::hash_only::print(&file, data_only),
    }
}
