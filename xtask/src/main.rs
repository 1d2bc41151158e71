//! Chores of this workspace that cargo cannot do: `cargo xtask NAME`.

mod house;
mod metadata;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask house

  house   check that every crate uses crates on lower floors only (docs: the house)";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["house"] => check_house(),
        ["-h" | "--help" | "help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn check_house() -> ExitCode {
    let crates = match metadata::read() {
        Ok(crates) => crates,
        Err(why) => {
            eprintln!("xtask: {why}");
            return ExitCode::FAILURE;
        }
    };
    let wrongs = house::check(&crates);
    for wrong in &wrongs {
        eprintln!("house: {wrong}");
    }
    if !wrongs.is_empty() {
        return ExitCode::FAILURE;
    }
    let arrows: usize = crates.iter().map(|c| c.uses.len()).sum();
    println!("house: {} crates, {arrows} arrows, all of them point down", crates.len());
    ExitCode::SUCCESS
}
