//! What the program says of its command line: commands by what they are for, and what other tools call them.

use super::archives::with_levels_spelled_out;
use super::Args;
use crate::terminal::output::print_json;
use crate::terminal::streams;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};
use serde_json::json;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;

/// The commands, by what they are for.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Back up and restore", &["backup", "snapshots", "restore", "files", "diff", "mount", "nbd"]),
    ("What stays", &["retain", "delete", "remove", "hold", "release", "tag", "rename"]),
    ("Every night", &["run", "config", "copy", "status"]),
    (
        "The vault",
        &["init", "verify", "repair", "gc", "compact", "reindex", "stats", "map", "popular", "study"],
    ),
    ("Live disks", &["pool", "volume"]),
    ("Files", &["mzip", "munzip", "mtar"]),
    ("This program", &["completions", "help"]),
];

/// Below the help.
const EXAMPLES: [&str; 4] = [
    "sapwood --store /srv/vault init",
    "sapwood --store /srv/vault backup web01/vda /images/web01.qcow2",
    "sapwood --store /srv/vault backup web01 libvirt:web01",
    "sapwood --store /srv/vault restore web01/vda@latest~1 web01.qcow2",
];
/// At the end of the help.
const HINTS: &str = "\
`status` has the exit codes of monitoring plugins.

A vault begins with `sapwood --store DIR init`; `sapwood help COMMAND` has examples of each command.";

/// Below the help of each command.
const EXAMPLES_OF: [(&str, &[&str]); 33] = [
    ("init", &["sapwood --store /srv/vault init", "sapwood --store /mnt/nfs/vault init --one-host"]),
    (
        "backup",
        &[
            "sapwood backup web01/vda /images/web01.qcow2",
            "sapwood backup web01 libvirt:web01",
            "sapwood backup '*' 'libvirt:*'",
            "sapwood backup host/etc --from-command 'tar -C / -c etc' --format tar",
            "sapwood backup db01/vda --from-command 'ssh db01 cat /dev/vg0/data' --stdin-size 20GiB",
        ],
    ),
    (
        "snapshots",
        &[
            "sapwood snapshots",
            "sapwood snapshots web01 --from 2026-11-01 --last 10",
            "sapwood snapshots 'web*/vda' --tag for=upgrade",
        ],
    ),
    (
        "restore",
        &[
            "sapwood restore web01/vda@latest~1 /images/web01.qcow2",
            "sapwood restore web01/vda@2026-11-21T22:00 /dev/vg0/web01 --in-place",
            "sapwood restore web01 --to /var/lib/libvirt/images --define",
            "sapwood restore web01/vda web01.raw --live",
        ],
    ),
    (
        "files",
        &[
            "sapwood files web01/vda",
            "sapwood files web01/vda list /etc",
            "sapwood files web01/vda get /etc/fstab --to -",
        ],
    ),
    ("diff", &["sapwood diff web01/vda@latest~1 web01/vda"]),
    ("mount", &["sapwood mount /mnt/vault"]),
    ("nbd", &["sapwood nbd web01/vda", "sapwood nbd web01/vda --scratch --socket /run/web01.sock"]),
    ("retain", &["sapwood retain --all --last 3 --daily 14 --weekly 8 --monthly 12 --dry-run"]),
    (
        "delete",
        &["sapwood delete web01/vda@latest~1", "sapwood delete web01/vda@8f07c2 db01/vda@latest --yes"],
    ),
    ("remove", &["sapwood remove web01/vda"]),
    ("hold", &["sapwood hold web01/vda@latest"]),
    ("release", &["sapwood release web01/vda@8f07c2"]),
    ("tag", &["sapwood tag web01/vda@latest before=upgrade", "sapwood tag web01/vda@latest --remove before"]),
    ("rename", &["sapwood rename web01/vda www/vda"]),
    ("run", &["sapwood run --due", "sapwood run nightly"]),
    ("config", &["sapwood config check"]),
    ("copy", &["sapwood copy --all --to /mnt/second/vault", "sapwood copy web01 --to /mnt/second/vault"]),
    (
        "status",
        &[
            "sapwood status",
            "sapwood status --warn-age 30h --prometheus /var/lib/prometheus/node-exporter/sapwood.prom",
        ],
    ),
    ("verify", &["sapwood verify", "sapwood verify 'web*/vda' --data"]),
    ("repair", &["sapwood repair --data --from-vault /mnt/second/vault --from-source /images/web01.qcow2"]),
    ("gc", &["sapwood gc", "sapwood gc --dry-run"]),
    (
        "compact",
        &["sapwood compact web01/vda --threshold 20", "sapwood compact --recompress 9 --recompress-for 2h"],
    ),
    ("reindex", &["sapwood reindex"]),
    ("stats", &["sapwood stats", "sapwood stats web01/vda"]),
    ("map", &["sapwood map web01/vda"]),
    ("popular", &["sapwood popular build", "sapwood popular status"]),
    ("study", &["sapwood study /images"]),
    (
        "pool",
        &[
            "sapwood pool create /srv/pool --size 500GiB",
            "sapwood pool serve /srv/pool --nbd /run/pool.socket --vhost /run/pool",
            "sapwood pool serve /srv/pool --mount /mnt/images",
            "sapwood pool check /srv/pool --data",
            "sapwood pool check /srv/pool --repair",
        ],
    ),
    (
        "volume",
        &[
            "sapwood volume --pool /srv/pool create web01 --size 20GiB",
            "sapwood volume --pool /srv/pool create web03 --from web01/vda@latest",
            "sapwood volume --pool /srv/pool snapshot web01@monday",
            "sapwood volume --pool /srv/pool clone web01@monday web02",
            "sapwood volume --pool /srv/pool clone @/images/debian-12.raw web03",
            "sapwood volume --pool /srv/pool share web01 background",
        ],
    ),
    (
        "mzip",
        &[
            "sapwood mzip web01.raw",
            "sapwood mzip dump.sql --with xz -9 -o /srv/dump.sql.mz --rm",
            "sapwood mzip /dev/vg0/data -o data.mz",
        ],
    ),
    (
        "munzip",
        &[
            "sapwood munzip web01.raw.mz",
            "sapwood munzip web01.raw.mz --range 1GiB+4KiB -o part",
            "sapwood munzip -t *.mz",
        ],
    ),
    (
        "mtar",
        &[
            "sapwood mtar migrate linux-6.1.tar linux-6.1.mtar",
            "sapwood mtar restore linux-6.1.mtar linux-6.1.tar",
        ],
    ),
];

