//! `sapwood pool serve`

use super::control::Control;
use super::open::open;
use crate::args::{Args, PoolServe};
use crate::system::signals::EndSignal;
use crate::terminal::output::print_json;
use crate::terminal::streams::{check_out, errln, outln};
use anyhow::{Context, Result};
use export::nbd::{unix_uri, Address, Exports, Limits, Server, ServerOptions};
use export::BlockDevice;
use pool::{Options, Pool};
use serde_json::json;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often it is looked whether a signal has come.
const TICK: Duration = Duration::from_millis(50);

/// The volumes and snapshots of a pool.
struct Volumes(Arc<Pool>);

impl Exports for Volumes {
    fn list(&self) -> Vec<(String, String)> {
        let describe = |is_snapshot| if is_snapshot { "a snapshot" } else { "a volume" };
        self.0.volumes().into_iter().map(|v| (v.name, describe(v.is_snapshot).into())).collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        match self.0.volume(name) {
            Ok(volume) => Some(volume),
            Err(error) => {
                errln!("sapwood: {error}");
                None
            }
        }
    }
}

pub fn run(args: &Args, a: &PoolServe) -> Result<ExitCode> {
    let end = EndSignal::new()?;
    let address = match a.nbd.parse::<SocketAddr>() {
        Ok(address) => Address::Tcp(address),
        Err(_) => Address::Unix(std::path::absolute(&a.nbd)?),
    };
    if let Address::Tcp(tcp) = address {
        if !tcp.ip().is_loopback() {
            errln!("sapwood: {tcp}: there is no authentication: anyone who can reach this address can use the volumes");
        }
    }
    let options = Options { cache_bytes: a.cache as usize, ..Options::default() };
    let pool = open(&a.path, options)?;
    let served_at = Arc::new(OnceLock::new());
    let control = Control::start(&a.path, Arc::clone(&pool), Arc::clone(&served_at), &end)?;
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()) + 2;
    let on_error = Box::new(|line: &str| errln!("sapwood: {line}"));
    let server = Server::start(
        &address,
        Box::new(Volumes(Arc::clone(&pool))),
        ServerOptions { threads, limits: Limits::default(), on_error },
    )
    .with_context(|| format!("listening on {address}"))?;
    let uri = match &address {
        Address::Unix(path) => unix_uri("NAME", path),
        Address::Tcp(_) => format!("{}/NAME", server.address()),
    };
    // Set once.
    let _ = served_at.set(uri.clone());
    if args.json {
        print_json(&json!({ "pool": a.path, "uri": uri }));
    } else if !args.quiet {
        outln!("{}: volume NAME at {uri}", a.path.display());
    }
    // Without the address nobody could connect.
    check_out()?;
    while !end.has_come() {
        std::thread::sleep(TICK);
    }
    server.stop();
    control.stop();
    pool.close()?;
    Ok(ExitCode::SUCCESS)
}
