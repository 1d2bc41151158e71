//! What a result was measured on: machine, file system, commit.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The machine and its load when an experiment started.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Distribution.
    pub system: String,
    /// File system of the working directory.
    pub file_system: String,
    /// Load averages (1, 5, 15 minutes) at the start; a busy machine measures noise.
    pub load_at_start: String,
}

impl Machine {
    /// Describes this machine, with the file system that holds `work`.
    pub fn describe(work: &Path) -> Result<Self> {
        let memory_kib: u64 = field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or(0);
        Ok(Self {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: thread::available_parallelism()?.get(),
            memory_bytes: memory_kib * 1024,
            kernel: read_trimmed("/proc/sys/kernel/osrelease"),
            system: system_name(),
            file_system: file_system(work)?,
            load_at_start: load(),
        })
    }
}

/// The load averages now.
pub fn load() -> String {
    let text = read_trimmed("/proc/loadavg");
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    averages.join(" ")
}

/// The commit of the repository this was started in, with `-dirty` appended
/// when it has uncommitted changes; empty outside a repository.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(mut commit) = git(&["rev-parse", "HEAD"]) else {
        return String::new();
    };
    if git(&["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|s| !s.is_empty())
    {
        commit.push_str("-dirty");
    }
    commit
}

fn read_trimmed(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn system_name() -> String {
    let text = read_trimmed("/etc/os-release");
    text.lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or_default()
        .trim_matches('"')
        .to_owned()
}

fn file_system(path: &Path) -> Result<String> {
    let name = match rustix::fs::statfs(path)?.f_type as u64 & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlayfs",
        other => return Ok(format!("{other:#x}")),
    };
    Ok(name.to_owned())
}

/// Writes to so much memory that nobody uses, and gives it back.
///
/// Where this machine is virtual itself, its host may have taken free memory away: who uses it first then waits for the host,
/// a second or two for each GiB. What is measured next does not, for some seconds.
pub fn touch_memory(bytes: u64) {
    const PAGE_BYTES: usize = 4096;
    let free = field("/proc/meminfo", "MemAvailable").and_then(|kb| kb.split(' ').next()?.parse().ok());
    let bytes = free.map_or(0, |kb: u64| bytes.min(kb * 1024 / 2)) as usize;
    let half = || {
        let mut memory = vec![0u8; bytes / 2];
        memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        std::hint::black_box(&memory);
    };
    std::thread::scope(|scope| {
        scope.spawn(half);
        half();
    });
}

/// Processor time so far of a process by its number, of `self` or of `thread-self`, which asks: user and system.
pub fn cpu_seconds(process: &str) -> Result<(f64, f64)> {
    // Linux tells clock ticks of 10 ms to programs.
    const TICKS_PER_SECOND: f64 = 100.0;
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path)?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |n: usize| -> Result<f64> { Ok(fields.get(n).with_context(|| format!("{path} is short"))?.parse()?) };
    Ok((ticks(11)? / TICKS_PER_SECOND, ticks(12)? / TICKS_PER_SECOND))
}
