//! `sapwood status`: the health of the vault and its jobs, for people and for monitoring.

mod found;
mod job_status;
mod level;
mod prometheus;
mod show;

use crate::args::Args;
use crate::jobs::state::replace;
use crate::terminal::output::print_json;
use crate::terminal::streams::errln;
use anyhow::Result;
use found::Status;
use level::Level;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Args, warn_age: Option<u64>, prometheus: Option<&Path>) -> Result<ExitCode> {
    let mut status = Status::look(args, warn_age);
    if let Some(path) = prometheus {
        if let Err(e) = replace(path, &prometheus::text(&status)) {
            errln!("sapwood: {}: cannot write: {e}", path.display());
            status.add(Level::Unknown, format!("{}: cannot write: {e}", path.display()));
        }
    }
    if args.json {
        print_json(&show::json(&status));
    } else {
        show::print(&status, args.quiet);
    }
    Ok(ExitCode::from(status.level().code()))
}
