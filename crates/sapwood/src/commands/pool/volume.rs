//! `sapwood volume`

use super::control::ask;
use super::file_system::file_of;
use super::fill;
use super::fill_source::FillSource;
use super::filler::end_hold_of_deleted;
use super::request::Request;
use super::wait;
use crate::args::{Args, ShareMode, VolumeWhat};
use crate::terminal::output::{percent, print_json, size, table};
use crate::terminal::streams::{errln, outln};
use anyhow::Result;
use pool::{FillInfo, PoolError};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Args, pool: &Path, what: &VolumeWhat) -> Result<ExitCode> {
    if let VolumeWhat::Create { name, size, from: Some(from), wait, share } = what {
        let (request, held) = fill::begin(args, pool, (name, *share), from, *size)?;
        let done = ask(pool, &request).or_else(|e| held.end().and(Err(e)))?;
        if *wait {
            wait::until_filled(args, pool, name)?;
        }
        return told(args, &request, &done);
    }
    let request = request(what)?;
    if let VolumeWhat::Delete { name } = what {
        let fill = fill_of(&ask(pool, &Request::List)?, name);
        let done = ask(pool, &request)?;
        if let Some(why) = fill.and_then(|fill| end_hold_of_deleted(pool, &fill).err()) {
            errln!("sapwood: {name}: the snapshot that it was filled from is still held: {why:#}; `sapwood release` lets it go");
        }
        return told(args, &request, &done);
    }
    let done = ask(pool, &request)?;
    told(args, &request, &done)
}

/// What is known of the fill of a volume, if it is one.
fn fill_of(list: &Value, name: &str) -> Option<FillInfo> {
    let volume = list["volumes"].as_array()?.iter().find(|v| v["name"] == name)?;
    let fill = &volume["fill"];
    let source = format!("{} {}", fill["from"].as_str()?, fill["store"].as_str()?);
    let (filled, size) = (fill["bytes"].as_u64()?, volume["size"].as_u64()?);
    Some(FillInfo { volume: name.into(), source, filled, size })
}

/// Tells what was done.
fn told(args: &Args, request: &Request, done: &Value) -> Result<ExitCode> {
    if args.json {
        print_json(done);
        return Ok(ExitCode::SUCCESS);
    }
    if let Request::List = request {
        list(done);
    } else if !args.quiet {
        outln!("{}", summary(request));
    }
    Ok(ExitCode::SUCCESS)
}

fn request(what: &VolumeWhat) -> Result<Request> {
    Ok(match what {
        VolumeWhat::Create { name, size, share, .. } => {
            // Without --from, there is one.
            Request::Create { name: name.clone(), size: size.unwrap_or(0), share: *share }
        }
        VolumeWhat::List => Request::List,
        VolumeWhat::Resize { name, size } => Request::Resize { name: name.clone(), size: *size },
        VolumeWhat::Share { name, mode } => Request::Share { name: name.clone(), share: *mode },
        VolumeWhat::Snapshot { snapshot } => {
            let (volume, name) = snapshot.split_once('@').ok_or_else(|| {
                PoolError::Invalid(format!(
                    "{snapshot}: a snapshot is called NAME@SNAPSHOT, such as {snapshot}@monday"
                ))
            })?;
            Request::Snapshot { volume: volume.into(), name: name.into() }
        }
        VolumeWhat::Clone { snapshot, name } => {
            Request::Clone { snapshot: snapshot.clone(), name: name.clone() }
        }
        VolumeWhat::Delete { name } => Request::Delete { name: name.clone() },
    })
}

fn summary(request: &Request) -> String {
    match request {
        Request::Create { name, size: bytes, .. } => format!("{name}: a volume of {}", size(*bytes)),
        Request::CreateFilled { name, size: bytes, source, .. } => {
            let from = FillSource::parse(source).map_or_else(|| source.clone(), |source| source.snapshot());
            format!("{name}: a volume of {}, filled from {from} while the pool is served", size(*bytes))
        }
        Request::Resize { name, size: bytes } => format!("{name}: has {} now", size(*bytes)),
        Request::Share { name, share: ShareMode::Inline } => {
            format!("{name}: blocks are shared when they are written")
        }
        Request::Share { name, share: ShareMode::Background } => {
            format!("{name}: blocks are shared in the background, while the pool is served")
        }
        Request::Share { name, share: ShareMode::Off } => format!("{name}: no more blocks are shared"),
        Request::Snapshot { volume, name } => format!("{volume}@{name}: a snapshot"),
        Request::Clone { snapshot, name } => {
            let what = if file_of(name).is_some() { "file" } else { "volume" };
            format!("{name}: a {what} that begins as {snapshot}")
        }
        Request::Delete { name } => format!("{name}: deleted"),
        Request::List | Request::Stats | Request::Check { .. } | Request::Changes { .. } => String::new(),
    }
}

fn list(done: &Value) {
    let rows: Vec<Vec<String>> = done["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| {
            let text = |name: &str| v[name].as_str().unwrap_or_default().to_owned();
            let created = vault::format_time(v["time"].as_i64().unwrap_or(0));
            let (bytes, filled) = (v["size"].as_u64().unwrap_or(0), v["fill"]["bytes"].as_u64());
            let arrived = filled.map_or_else(|| "all".into(), |filled| percent(filled, bytes));
            vec![text("name"), size(bytes), text("share"), arrived, created.to_string()]
        })
        .collect();
    table(&["name", ">size", "share", ">arrived", "made"], &rows);
    for volume in done["volumes"].as_array().into_iter().flatten() {
        if let Some(error) = volume["fill"]["error"].as_str() {
            errln!("sapwood: {} is not filled: {error}", volume["name"].as_str().unwrap_or_default());
        }
    }
}
