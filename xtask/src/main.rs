//! Chores of this workspace that cargo cannot do: `cargo xtask NAME`.

mod house;
mod metadata;
mod modules;
mod sources;

use house::Crate;
use modules::Modules;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask house [--modules CRATE]

  house                   check that every crate uses crates on lower floors only, and that neither modules nor
                          folders use each other in a circle, nor is a folder crowded (docs: the house)
  house --modules CRATE   print the modules of a crate by floors, the lowest first";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["house"] => check_house(),
        ["house", "--modules", name] => print_modules(name),
        ["-h" | "--help" | "help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn check_house() -> Result<(), String> {
    let crates = metadata::read()?;
    let mut wrongs = 0;
    for wrong in house::check(&crates) {
        eprintln!("house: {wrong}");
        wrongs += 1;
    }
    let mut files = 0;
    for Crate { name, folder, .. } in &crates {
        let sources = sources::read(folder)?;
        files += sources.len();
        for wrong in modules::check(&sources) {
            eprintln!("house: {name}: {wrong}");
            wrongs += 1;
        }
    }
    if wrongs > 0 {
        return Err(format!("{wrongs} things are wrong with the house"));
    }
    let arrows: usize = crates.iter().map(|c| c.uses.len()).sum();
    println!(
        "house: {} crates, {arrows} arrows, all of them point down; {files} files, no circle",
        crates.len()
    );
    Ok(())
}

fn print_modules(name: &str) -> Result<(), String> {
    let crates = metadata::read()?;
    let found = crates.iter().find(|c| c.name == name).ok_or_else(|| format!("there is no crate {name}"))?;
    let modules = Modules::of(&sources::read(&found.folder)?).map_err(|wrong| wrong.to_string())?;
    let (floors, left) = modules.floors();
    for (n, floor) in floors.iter().enumerate() {
        println!("floor {}", n + 1);
        floor.iter().for_each(|file| println!("  {file}"));
    }
    if !left.is_empty() {
        println!("in a circle, or above one");
        left.iter().for_each(|file| println!("  {file}"));
    }
    Ok(())
}
