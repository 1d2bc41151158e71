//! `sapwood rename`

use crate::args::Args;
use crate::commands::names::open;
use crate::terminal::output::print_json;
use crate::terminal::streams::{note_done, outln};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &Args, old: &str, new: &str) -> Result<ExitCode> {
    open(args)?.rename(old, new)?;
    note_done(format!("{old} is called {new}"));
    if args.json {
        print_json(&json!({ "disk": new, "before": old }));
    } else if !args.quiet {
        outln!("{old} is called {new}");
    }
    Ok(ExitCode::SUCCESS)
}
