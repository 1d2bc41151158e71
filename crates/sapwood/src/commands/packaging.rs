//! What packages have beside the binary: `sapwood completions`, and manual pages.

use crate::args::command;
use crate::terminal::streams;
use anyhow::{Context as _, Result};
use clap_complete::Shell;
use std::path::Path;
use std::process::ExitCode;
use vault::VaultError;

/// Prints completions for a shell.
pub fn completions(shell: Option<Shell>) -> Result<ExitCode> {
    let which = "for which shell? sapwood completions bash, zsh, fish, elvish or powershell; the package has the first three";
    let shell = shell.ok_or_else(|| VaultError::Usage(which.into()))?;
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "sapwood", &mut text);
    streams::out(&String::from_utf8(text).context("completions are text")?);
    Ok(ExitCode::SUCCESS)
}

/// Writes `sapwood.1`, and `sapwood-COMMAND.1` for each command.
pub fn man(dir: &Path) -> Result<ExitCode> {
    clap_mangen::generate_to(command().disable_help_subcommand(true), dir)
        .with_context(|| format!("{}: cannot write manual pages", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
