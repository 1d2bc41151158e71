//! Hooks: shell commands that a job runs before and after its backups.

use crate::progress::is_stopped;
use rustix::process::{kill_process, Pid, Signal};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// How often it is looked whether a hook has ended.
const POLL: Duration = Duration::from_millis(20);

/// What a hook finds in its environment, beside ours.
pub type Environment<'a> = [(&'a str, String)];

/// Runs a hook to its end. Its output goes to standard error, so that `--json` stays one object.
///
/// With `stops`, a signal to this process is passed on as SIGTERM.
///
/// # Errors
/// How it failed, in words.
pub fn run(command: &str, environment: &Environment<'_>, stops: bool) -> Result<(), String> {
    let output = std::io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from);
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(environment.iter().cloned()).stdin(Stdio::null()).stdout(output);
    let mut child = shell.spawn().map_err(|e| format!("cannot run /bin/sh: {e}"))?;
    let mut is_told = false;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return judge(status),
            Ok(None) => {}
            Err(e) => return Err(format!("cannot wait for it: {e}")),
        }
        if stops && is_stopped() && !is_told {
            is_told = true;
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        std::thread::sleep(POLL);
    }
}

fn judge(status: ExitStatus) -> Result<(), String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("ended with exit code {code}")),
        (None, signal) => Err(format!("was ended by signal {}", signal.unwrap_or_default())),
    }
}
