//! How much memory a command takes.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most that a command has taken while it ran, in bytes, and what it has said. Its standard output is read, unless the
/// command says where it goes: so much a test would have to keep. (What the system counts of a process that has ended
/// is that of the test too, which it was forked from.)
pub fn peak(mut command: Command, stdout: Stdio) -> (u64, Output) {
    let child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    // Its ends of pipes are its own.
    drop(command);
    let status = format!("/proc/{}/status", child.id());
    let (mut peak, ended) = (0, AtomicBool::new(false));
    let output = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let output = child.wait_with_output().unwrap();
            ended.store(true, Ordering::Relaxed);
            output
        });
        while !ended.load(Ordering::Relaxed) {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
            peak = kib.unwrap_or(0).max(peak);
            std::thread::sleep(Duration::from_millis(2));
        }
        waiting.join().unwrap()
    });
    (peak * 1024, output)
}
