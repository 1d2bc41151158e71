//! Processor time.

use std::fs;

use anyhow::{Context as _, Result};

/// Processor time of this process so far: user and system.
pub fn cpu_seconds() -> Result<(f64, f64)> {
    of("/proc/self/stat")
}

/// The same, of the thread that asks.
pub fn thread_cpu_seconds() -> Result<f64> {
    of("/proc/thread-self/stat").map(|(user, system)| user + system)
}

fn of(path: &str) -> Result<(f64, f64)> {
    // Linux tells clock ticks of 10 ms to programs.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string(path)?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| -> Result<f64> { Ok(fields.get(n).context("a short stat")?.parse()?) };
    Ok((ticks(11)? / TICKS_PER_SECOND, ticks(12)? / TICKS_PER_SECOND))
}
