//! `sapwood hold`, `sapwood release`

use crate::args::Args;
use crate::commands::names::{open, split};
use crate::terminal::output::print_json;
use crate::terminal::streams::{note_done, outln};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &Args, snapshot: &str, held: bool) -> Result<ExitCode> {
    let (disk, spec) = split(snapshot);
    let (entry, changed) = open(args)?.set_held(disk, spec, held)?;
    let already = if changed { "" } else { " already" };
    let state = if held { "held" } else { "released" };
    note_done(format!("{disk}@{} is{already} {state}", entry.id));
    if args.json {
        print_json(
            &json!({ "disk": disk, "snapshot": entry.id.to_string(), "held": entry.held, "changed": changed }),
        );
    } else if !args.quiet {
        outln!("{disk}@{} is{already} {state}", entry.id);
    }
    Ok(ExitCode::SUCCESS)
}
