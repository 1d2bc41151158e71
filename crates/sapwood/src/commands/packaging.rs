//! What packages have beside the binary: `sapwood completions`, and manual pages.

mod man;

use crate::args::command;
use crate::terminal::streams;
use anyhow::{Context as _, Result};
use clap_complete::Shell;
pub use man::man;
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
