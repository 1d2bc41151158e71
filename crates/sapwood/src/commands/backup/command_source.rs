//! The output of a command as a disk: the backup fails if the command does.

use anyhow::{Context as _, Result};
use image::{Format, Source};
use rustix::process::{kill_process_group, Pid, Signal};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Runs a shell command whose standard output is a raw disk.
pub fn open(command: &str, format: Option<Format>) -> Result<Box<dyn Source>> {
    let mut shell = Command::new("sh");
    // A group of its own: Ctrl-C is for us to carry out, in order.
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = shell.spawn().context("cannot run sh")?;
    let stdout = child.stdout.take().context("the command has no standard output")?;
    let output = Output { stdout, child, is_over: false };
    Ok(image::open_pipe(output, &format!("--from-command {command:?}"), format)?)
}

/// What a command writes. Its end is an error unless the command ends with success.
struct Output {
    stdout: ChildStdout,
    child: Child,
    is_over: bool,
}

impl Read for Output {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.stdout.read(buf)?;
        if got == 0 && !buf.is_empty() && !self.is_over {
            let status = self.child.wait()?;
            self.is_over = true;
            if !status.success() {
                return Err(io::Error::other(format!("the command failed ({status}); nothing was stored")));
            }
        }
        Ok(got)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_over {
            // Nobody reads its output any more. What it has started is in its group.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