/// Exit codes, and what they mean.
pub type ExitCodes = &'static [(u8, &'static str)];

/// Exit codes of the commands.
const EXIT_CODES: ExitCodes = &[
    (0, "done"),
    (1, "failed"),
    (2, "wrong usage"),
    (3, "damage found"),
    (4, "refused"),
    (130, "interrupted"),
];
/// Commands with other exit codes.
const OTHER_EXIT_CODES: [(&str, ExitCodes); 2] = [
    (
        "run",
        &[
            (0, "all is well"),
            (1, "something failed"),
            (2, "wrong usage or configuration"),
            (4, "a job is running already"),
            (130, "interrupted"),
        ],
    ),
    (
        "status",
        &[
            (0, "OK"),
            (1, "warning (a job is overdue, a newest snapshot too old)"),
            (2, "critical (a job failed, damage)"),
            (3, "unknown (the vault cannot be read)"),
        ],
    ),
];

/// Commands of other tools, and what does their work here.
const ELSEWHERE: [(&str, &str); 24] = [
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
    ("rm", "delete for snapshots, and remove for a disk"),
    ("purge", "delete for snapshots, and remove for a disk"),
    ("cat", "files DISK get FILE --to -"),
    ("find", "files DISK list --recursive"),
    ("compare", "diff"),
    ("clone", "copy, or nbd and restore for a disk to work on"),
    ("export", "restore, or nbd without restoring"),
    ("umount", "umount(8), or end the command `mount`"),
    ("unlock", "gc: locks end with their processes, and it cleans up after them"),
    ("break-lock", "gc: locks end with their processes, and it cleans up after them"),
    ("jobs", "run, status, and config check"),
];

/// Understands the command line.
pub fn parse() -> Result<Args, clap::Error> {
    let mut command = command();
    // A variable that is empty is as good as none.
    for (argument, variable) in [("store", "SAPWOOD_STORE"), ("config", "SAPWOOD_CONFIG")] {
        if std::env::var_os(variable).is_some_and(|value| value.is_empty()) {
            command = command.mut_arg(argument, |argument| argument.env(Resettable::Reset));
        }
    }
    Args::from_arg_matches(&command.try_get_matches_from(with_levels_spelled_out(std::env::args_os()))?)
}

/// Examples of a command; `None` is the program.
pub fn examples(name: Option<&str>) -> &'static [&'static str] {
    match name {
        None => &EXAMPLES,
        Some(name) => EXAMPLES_OF.iter().find(|(n, _)| *n == name).map_or(&[], |(_, examples)| examples),
    }
}

