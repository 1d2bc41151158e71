//! What packages have beside the binary: `sapwood completions`, and manual pages.

use crate::args::Args;
use crate::terminal::streams;
use anyhow::{Context as _, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;
use std::process::ExitCode;

/// Prints completions for a shell.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "sapwood", &mut text);
    streams::out(&String::from_utf8(text).context("completions are text")?);
    Ok(ExitCode::SUCCESS)
}

/// Writes `sapwood.1`, and `sapwood-COMMAND.1` for each command.
pub fn man(dir: &Path) -> Result<ExitCode> {
    clap_mangen::generate_to(Args::command().disable_help_subcommand(true), dir)
        .with_context(|| format!("{}: cannot write manual pages", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
