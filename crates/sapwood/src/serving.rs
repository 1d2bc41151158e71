//! What the commands that serve have in common: memory for what they serve, and how long they do.

use crate::signals::EndSignal;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Memory for decompressed data, where nothing is known of what is available.
const CACHE_BYTES: u64 = 256 << 20;

/// Memory for decompressed data: what was asked for, or a quarter of what is available.
pub fn cache_bytes(asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
        let kib = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map_or(CACHE_BYTES, |k| (k << 10) / 4).max(CACHE_BYTES / 4)
    })
}

/// Returns when the command has ended, or, where there is none, when a signal has come. `prepare` is given the command
/// before it starts.
pub fn while_needed(
    command: &[OsString],
    end: &mut EndSignal,
    prepare: impl FnOnce(&mut Command),
) -> Result<ExitCode> {
    let Some((program, arguments)) = command.split_first() else {
        end.wait();
        return Ok(ExitCode::SUCCESS);
    };
    let mut command = Command::new(program);
    command.args(arguments);
    prepare(&mut command);
    let status = command.status().with_context(|| format!("running {}", program.to_string_lossy()))?;
    Ok(ExitCode::from(status.code().map_or(1, |c| c as u8)))
}
