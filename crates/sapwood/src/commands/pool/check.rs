//! `sapwood pool check`

use super::control;
use super::request::Request;
use crate::args::Args;
use crate::terminal::exit_code::DAMAGED;
use crate::terminal::output::print_json;
use crate::terminal::streams::{errln, outln};
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

/// Asks for a check, and prints what it found.
pub fn run(args: &Args, path: &Path, data: bool, repair: bool, limit: Option<u64>) -> Result<ExitCode> {
    let report = control::ask(path, &Request::Check { data, repair, limit })?;
    let texts = |name: &str| report[name].as_array().into_iter().flatten().filter_map(Value::as_str);
    let more = report["more"].as_u64().unwrap_or(0);
    let is_whole = more == 0 && texts("findings").count() == 0;
    let shown = path.display();
    if args.json {
        print_json(&report);
    } else {
        for mended in texts("mended").filter(|_| !args.quiet) {
            outln!("{shown}: {mended}: mended");
        }
        for finding in texts("findings") {
            errln!("sapwood: {shown}: {finding}");
        }
        if more > 0 {
            errln!("sapwood: {shown}: {more} more findings");
        }
        if !is_whole && !repair {
            errln!("sapwood: {shown}: `sapwood pool check {shown} --repair` makes anew what follows from the rest");
        }
        if is_whole && !args.quiet {
            let looked = if data { "all blocks were read" } else { "--data reads all blocks as well" };
            let counts =
                if report["counted"] == true { "" } else { "; counts are compared when it is not served" };
            let left = if texts("mended").count() > 0 { "no damage is left" } else { "no damage" };
            outln!("{shown}: {left}; {looked}{counts}");
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) })
}
