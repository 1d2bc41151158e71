//! What something is served for: a command that runs, or nothing but the user's wish, until a signal comes.

use crate::system::signals::EndSignal;
use anyhow::{Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use std::ffi::{OsStr, OsString};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

/// How often it is looked whether there is anything left to wait for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A command that runs, if there is one.
#[derive(Default)]
pub struct Purpose {
    command: Option<Child>,
}

/// Why there is nothing more to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The command has.
    Command(ExitStatus),
    /// A signal came.
    Signal,
    /// It was said to be enough.
    Enough,
}

impl Ended {
    /// The command's exit code; 0 where there was none.
    pub fn code(&self) -> ExitCode {
        match self {
            Ended::Command(status) => ExitCode::from(status.code().map_or(1, |c| c as u8)),
            Ended::Signal | Ended::Enough => ExitCode::SUCCESS,
        }
    }
}

impl Purpose {
    /// Starts the command, if one is given, with more in its environment.
    pub fn start(command: &[OsString], environment: &[(&str, &OsStr)]) -> Result<Purpose> {
        let Some((program, arguments)) = command.split_first() else { return Ok(Purpose::default()) };
        let child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .spawn()
            .with_context(|| format!("running {}", program.to_string_lossy()))?;
        Ok(Purpose { command: Some(child) })
    }

    /// Waits until the command has ended. Where there is none: until a signal has come, or `enough` says so. The command
    /// is told of a signal, and waited for.
    pub fn wait(&mut self, end: &EndSignal, mut enough: impl FnMut() -> bool) -> Result<Ended> {
        let mut told = false;
        loop {
            let signal = end.has_come();
            if let Some(child) = &mut self.command {
                if let Some(status) = child.try_wait().context("waiting for the command")? {
                    self.command = None;
                    return Ok(Ended::Command(status));
                }
                if signal && !told {
                    // It was not waited for yet: the number is still its own.
                    let pid = Pid::from_raw(child.id() as i32);
                    pid.map(|pid| kill_process(pid, Signal::TERM));
                    told = true;
                }
            } else if signal {
                return Ok(Ended::Signal);
            } else if enough() {
                return Ok(Ended::Enough);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
