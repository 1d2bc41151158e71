//! Manual pages: what clap knows of a command, then examples, exit codes, and for the program its environment and files.

use crate::args::{command, examples, exit_codes};
use anyhow::{Context as _, Result};
use clap::builder::Resettable;
use clap::Command;
use clap_mangen::roff::{bold, roman, Roff};
use clap_mangen::Man;
use std::path::Path;
use std::process::ExitCode;

/// Variables that the program reads, and those that it sets for commands which it starts.
const ENVIRONMENT: [(&str, &str); 10] = [
    ("SAPWOOD_STORE", "The vault, if --store does not name one."),
    ("SAPWOOD_CONFIG", "The configuration file, if --config does not name one."),
    ("SAPWOOD_POOL", "The pool, if --pool does not name one."),
    ("TMPDIR", "Where large temporary files are kept [default: /var/tmp]."),
    ("XDG_RUNTIME_DIR", "Where nbd and pool serve make sockets that are not named."),
    (
        "XDG_STATE_HOME",
        "Below it users other than root keep the state of jobs, in sapwood [default: ~/.local/state].",
    ),
    ("LIBVIRT_DEFAULT_URI", "The libvirt that virsh talks to."),
    ("NO_COLOR", "If it is set, output has no colours."),
    ("NBD_URI", "Set for the command that nbd runs: where the disk is served."),
    ("SAPWOOD_MOUNT", "Set for the command that mount runs: where the snapshots are."),
];

const FILES: [(&str, &str); 3] = [
    ("/etc/sapwood/sapwood.toml", "The configuration file: the vault, and the jobs that run each night."),
    ("/var/lib/sapwood", "The state of root's jobs."),
    (
        "/usr/share/doc/sapwood",
        "The user's guide, recipes, and the reference of configuration, messages and JSON.",
    ),
];

/// Other programs that the pages speak of.
const OTHERS: [&str; 4] = ["qemu-img(1)", "qemu-nbd(8)", "virsh(1)", "systemd.timer(5)"];

/// Writes `sapwood.1`, and `sapwood-COMMAND.1` for each command.
pub fn man(dir: &Path) -> Result<ExitCode> {
    let mut program = command().disable_help_subcommand(true);
    program.build();
    write(&program, &[], dir).with_context(|| format!("{}: cannot write manual pages", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a command and of those below it. `above` are the commands that lead to it, without the program.
fn write(here: &Command, above: &[&str], dir: &Path) -> Result<()> {
    for below in shown(here) {
        let path: Vec<&str> = above.iter().copied().chain([below.get_name()]).collect();
        write(below, &path, dir)?;
    }
    let man = Man::new(here.clone().after_help(Resettable::Reset)).manual("Sapwood");
    let man = man.source(format!("sapwood {}", here.get_version().unwrap_or_default()));
    let mut text = Vec::new();
    man.render(&mut text)?;
    let mut text = String::from_utf8(text)?;
    // The version comes last.
    let end = text.rfind(".SH VERSION").unwrap_or(text.len());
    text.insert_str(end, &sections(here, above));
    Ok(std::fs::write(dir.join(man.get_filename()), text)?)
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|c| !c.is_hide_set())
}

/// What clap does not know.
fn sections(here: &Command, above: &[&str]) -> String {
    let mut roff = Roff::new();
    let examples = match above {
        [] => examples(None),
        [name] => examples(Some(name)),
        _ => &[],
    };
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for line in examples {
            roff.text([roman(*line)]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit_codes(above.first().copied().unwrap_or_default()) {
        tagged(&mut roff, &code.to_string(), meaning);
    }
    if above.is_empty() {
        roff.control("PP", []);
        roff.text([roman(
            "sapwood-status(1) has the exit codes of monitoring plugins, sapwood-run(1) its own.",
        )]);
        roff.control("SH", ["ENVIRONMENT"]);
        ENVIRONMENT.iter().for_each(|(name, text)| tagged(&mut roff, name, text));
        roff.control("SH", ["FILES"]);
        FILES.iter().for_each(|(path, text)| tagged(&mut roff, path, text));
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(see_also(here, above).join(", "))]);
    // Apostrophes are defined at the page's begin.
    let text = roff.render();
    text[text.find(".SH").unwrap_or_default()..].to_owned()
}

fn tagged(roff: &mut Roff, tag: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(tag)]);
    roff.text([roman(text)]);
}

/// The pages above and below, and for the program those of others.
fn see_also(here: &Command, above: &[&str]) -> Vec<String> {
    let page = |path: &[&str]| format!("{}(1)", [&["sapwood"], path].concat().join("-"));
    let mut pages: Vec<String> = (0..above.len()).map(|n| page(&above[..n])).collect();
    pages.extend(shown(here).map(|below| page(&[above, &[below.get_name()]].concat())));
    if above.is_empty() {
        pages.extend(OTHERS.map(str::to_owned));
    }
    pages
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::man;

    #[test]
    fn pages_have_the_sections_that_readers_look_for() {
        let dir = tempfile::tempdir().unwrap();
        man(dir.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let sections = |name: &str| {
            let text = page(name);
            let of = |line: &str| line.strip_prefix(".SH ").map(|s| s.trim_matches('"').to_owned());
            text.lines().filter_map(of).filter(|s| !s.starts_with("OPTIONS")).collect::<Vec<_>>()
        };
        let of_all = ["EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO", "VERSION"];
        let first = ["NAME", "SYNOPSIS", "DESCRIPTION"];
        let program = [&first[..], &["SUBCOMMANDS", "EXAMPLES"], &of_all].concat();
        assert_eq!(sections("sapwood.1"), program);
        let command = [&first[..], &["EXAMPLES", "EXIT STATUS", "SEE ALSO", "VERSION"]].concat();
        assert_eq!(sections("sapwood-status.1"), command);
        let below = [&first[..], &["EXIT STATUS", "SEE ALSO", "VERSION"]].concat();
        assert_eq!(sections("sapwood-pool-create.1"), below);
        assert!(page("sapwood-backup.1").contains(r"sapwood backup \*(Aq*\*(Aq \*(Aqlibvirt:*\*(Aq"));
    }
}
