//! What the program says of its command line: commands by what they are for, and what other tools call them.

use super::Args;
use crate::terminal::output::print_json;
use crate::terminal::streams;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, FromArgMatches};
use serde_json::json;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;

/// The commands, by what they are for.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Back up and restore", &["backup", "snapshots", "restore", "files", "diff", "mount", "nbd"]),
    ("What stays", &["retain", "delete", "remove", "hold", "release", "tag", "rename"]),
    ("Every night", &["run", "config", "copy", "status"]),
    (
        "The vault",
        &["init", "verify", "repair", "gc", "compact", "reindex", "stats", "map", "popular", "study"],
    ),
    ("This program", &["completions", "help"]),
];

/// Below the help.
const EXAMPLES: &str = "\
Examples:
  sapwood --store /srv/vault init
  sapwood --store /srv/vault backup web01/vda /images/web01.qcow2
  sapwood --store /srv/vault backup web01 libvirt:web01
  sapwood --store /srv/vault restore web01/vda@latest~1 web01.qcow2

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found, 4 refused, 130 interrupted;
`status` has those of monitoring plugins.";

/// Commands of other tools, and what does their work here.
const ELSEWHERE: [(&str, &str); 13] = [
    ("create", "backup"),
    ("check", "verify"),
    ("fsck", "verify"),
    ("list", "snapshots"),
    ("ls", "snapshots, and files for what is in one"),
    ("info", "snapshots and stats"),
    ("show", "snapshots and stats"),
    ("extract", "restore, and files for single files"),
    ("dump", "restore DISK -"),
    ("forget", "retain, which deletes by rules, and delete for single snapshots"),
    ("prune", "retain, which deletes by rules, and gc, which gives back what is left over"),
    ("sync", "copy"),
    ("serve", "nbd and mount"),
];

/// Understands the command line.
pub fn parse() -> Result<Args, clap::Error> {
    Args::from_arg_matches(&command().try_get_matches()?)
}

/// The command line, with commands in groups.
fn command() -> Command {
    let command = Args::command().after_help(EXAMPLES);
    let groups = groups(&command);
    let template =
        format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}");
    command.help_template(template)
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{group}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about =
                about.map_or_else(|| "Print this, or the help of a command".into(), ToString::to_string);
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    text
}

/// Says which command does what was asked for in another tool's words.
fn other_words(e: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(said)) = e.get(ContextKind::InvalidSubcommand) else { return None };
    // The words of commands below commands are their own.
    let is_command = |arg: &String| GROUPS.iter().any(|(_, names)| names.contains(&arg.as_str()));
    if std::env::args().take_while(|arg| arg != said).any(|arg| is_command(&arg)) {
        return None;
    }
    let (_, here) = ELSEWHERE.iter().find(|(word, _)| word == said)?;
    Some(format!("sapwood: there is no command {said:?}; use {here} (sapwood --help lists all)\n"))
}

/// Prints clap's message: help and version to standard output, an error to standard error.
pub fn explain(e: &clap::Error) -> ExitCode {
    let text = |is_terminal: bool| {
        if is_terminal && std::env::var_os("NO_COLOR").is_none() {
            e.render().ansi().to_string()
        } else {
            e.render().to_string()
        }
    };
    if e.use_stderr() && std::env::args().any(|arg| arg == "--json") {
        let said = e.render().to_string();
        let why: Vec<&str> = said.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        let why = why.join(" ");
        print_json(&json!({ "error": why.trim_start_matches("error: "), "exit_code": e.exit_code() }));
    }
    if let Some(words) = other_words(e) {
        streams::err(&words);
    } else if e.use_stderr() {
        streams::err(&text(std::io::stderr().is_terminal()));
    } else {
        streams::out(&text(std::io::stdout().is_terminal()));
    }
    ExitCode::from(e.exit_code() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Args::command();
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned());
        let mut grouped: Vec<String> =
            GROUPS.iter().flat_map(|(_, names)| *names).map(|n| (*n).into()).collect();
        let number = grouped.len();
        grouped.retain(|name| name != "help");
        let grouped: BTreeSet<String> = grouped.into_iter().collect();
        assert_eq!(grouped, shown.collect());
        assert_eq!(grouped.len() + 1, number, "one is in two groups");
        // What is a command here is no other tool's word.
        assert!(ELSEWHERE.iter().all(|(word, _)| !grouped.contains(*word)));
    }
}
