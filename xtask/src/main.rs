//! Chores of this workspace that cargo cannot do: `cargo xtask NAME`.

mod docs;
mod house;
mod metadata;
mod modules;
mod sources;

use house::Crate;
use modules::Modules;
use sources::Files;
use std::collections::BTreeMap;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask house [--modules CRATE] | docs

  house                   check that every crate uses crates on lower floors only, and that neither modules nor
                          folders use each other in a circle, nor is a folder crowded (docs: the house)
  house --modules CRATE   print the modules of a crate by floors, the lowest first
  docs                    check that the names in docs/flows and docs/design.md are defined, and that the links of
                          all pages lead somewhere";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["house"] => check_house(),
        ["house", "--modules", name] => print_modules(name),
        ["docs"] => check_docs(),
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
    let crates = metadata::read()?.crates;
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

fn check_docs() -> Result<(), String> {
    let metadata::Workspace { root, crates } = metadata::read()?;
    let paths = sources::paths(&root)?;
    let mut pages = Files::new();
    for path in paths.iter().filter(|p| *p == "README.md" || (p.starts_with("docs/") && p.ends_with(".md"))) {
        pages.insert(path.clone(), sources::text(&root.join(path))?);
    }
    let mut texts = BTreeMap::new();
    for Crate { name, folder, .. } in &crates {
        texts.insert(name.clone(), sources::read(folder)?);
    }
    let wrongs = docs::check(&pages, &paths, &texts)?;
    for wrong in &wrongs {
        eprintln!("docs: {wrong}");
    }
    if !wrongs.is_empty() {
        return Err(format!("{} things in the pages are not so", wrongs.len()));
    }
    println!("docs: {} pages, all their names and links lead somewhere", pages.len());
    Ok(())
}

fn print_modules(name: &str) -> Result<(), String> {
    let crates = metadata::read()?.crates;
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
