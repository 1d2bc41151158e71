//! `sapwood backup`

use super::open;
use crate::args::{Args, Backup};
use crate::output::{percent, print_json, rate, size};
use crate::progress::watch;
use anyhow::Result;
use image::{Format, SourceOptions};
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;
use vault::{BackupOptions, Policy, VaultError};

pub fn run(args: &Args, a: &Backup) -> Result<ExitCode> {
    vault::check_disk_name(&a.disk)?;
    let options = options(a)?;
    let vault = open(args)?;
    let format = match a.source_format.as_deref() {
        None => None,
        Some("raw") => Some(Format::Raw),
        Some("qcow2") => Some(Format::Qcow2),
        Some("vmdk") => Some(Format::Vmdk),
        Some(f) => return Err(VaultError::Usage(format!("{f:?} is no format: raw, qcow2, vmdk")).into()),
    };
    let source =
        image::open(&a.source, &SourceOptions { allow_backing_outside: a.allow_backing_outside, format })?;
    let source_format = source.format();
    let start = Instant::now();
    let report = watch(args, &a.disk, |p| vault.backup(&a.disk, source, &options, p))?;
    let seconds = start.elapsed().as_secs_f64();
    let s = &report.snapshot;
    if args.json {
        print_json(&json!({
            "disk": a.disk,
            "snapshot": s.id.to_string(),
            "parent": s.parent.map(|p| p.to_string()),
            "source_format": source_format,
            "policy": s.policy,
            "size": s.size,
            "data_bytes": s.data_bytes,
            "changed_bytes": s.changed_bytes,
            "new_bytes": s.new_bytes,
            "rewritten_bytes": report.rewritten_bytes,
            "stored_bytes": s.stored_bytes,
            "seconds": seconds,
            "reverse": {
                "snapshots": report.reverse.snapshots,
                "turned_chunks": report.reverse.turned_chunks,
                "compacted_containers": report.reverse.compacted,
                "freed_bytes": report.reverse.freed_bytes,
                "held_up": report.reverse.held_up,
                "seconds": report.reverse_seconds,
            },
        }));
    } else {
        println!(
            "{}@{}: {} ({} not zero), {} changed, {} new, {} stored ({}), {:.1} s, {}",
            a.disk,
            s.id,
            size(s.size),
            size(s.data_bytes),
            size(s.changed_bytes),
            size(s.new_bytes),
            size(s.stored_bytes),
            percent(s.stored_bytes, s.size),
            seconds,
            rate(s.size, seconds),
        );
        // The backup is whole; the next one, or `gc`, does the rest.
        if let Some(why) = &report.reverse.held_up {
            println!("what older snapshots have in common with it is removed later: {why}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn options(a: &Backup) -> Result<BackupOptions> {
    let mut tags = Vec::new();
    for t in &a.tag {
        let Some((k, v)) = t.split_once('=') else {
            return Err(VaultError::Usage(format!("--tag {t}: give it as NAME=VALUE")).into());
        };
        tags.push((k.to_string(), v.to_string()));
    }
    let time = match &a.time {
        None => None,
        Some(t) => Some(vault::parse_time(t).ok_or_else(|| {
            VaultError::Usage(format!("--time {t}: give it as 2026-11-21T22:00:00, in UTC"))
        })?),
    };
    Ok(BackupOptions {
        policy: a.policy.as_deref().map(Policy::by_name).transpose()?,
        codec: a.codec.as_deref().map(str::parse).transpose()?,
        time,
        tags,
    })
}
