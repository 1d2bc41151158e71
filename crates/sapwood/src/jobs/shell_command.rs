//! Shell commands that a job runs before and after its backups.

use crate::progress::is_stopped;
use rustix::process::{kill_process_group, Pid, Signal};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often it is looked whether a command has ended.
const POLL: Duration = Duration::from_millis(20);

/// How long a command that was told to end has until it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// What a command finds in its environment, beside ours.
pub type Environment<'a> = [(&'a str, String)];

/// Runs a command to its end, at most for `timeout`. Its output goes to standard error, so that `--json` stays one object.
///
/// With `stops`, a signal to this process is passed on as SIGTERM. A command whose time is up gets SIGTERM too, and later
/// SIGKILL, with all processes that it has started.
///
/// # Errors
/// How it failed, in words.
pub fn run(
    command: &str,
    environment: &Environment<'_>,
    timeout: Duration,
    stops: bool,
) -> Result<(), String> {
    let output = std::io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from);
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(environment.iter().cloned()).stdin(Stdio::null()).stdout(output);
    // A group of its own: a signal reaches what the shell has started, too.
    let mut child = shell.process_group(0).spawn().map_err(|e| format!("cannot run /bin/sh: {e}"))?;
    let deadline = Instant::now() + timeout;
    let mut is_told = false;
    loop {
        if let Some(status) = ended(&mut child)? {
            return judge(status);
        }
        if Instant::now() >= deadline {
            end(&mut child)?;
            return Err(format!(
                "did not end within {} s (command_timeout) and was ended",
                timeout.as_secs()
            ));
        }
        if stops && is_stopped() && !is_told {
            is_told = true;
            let _ = kill_process_group(Pid::from_child(&child), Signal::TERM);
        }
        std::thread::sleep(POLL);
    }
}

fn ended(child: &mut Child) -> Result<Option<ExitStatus>, String> {
    child.try_wait().map_err(|e| format!("cannot wait for it: {e}"))
}

/// Ends a command and everything in its group.
fn end(child: &mut Child) -> Result<(), String> {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if ended(child)?.is_some() {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().map(drop).map_err(|e| format!("cannot wait for it: {e}"))
}

fn judge(status: ExitStatus) -> Result<(), String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("ended with exit code {code}")),
        (None, signal) => Err(format!("was ended by signal {}", signal.unwrap_or_default())),
    }
}
