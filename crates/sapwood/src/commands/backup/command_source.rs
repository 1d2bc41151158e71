//! The output of a command as a disk: the backup fails if the command does.

use anyhow::{Context as _, Result};
use image::{Format, Source};
use rustix::process::{kill_process_group, Pid, Signal};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Runs a shell command whose standard output is a raw disk.
pub fn open(command: &str, format: Option<Format>) -> Result<Box<dyn Source>> {
    Ok(image::open_pipe(run(command)?, &name(command), format)?)
}

/// What errors call it.
pub fn name(command: &str) -> String {
    format!("--from-command {command:?}")
}

/// Runs a shell command, and reads what it writes.
pub fn run(command: &str) -> Result<Output> {
    let mut shell = Command::new("sh");
    // A group of its own: Ctrl-C is for us to carry out, in order.
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = shell.spawn().context("cannot run sh")?;
    let stdout = child.stdout.take().context("the command has no standard output")?;
    Ok(Output { stdout, child, is_over: Arc::default() })
}

/// What a command writes. Its end is an error unless the command ends with success.
pub struct Output {
    stdout: ChildStdout,
    child: Child,
    is_over: Arc<AtomicBool>,
}

/// Ends the command when it is dropped, even if its output is still being read.
pub struct EndOnDrop {
    command: Pid,
    is_over: Arc<AtomicBool>,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Acquire) {
            // What it has started is in its group.
            let _ = kill_process_group(self.command, Signal::KILL);
        }
    }
}

impl Output {
    /// For a reader that may wait for the command on another thread when nobody needs its output any more.
    pub fn end_on_drop(&self) -> EndOnDrop {
        EndOnDrop { command: Pid::from_child(&self.child), is_over: self.is_over.clone() }
    }
}

impl Read for Output {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.stdout.read(buf)?;
        if got == 0 && !buf.is_empty() && !self.is_over.load(Ordering::Acquire) {
            let status = self.child.wait()?;
            self.is_over.store(true, Ordering::Release);
            if !status.success() {
                return Err(io::Error::other(format!("the command failed ({status}); nothing was stored")));
            }
        }
        Ok(got)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Acquire) {
            // Nobody reads its output any more. What it has started is in its group.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
