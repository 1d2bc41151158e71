//! The commands that the binary has, by its own account.

use super::sapwood;
use std::collections::BTreeMap;
use std::path::Path;

/// All of them, those below others as `pool create`. `man` is not for users, and `help` is `--help`.
pub fn commands() -> Vec<String> {
    let fish = sapwood(Path::new(""), &["completions", "fish"]).output().unwrap().stdout;
    let fish = String::from_utf8(fish).unwrap();
    let of_all = fish.lines().filter(|line| line.contains("__fish_sapwood_needs_command"));
    let named = |line: &str| Some(line.split_once("-f -a \"")?.1.split_once('"')?.0.to_owned());
    let above: Vec<String> = of_all.filter_map(named).collect();
    assert!(above.len() > 30, "{above:?}");
    // `… -n "__fish_sapwood_using_subcommand pool; and not __fish_seen_subcommand_from create serve help" …`
    let names_below = |line: &str| {
        let (_, rest) = line.split_once("__fish_sapwood_using_subcommand ")?;
        let (command, names) = rest.split_once("; and not __fish_seen_subcommand_from ")?;
        let names = names.split_once('"')?.0.split(' ').map(str::to_owned).collect::<Vec<_>>();
        Some((command.to_owned(), names))
    };
    let below: BTreeMap<String, Vec<String>> = fish.lines().filter_map(names_below).collect();
    assert!(below["pool"].len() > 3 && below["volume"].len() > 6 && below["files"].len() > 3, "{below:?}");
    let whole = |command: String| match below.get(&command) {
        None => vec![command],
        Some(names) => {
            let names = names.iter().filter(|name| *name != "help");
            names.map(|name| format!("{command} {name}")).collect()
        }
    };
    let is_for_users = |command: &String| !["man", "help"].contains(&command.as_str());
    above.into_iter().filter(is_for_users).flat_map(whole).collect()
}

/// Whether arguments are of a command: they have its words, in this order.
pub fn is_of(args: &[&str], command: &str) -> bool {
    let mut words = args.iter().flat_map(|arg| arg.split_whitespace());
    command.split(' ').all(|word| words.any(|w| w == word))
}