/// The exit codes of a command, or of the program.
pub fn exit_codes(name: &str) -> ExitCodes {
    OTHER_EXIT_CODES.iter().find(|(n, _)| *n == name).map_or(EXIT_CODES, |(_, codes)| codes)
}

/// What stands below a help text.
fn below(examples: &[&str], codes: ExitCodes) -> String {
    let codes: Vec<String> = codes.iter().map(|(code, meaning)| format!("{code} {meaning}")).collect();
    format!("Examples:\n  {}\n\nExit codes: {}.", examples.join("\n  "), codes.join(", "))
}

/// The command line, with commands in groups and examples.
pub fn command() -> Command {
    let mut command = Args::command().after_help(format!("{}\n{HINTS}", below(&EXAMPLES, EXIT_CODES)));
    for (name, examples) in EXAMPLES_OF {
        command = command.mut_subcommand(name, |c| c.after_help(below(examples, exit_codes(name))));
    }
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

/// Whether there is no command at all. What is missing behind `popular` and `config` is told as other things are.
fn is_without_command(e: &clap::Error) -> bool {
    let is_command = |arg: String| GROUPS.iter().any(|(_, names)| names.contains(&arg.as_str()));
    e.kind() == ErrorKind::MissingSubcommand && !std::env::args().any(is_command)
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
    } else if is_without_command(e) {
        streams::err(&command().render_help().to_string());
    } else if e.use_stderr() {
        streams::err(&text(std::io::stderr().is_terminal()));
    } else {
        streams::out(&text(std::io::stdout().is_terminal()));
    }
    ExitCode::from(e.exit_code() as u8)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
        let with_examples: BTreeSet<String> = EXAMPLES_OF.iter().map(|(name, _)| (*name).into()).collect();
        let without: Vec<&String> = grouped.difference(&with_examples).collect();
        assert_eq!(without, ["completions"], "its help has one");
        // What is a command here is no other tool's word.
        assert!(ELSEWHERE.iter().all(|(word, _)| !grouped.contains(*word)));
    }

    /// The words of a command line, as a shell splits them.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in line.chars() {
            match quote {
                Some(q) if c == q => quote = None,
                None if c == '\'' || c == '"' => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                None if c.is_whitespace() => words.extend(word.take()),
                _ => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    fn understand(line: &str) -> clap::ArgMatches {
        let words = with_levels_spelled_out(words(line).into_iter().map(Into::into));
        command().try_get_matches_from(words).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    #[test]
    fn examples_are_understood() {
        for (name, line) in EXAMPLES_OF.iter().flat_map(|(name, all)| all.iter().map(|line| (*name, *line))) {
            assert_eq!(understand(line).subcommand_name(), Some(name), "{line}");
        }
        EXAMPLES.iter().for_each(|line| drop(understand(line)));
    }

    /// Commands in the pages for users: those in boxes, and those between backticks. Most of the former are also run by a
    /// test; here those are looked at that need libvirt, systemd or root.
    #[test]
    fn commands_of_the_pages_are_understood() {
        let mut number = 0;
        for page in ["README.md", "docs/guide.md", "docs/config.md", "docs/recipes.md", "docs/json.md"] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
            let text = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
            let mut is_boxed = false;
            for line in text.lines() {
                is_boxed ^= line.starts_with("```");
                let inline = line.split('`').skip(1).step_by(2);
                let found: Vec<&str> = if is_boxed { vec![line] } else { inline.collect() };
                for said in found.into_iter().filter_map(of_sapwood) {
                    match command().try_get_matches_from(words(&said)) {
                        // The text may speak of a command as such.
                        Err(e) if !is_boxed && e.kind() == ErrorKind::MissingRequiredArgument => {}
                        other => drop(other.unwrap_or_else(|e| panic!("{page}: {said}: {e}"))),
                    }
                    number += 1;
                }
            }
        }
        assert!(number > 80, "only {number} commands were found");
    }

    /// A command of Sapwood, without what a shell does with it; `None` for others, and where something is left out.
    fn of_sapwood(line: &str) -> Option<String> {
        let line =
            line.trim().trim_start_matches("*/15 * * * * root ").trim_start_matches("*/5 * * * * root ");
        let line = line.strip_prefix("/usr/bin/").unwrap_or(line);
        let is_command = line.starts_with("sapwood ") && !line.contains('…') && line.split(' ').count() > 1;
        let ends = [" |", " >", " # ", " \\|", " &", "; "];
        let end = ends.iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
        is_command.then(|| line[..end].trim().replace("$LIMIT", "50M"))
    }
}
