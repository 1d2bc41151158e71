//! How long a disk is served: while a command runs, or until a signal comes.

use crate::system::signals::EndSignal;
use anyhow::{Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use std::ffi::{OsStr, OsString};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

/// How often the command and the signal are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A command that runs, if there is one.
#[derive(Default)]
pub struct Purpose {
    command: Option<Child>,
}

/// Why the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The command ended.
    Command(ExitStatus),
    /// A signal came.
    Signal,
    /// The caller's condition was met.
    Enough,
}

impl End {
    /// The command's exit code; 0 where there was none.
    pub fn code(&self) -> ExitCode {
        match self {
            End::Command(status) => ExitCode::from(status.code().map_or(1, |c| c as u8)),
            End::Signal | End::Enough => ExitCode::SUCCESS,
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

    /// Waits until the command has ended; without a command, until a signal has come or `enough` says so. A signal is
    /// passed on to the command as SIGTERM.
    pub fn wait(&mut self, end: &EndSignal, mut enough: impl FnMut() -> bool) -> Result<End> {
        let mut told = false;
        loop {
            let signal = end.has_come();
            if let Some(child) = &mut self.command {
                if let Some(status) = child.try_wait().context("waiting for the command")? {
                    self.command = None;
                    return Ok(End::Command(status));
                }
                if signal && !told {
                    // It was not waited for yet: the number is still its own.
                    let pid = Pid::from_raw(child.id() as i32);
                    pid.map(|pid| kill_process(pid, Signal::TERM));
                    told = true;
                }
            } else if signal {
                return Ok(End::Signal);
            } else if enough() {
                return Ok(End::Enough);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
