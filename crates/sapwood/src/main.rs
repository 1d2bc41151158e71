//! The command line of Sapwood.

// `streams` alone writes to standard output and error: what cannot be written there must not end the program.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod commands;
mod devices;
mod give_way;
mod live;
mod outcome;
mod output;
mod own_directory;
mod progress;
mod purpose;
mod serving;
mod signals;
mod streams;
mod tar;
mod tree;

use clap::Parser;
use std::process::ExitCode;
use streams::errln;

fn main() -> ExitCode {
    store::send_notices_to(|line| errln!("sapwood: {line}"));
    let ended = match args::Args::try_parse() {
        Ok(args) => commands::run(&args).unwrap_or_else(|e| outcome::told(&e)),
        Err(e) => args::explain(&e),
    };
    streams::finish(ended)
}
