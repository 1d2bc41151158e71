//! `sapwood backup`

mod backed;
mod command_source;
mod format_tag;
mod limit;
mod live;
mod machine;
mod machines;
mod off;
mod report;
mod source_name;
mod tar_source;
mod volume;

use crate::args::{Args, Backup};
use crate::commands::names::open_to_change;
use crate::terminal::output::print_json;
use anyhow::Result;
pub use backed::Backed;
pub use format_tag::SourceFormat;
pub use machine::Machine;
pub use machines::domains_of;
pub use report::DiskReport;
use std::process::ExitCode;

pub fn run(args: &Args, a: &Backup) -> Result<ExitCode> {
    if let Some(pattern) = machines::pattern(a)? {
        return machines::run(args, a, pattern);
    }
    let what = Backed::parse(a)?;
    let vault = open_to_change(args)?;
    let is_machine = what.is_machine();
    let made = what.back_up(args.quiet, a, &vault)?;
    match (args.json, is_machine) {
        (true, true) => print_json(&made.json(&a.disk)),
        (true, false) => made.disks.iter().map(DiskReport::json).for_each(|disk| print_json(&disk)),
        (false, _) => made.print(args.quiet),
    }
    Ok(ExitCode::SUCCESS)
}
