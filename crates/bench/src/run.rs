//! Runs one program and says what it cost: wall time, the sync that makes its
//! writes durable, processor time, and peak memory, all from the kernel's own
//! accounting of that process.
//!
//! The kernel charges a child with what its parent had at the time, so that of a
//! program that takes less the peak is looked at while it runs.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use serde::{Deserialize, Serialize};

/// What one run of a program cost.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// From start to exit.
    pub wall_seconds: f64,
    /// `syncfs` of the file system written to, right after the exit.
    pub sync_seconds: f64,
    /// Processor time in user mode, all threads.
    pub user_seconds: f64,
    /// Processor time in the kernel, all threads.
    pub system_seconds: f64,
    /// Peak resident memory; 0 of a program that took less than this one and ended before it could be looked at.
    pub rss_bytes_max: u64,
}

impl Cost {
    /// Wall time until everything the program wrote is on the disk.
    pub fn durable_seconds(&self) -> f64 {
        self.wall_seconds + self.sync_seconds
    }

    /// Processor time, user and kernel.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// A finished run.
pub struct Finished {
    /// What the program wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it cost.
    pub cost: Cost,
}

impl Finished {
    /// The one JSON object on the program's standard output.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.stdout).with_context(|| {
            format!("expected one JSON object, got: {}", String::from_utf8_lossy(&self.stdout))
        })
    }
}

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes SIGINT and SIGTERM end the experiment at its next step, so that its
/// temporary files are removed.
pub fn catch_interrupts() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// An error once a signal asked the experiment to stop.
pub fn check_interrupted() -> Result<()> {
    if INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// Runs `command` to its end, then syncs the file system of `durable_at`.
///
/// Fails if the program does, with the end of what it wrote to stderr.
pub fn run(command: &mut Command, durable_at: &Path) -> Result<Finished> {
    check_interrupted()?;
    let name = command.get_program().to_string_lossy().into_owned();
    // A child starts with the peak of the process that spawned it: ours must not be its.
    let _ = std::fs::write("/proc/self/clear_refs", "5");

    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let ours = peak_bytes("self").unwrap_or(0);
    let watch = PeakWatch::start(child.id());
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let (status, mut cost) = wait(child.id()).with_context(|| format!("cannot wait for {name}"))?;
    cost.wall_seconds = started.elapsed().as_secs_f64();
    let watched = watch.finish();
    if cost.rss_bytes_max <= ours {
        cost.rss_bytes_max = watched;
    }

    let syncing = Instant::now();
    crate::files::sync_file_system(durable_at)?;
    cost.sync_seconds = syncing.elapsed().as_secs_f64();

    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    check_interrupted()?;
    if !status.success() {
        let text = String::from_utf8_lossy(&stderr);
        let tail: Vec<&str> = text.lines().rev().take(8).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        bail!("{name} {} ended with {status}: {}", arguments.join(" "), tail.join("\n"));
    }
    Ok(Finished { stdout, cost })
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The first line a program prints, for version strings.
pub fn first_line(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Whether `program` can be found in `PATH`.
pub fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|dir| dir.join(program).is_file()))
}

/// Processor time of a process that is alive, user and kernel, all threads; 0 where that cannot be told.
pub fn cpu_seconds(pid: u32) -> f64 {
    crate::machine::cpu_seconds(&pid.to_string()).map_or(0.0, |(user, system)| user + system)
}

/// Peak resident memory of a process that is alive, since it runs its program.
fn peak_bytes(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim_end().parse::<u64>().ok()? * 1024)
}

/// Looks at the peak memory of a process while it runs: what it takes less than we do, its usage does not tell.
struct PeakWatch {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<u64>,
}

impl PeakWatch {
    /// Often enough: the peak is looked at, not what there is at the moment.
    const PAUSE: Duration = Duration::from_millis(2);

    fn start(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (process, mut peak) = (pid.to_string(), 0);
            while !stopped.load(Ordering::Relaxed) {
                peak = peak_bytes(&process).unwrap_or(0).max(peak);
                thread::sleep(Self::PAUSE);
            }
            peak
        });
        Self { stop, thread }
    }

    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Waits with `wait4`, which, unlike the standard library, hands back the usage.
fn wait(pid: u32) -> Result<(ExitStatus, Cost)> {
    let pid = libc::pid_t::try_from(pid)?;
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of this plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers refer to live locals for the whole call.
        let waited = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        if waited == pid {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error.into());
        }
    }
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let cost = Cost {
        user_seconds: seconds(usage.ru_utime),
        system_seconds: seconds(usage.ru_stime),
        rss_bytes_max: u64::try_from(usage.ru_maxrss)? * 1024,
        ..Cost::default()
    };
    Ok((ExitStatus::from_raw(status), cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_cost_come_back() {
        let done = run(Command::new("sh").args(["-c", "echo '{\"a\":1}'"]), Path::new("/")).expect("sh runs");
        assert_eq!(done.json().expect("json")["a"], 1);
        assert!(done.cost.wall_seconds > 0.0);
    }

    #[test]
    fn our_memory_is_not_charged_to_a_child() {
        let ours = vec![1_u8; 300 << 20];
        let done = run(Command::new("sleep").arg("0.1"), Path::new("/")).expect("sleep runs");
        assert!(done.cost.rss_bytes_max < 100 << 20, "{} bytes", done.cost.rss_bytes_max);
        assert!(done.cost.rss_bytes_max > 0 && ours.iter().all(|b| *b == 1));
    }

    #[test]
    fn failure_carries_the_reason() {
        let error = run(Command::new("sh").args(["-c", "echo broken >&2; exit 3"]), Path::new("/"))
            .err()
            .expect("must fail");
        assert!(error.to_string().contains("broken"), "{error}");
    }
}
