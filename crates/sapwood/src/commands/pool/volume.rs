//! `sapwood volume`

use super::control::ask;
use super::request::Request;
use crate::args::{Args, ShareMode, VolumeWhat};
use crate::terminal::output::{print_json, size, table};
use crate::terminal::streams::outln;
use anyhow::Result;
use pool::PoolError;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Args, pool: &Path, what: &VolumeWhat) -> Result<ExitCode> {
    let request = request(what)?;
    let done = ask(pool, &request)?;
    if args.json {
        print_json(&done);
        return Ok(ExitCode::SUCCESS);
    }
    if let Request::List = request {
        list(&done);
    } else if !args.quiet {
        outln!("{}", summary(&request));
    }
    Ok(ExitCode::SUCCESS)
}

fn request(what: &VolumeWhat) -> Result<Request> {
    Ok(match what {
        VolumeWhat::Create { name, size, share } => {
            Request::Create { name: name.clone(), size: *size, share: *share }
        }
        VolumeWhat::List => Request::List,
        VolumeWhat::Resize { name, size } => Request::Resize { name: name.clone(), size: *size },
        VolumeWhat::Share { name, mode } => Request::Share { name: name.clone(), share: *mode },
        VolumeWhat::Snapshot { snapshot } => {
            let (volume, name) = snapshot.split_once('@').ok_or_else(|| {
                PoolError::Refused(format!(
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
        Request::Resize { name, size: bytes } => format!("{name}: has {} now", size(*bytes)),
        Request::Share { name, share: ShareMode::Inline } => {
            format!("{name}: blocks are shared when they are written")
        }
        Request::Share { name, share: ShareMode::Background } => {
            format!("{name}: blocks are shared in the background, while the pool is served")
        }
        Request::Share { name, share: ShareMode::Off } => format!("{name}: no more blocks are shared"),
        Request::Snapshot { volume, name } => format!("{volume}@{name}: a snapshot"),
        Request::Clone { snapshot, name } => format!("{name}: a volume that begins as {snapshot}"),
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
            vec![text("name"), size(v["size"].as_u64().unwrap_or(0)), text("share"), created.to_string()]
        })
        .collect();
    table(&["name", ">size", "share", "made"], &rows);
}
