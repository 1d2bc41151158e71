//! The command line of Sapwood.

mod args;
mod commands;
mod devices;
mod give_way;
mod live;
mod outcome;
mod output;
mod progress;
mod purpose;
mod serving;
mod signals;
mod tar;
mod tree;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match commands::run(&args) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("sapwood: {}", outcome::one_line(&e));
            outcome::exit_code(&e)
        }
    }
}
