//! Damage of the guest's file systems, and of the vault below them.

use crate::terminal::exit_code::{DAMAGED, FAILED};
use crate::terminal::outcome;
use crate::terminal::streams::errln;
use anyhow::Result;
use filesystem::FsError;
use std::process::ExitCode;

/// Damage of the guest's file systems, or of the vault below them: it is reported, and reading goes on.
#[derive(Default)]
pub struct Damage {
    pub count: u64,
    /// Some of it is the vault's.
    is_of_vault: bool,
}

impl Damage {
    /// Reports damage. All other errors are returned.
    pub fn tell(&mut self, e: anyhow::Error, volume: &str, path: impl Fn() -> String) -> Result<()> {
        let below = e.downcast_ref::<FsError>();
        let is_of_vault = below.is_some_and(outcome::is_of_vault);
        match below {
            None => return Err(e),
            Some(FsError::Read(_)) if !is_of_vault => return Err(e),
            Some(_) => errln!("sapwood: {volume}:{}: {}", path(), outcome::one_line(&e)),
        }
        self.count += 1;
        self.is_of_vault |= is_of_vault;
        Ok(())
    }

    /// The command's exit code, if so many other things failed.
    pub fn exit_code(&self, failed: u64) -> ExitCode {
        match (self.is_of_vault, self.count + failed) {
            (true, _) => ExitCode::from(DAMAGED),
            (false, 0) => ExitCode::SUCCESS,
            _ => ExitCode::from(FAILED),
        }
    }
}
