//! Tells the program which commit it is built from.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SAPWOOD_COMMIT");
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = std::env::var("SAPWOOD_COMMIT").ok().or_else(|| git(&["rev-parse", "--short=10", "HEAD"]));
    println!("cargo::rustc-env=SAPWOOD_COMMIT={}", commit.unwrap_or_else(|| "no commit".into()));
}

/// What git prints; `None` outside of a clone, and where git is missing.
fn git(args: &[&str]) -> Option<String> {
    let printed = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(printed.stdout).ok()?.trim().to_owned())
}
