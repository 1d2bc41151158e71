//! `sapwood reindex`

use crate::args::Args;
use crate::commands::names::open;
use crate::terminal::exit_code::DAMAGED;
use crate::terminal::output::print_json;
use crate::terminal::streams::{note_done, outln};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    let r = open(args)?.reindex()?;
    note_done("the indexes were rebuilt".into());
    if args.json {
        print_json(&json!({
            "containers": r.containers,
            "segments": r.segments,
            "removed": r.removed,
            "damaged": r.damaged,
        }));
    } else {
        outln!(
            "indexed the chunks of {} shared containers and {} segments, removed {} stale indexes, {} tables damaged",
            r.containers, r.segments, r.removed, r.damaged
        );
    }
    Ok(if r.damaged > 0 { ExitCode::from(DAMAGED) } else { ExitCode::SUCCESS })
}
