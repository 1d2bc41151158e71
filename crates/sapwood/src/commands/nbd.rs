//! `sapwood nbd`

use super::{open, split};
use crate::args::{Args, Nbd};
use crate::devices::SnapshotDevice;
use crate::outcome::with_damage;
use crate::output::{print_json, size};
use crate::serving::{cache_bytes, while_needed};
use crate::signals::EndSignal;
use anyhow::{Context, Result};
use export::nbd::{Address, Server, ServerOptions, Single};
use export::BlockDevice;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use vault::GroupCache;

/// Clients at once: several machines, each with several connections.
const CONNECTIONS_MAX: usize = 64;

pub fn run(args: &Args, a: &Nbd) -> Result<ExitCode> {
    let mut end = EndSignal::new()?;
    let (disk, spec) = split(&a.snapshot);
    let vault = open(args)?;
    let cache = GroupCache::new(cache_bytes(a.cache));
    let snapshot = vault.open_snapshot(disk, spec, &cache)?;
    let entry = snapshot.entry().clone();
    let name = format!("{disk}@{}", entry.id);
    let device = Arc::new(SnapshotDevice::new(snapshot));

    let (address, _directory) = address(a)?;
    let exports = Single {
        name: name.clone(),
        description: format!("a snapshot of {}", vault::format_time(entry.time)),
        device: device.clone(),
    };
    let server = Server::start(&address, Box::new(exports), options())
        .with_context(|| format!("listening on {address}"))?;
    let uri = server.address().to_string();
    if args.json {
        let writable = device.is_writable();
        print_json(
            &json!({ "uri": uri, "disk": disk, "snapshot": entry.id.to_string(), "size": entry.size, "writable": writable }),
        );
    } else if !args.quiet {
        println!("{name}: {} at {uri}", size(entry.size));
    }
    let code = while_needed(&a.command, &mut end, |command| {
        command.env("NBD_URI", &uri);
        if let Address::Unix(path) = server.address() {
            command.env("NBD_SOCKET", path);
        }
    })?;
    server.stop();
    let damaged = device.is_damaged().then(|| format!("{name}: damage was met"));
    Ok(match damaged {
        Some(line) => with_damage(&[line]),
        None => code,
    })
}

fn options() -> ServerOptions {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()) + 2;
    let on_error = Box::new(|line: &str| eprintln!("sapwood: {line}"));
    ServerOptions { threads, connections_max: CONNECTIONS_MAX, on_error }
}

/// Where to listen, and a directory that was made for it.
fn address(a: &Nbd) -> Result<(Address, Option<tempfile::TempDir>)> {
    match (&a.socket, a.listen) {
        (Some(path), _) => Ok((Address::Unix(std::path::absolute(path)?), None)),
        (None, Some(address)) => Ok((Address::Tcp(address), None)),
        (None, None) => {
            let below =
                std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| super::scratch(None), PathBuf::from);
            let made = tempfile::Builder::new().prefix("sapwood-nbd-").tempdir_in(&below);
            let directory = made.with_context(|| format!("making a directory in {}", below.display()))?;
            Ok((Address::Unix(directory.path().join("socket")), Some(directory)))
        }
    }
}
