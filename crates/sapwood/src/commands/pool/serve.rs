//! `sapwood pool serve`

mod mounted;
mod vhost;
mod volumes;

use super::control::{nbd_socket_of, Control, Served};
use super::file_system::PoolFiles;
use super::filler::{FillThread, Filler};
use super::open::open;
use crate::args::{Args, PoolServe};
use crate::serving::warn_of_strangers;
use crate::system::mountpoint::empty_directory;
use crate::system::signals::EndSignal;
use crate::terminal::output::print_json;
use crate::terminal::streams::{check_out, errln, outln};
use anyhow::{Context, Result};
use export::files::Files;
use export::nbd::{Address, Limits, Server, ServerOptions, Tls};
use mounted::Mounted;
use pool::{Options, Scanning};
use serde_json::json;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use volumes::Volumes;

/// How often it is looked whether a signal has come.
const TICK: Duration = Duration::from_millis(50);

pub fn run(args: &Args, a: &PoolServe) -> Result<ExitCode> {
    let end = EndSignal::new()?;
    let address = a.nbd.as_deref().map(address_of).transpose()?;
    let tls = a.tls.as_deref().map(Tls::load).transpose()?;
    let place = a.mount.as_deref().map(empty_directory).transpose()?;
    let scanning = Scanning { bytes_per_second: a.share_rate, pause: Duration::from_secs(a.share_pause) };
    let options = Options { cache_bytes: a.cache as usize, scanning: Some(scanning), ..Options::default() };
    let pool = open(&a.path, options)?;
    let served_at = Arc::new(OnceLock::new());
    let files = Arc::new(PoolFiles::new(Arc::clone(&pool)));
    let lock_wait = Duration::from_secs(args.lock_wait);
    let filler = Filler::new(Arc::clone(&pool), &a.path, a.fill_cache, lock_wait, a.fill_rate);
    let served = Served {
        pool: Arc::clone(&pool),
        files: Arc::clone(&files),
        uri: Arc::clone(&served_at),
        on_change: Arc::default(),
        fill_errors: filler.errors(),
    };
    let control = Control::start(&a.path, served.clone(), &end)?;
    let filling = FillThread::start(filler)?;
    // Commands of this user do not need certificates, nor an address.
    let own = serve(&Address::Unix(nbd_socket_of(&a.path)?), None, served.clone())?;
    // Set once.
    drop(served_at.set(own.address().uri("NAME", false)));
    let is_tls = tls.is_some();
    let server = address.map(|address| serve(&address, tls, served.clone())).transpose()?;
    let sockets = a.vhost.as_deref().map(|directory| vhost::start(directory, &served)).transpose()?;
    let mounted = place.map(|place| Mounted::start(&place, files.get()?, a.allow_other, &end)).transpose()?;
    let uri = server.as_ref().map(|server| server.address().uri("NAME", is_tls));
    if args.json {
        let mountpoint = mounted.as_ref().map(Mounted::place);
        print_json(&json!({ "pool": a.path, "uri": uri, "vhost": a.vhost, "mountpoint": mountpoint }));
    } else if !args.quiet {
        if let Some(uri) = &uri {
            outln!("{}: volume NAME at {uri}", a.path.display());
        }
        if let Some(directory) = &a.vhost {
            let socket = export::vhost::Server::path_of(directory, "NAME");
            outln!("{}: volume NAME for virtual machines at {}", a.path.display(), socket.display());
        }
        if let Some(mounted) = &mounted {
            outln!("{}: files at {}", a.path.display(), mounted.place().display());
        }
    }
    // Without the address nobody could connect.
    check_out()?;
    while !end.has_come() {
        std::thread::sleep(TICK);
    }
    server.into_iter().chain([own]).for_each(Server::stop);
    if let Some(sockets) = sockets {
        sockets.stop();
    }
    filling.stop();
    let mut ended = mounted.map_or(Ok(()), Mounted::stop);
    control.stop();
    // Without a mount nobody else makes durable what commands and clients did.
    if let Some(files) = files.if_open() {
        ended = ended.and(files.sync().context("syncing the file system"));
    }
    drop(files);
    pool.close()?;
    ended?;
    Ok(ExitCode::SUCCESS)
}

fn address_of(given: &str) -> Result<Address> {
    Ok(match given.parse::<SocketAddr>() {
        Ok(address) => Address::Tcp(address),
        Err(_) => Address::Unix(std::path::absolute(given)?),
    })
}

/// Serves the volumes.
fn serve(address: &Address, tls: Option<Tls>, served: Served) -> Result<Server> {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()) + 2;
    let on_error = Box::new(|line: &str| errln!("sapwood: {line}"));
    warn_of_strangers(address, tls.as_ref(), "the volumes");
    Server::start(
        address,
        Box::new(Volumes(served)),
        ServerOptions { threads, limits: Limits::default(), tls, on_error },
    )
    .with_context(|| format!("listening on {address}"))
}
