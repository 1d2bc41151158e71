//! One file for each command.

mod archives;
mod backup;
mod diff;
mod exports;
mod files;
mod init;
mod jobs;
mod names;
mod packaging;
mod pool;
mod restore;
mod snapshots;
mod space;
mod verify;

use crate::args::{Args, Command, ConfigWhat};
use anyhow::Result;
use archives::{mtar, mzip};
use exports::{mount, nbd};
use jobs::{check, run, status};
use snapshots::{copy, delete, hold, list, remove, rename, retain, tag};
use space::{availability, gc, map, popular, reindex, stats, study};
use std::process::ExitCode;

/// Runs a command.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Init { policy, isolate, one_host } => init::run(args, policy, *isolate, *one_host),
        Command::Backup(a) => backup::run(args, a),
        Command::Snapshots(a) => list::run(args, a),
        Command::Restore(a) => restore::run(args, a),
        Command::Delete { snapshots, yes } => delete::run(args, snapshots, *yes),
        Command::Tag { snapshot, tags, remove } => tag::run(args, snapshot, tags, remove),
        Command::Rename { old, new } => rename::run(args, old, new),
        Command::Remove { disk, yes } => remove::run(args, disk, *yes),
        Command::Retain(a) => retain::run(args, a),
        Command::Copy(a) => copy::run(args, a),
        Command::Run { jobs, due } => run::run(args, jobs, *due),
        Command::Status { warn_age, prometheus } => status::run(args, *warn_age, prometheus.as_deref()),
        Command::Config { what: ConfigWhat::Check { file } } => check::run(args, file.as_deref()),
        Command::Diff(a) => diff::run(args, a),
        Command::Files(a) => files::run(args, a),
        Command::Gc { dry_run, all } => gc::collect(args, *dry_run, *all),
        Command::Compact { disk, threshold, recompress, recompress_for } => {
            gc::compact(args, disk.as_deref(), *threshold, *recompress, *recompress_for)
        }
        Command::Reindex => reindex::run(args),
        Command::Stats { availability: true, cluster, .. } => availability::run(args, cluster),
        Command::Stats { disk, .. } => stats::run(args, disk.as_deref()),
        Command::Hold { snapshot } => hold::run(args, snapshot, true),
        Command::Release { snapshot } => hold::run(args, snapshot, false),
        Command::Map { snapshot } => map::run(args, snapshot),
        Command::Nbd(a) => nbd::run(args, a),
        Command::Mount(a) => mount::run(args, a),
        Command::Pool { what } => pool::run(args, what),
        Command::Volume { pool, what } => pool::volume::run(args, pool, what),
        Command::Mtar { what } => mtar::run(args, what),
        Command::Mzip(a) => mzip::run(args, a),
        Command::Munzip(a) => mzip::unzip(args, a),
        Command::Completions { shell } => packaging::completions(*shell),
        Command::Man { dir } => packaging::man(dir),
        Command::Popular { what } => popular::run(args, what),
        Command::Study { paths, chunk, source_format } => {
            study::run(args, paths, chunk, source_format.as_deref())
        }
        Command::Repair(a) => verify::repair::run(args, a),
        Command::Verify { names, data } => verify::run(args, names, *data),
    }
}
