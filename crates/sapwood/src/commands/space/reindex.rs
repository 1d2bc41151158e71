//! `sapwood reindex`

use crate::args::Args;
use crate::commands::names::open;
use crate::terminal::exit_code::DAMAGED;
use crate::terminal::output::print_json;
use crate::terminal::streams::{note_done, toldln};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    let r = open(args)?.reindex()?;
    note_done("the hooks and reference indexes were rebuilt".into());
    if args.json {
        print_json(&json!({
            "containers": r.containers,
            "hooks": r.hooks,
            "removed": r.removed,
            "reference_indexes": r.reference_indexes,
            "damaged_count": r.damaged,
        }));
    } else {
        toldln!(
            args.quiet,
            "{} containers gave {} hooks; replaced {} objects; rebuilt {} reference indexes; {} tables damaged",
            r.containers,
            r.hooks,
            r.removed,
            r.reference_indexes,
            r.damaged
        );
    }
    Ok(if r.damaged > 0 { ExitCode::from(DAMAGED) } else { ExitCode::SUCCESS })
}
