//! The command line of Sapwood.
//!
//! The wings, lower ones first; a file uses its own wing and lower ones: `terminal` (output and exit codes),
//! `system` (directories, priorities, signals, processes), `args` (the command line), `live` (disks of
//! running machines), `progress`, `devices` (block devices and trees that are served), `serving`, `jobs`
//! (the configuration file, schedules, the state of jobs), `commands`.

// `streams` alone writes to standard output and error: what cannot be written there must not end the program.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod commands;
mod devices;
mod jobs;
mod live;
mod progress;
mod serving;
mod sizes;
mod system;
mod tags;
mod tar;
mod terminal;
mod times;

use std::process::ExitCode;
use terminal::outcome;
use terminal::streams::{self, errln};

fn main() -> ExitCode {
    system::allocator::set_up();
    vault::give_memory_back_with(system::allocator::give_back);
    system::descriptors::allow_many();
    store::send_notices_to(|line| errln!("sapwood: {line}"));
    let ended = match args::parse() {
        Ok(args) => commands::run(&args).unwrap_or_else(|e| {
            if args.json && !args.prints_data() {
                outcome::told_as_json(&e);
            }
            outcome::told(&e)
        }),
        Err(e) => args::explain(&e),
    };
    streams::finish(ended)
}
