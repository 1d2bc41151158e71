//! Damage of the guest's file systems.

use crate::terminal::exit_code::FAILED;
use crate::terminal::outcome;
use crate::terminal::streams::errln;
use anyhow::Result;
use filesystem::FsError;
use std::process::ExitCode;

/// Damage of the guest's file systems: it is reported, and reading goes on.
#[derive(Default)]
pub struct Damage {
    pub count: u64,
}

impl Damage {
    /// Reports damage of a guest's file system. All other errors are returned.
    pub fn tell(&mut self, e: anyhow::Error, volume: &str, path: impl Fn() -> String) -> Result<()> {
        match e.downcast_ref::<FsError>() {
            None | Some(FsError::Read(_)) => return Err(e),
            Some(_) => errln!("sapwood: {volume}:{}: {}", path(), outcome::one_line(&e)),
        }
        self.count += 1;
        Ok(())
    }

    /// The command's exit code, if nothing else failed.
    pub fn exit_code(&self) -> ExitCode {
        if self.count > 0 {
            ExitCode::from(FAILED)
        } else {
            ExitCode::SUCCESS
        }
    }
}
