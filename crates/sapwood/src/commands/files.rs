//! `sapwood files`

mod attributes;
pub mod damage;
pub mod disk;
mod get;
pub mod list;
pub mod ranges;
mod tar;

use crate::args::{Args, Files, FilesWhat};
use crate::devices::read_cache;
use anyhow::Result;
use disk::Disk;
use std::process::ExitCode;

pub fn run(args: &Args, a: &Files) -> Result<ExitCode> {
    let disk = Disk::open(args, &a.snapshot, &read_cache(a.cache))?;
    match &a.what {
        None => list::volumes(args, &disk),
        Some(FilesWhat::List { paths, recursive }) => list::run(args, disk, paths, *recursive),
        Some(FilesWhat::Get { paths, to }) => get::run(args, disk, paths, to.as_deref()),
        Some(FilesWhat::Tar { paths }) => tar::run(args, disk, paths),
    }
}
