//! A socket for each volume of a pool, at which virtual machines of this host share their memory with the server.

use super::volumes::Volumes;
use crate::commands::pool::control::Served;
use crate::terminal::streams::errln;
use anyhow::{bail, Context, Result};
use export::vhost::{Server, ServerOptions};
use export::{BlockDevice, Exports};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a machine that connects waits until the one before it has left.
const PATIENCE: Duration = Duration::from_secs(5);

/// The volumes only: a snapshot has as many readers as there are, and a socket has one.
struct VolumesOnly(Volumes);

impl Exports for VolumesOnly {
    fn list(&self) -> Vec<(String, String)> {
        self.0.list().into_iter().filter(|(name, _)| !name.contains('@')).collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        self.0.open(name)
    }
}

/// Makes a socket for each volume in a directory, which is made if it is missing. Volumes that come later get theirs.
pub fn start(directory: &Path, served: &Served) -> Result<Arc<Server>> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("making {}", directory.display()));
        }
        _ => {}
    }
    if !directory.is_dir() {
        bail!("{}: is not a directory; name one for the sockets of the volumes", directory.display());
    }
    let options = ServerOptions {
        threads: std::thread::available_parallelism().map_or(2, |n| n.get()) + 2,
        lineage: served.pool.lineage(),
        patience: PATIENCE,
        on_error: Arc::new(|line: &str| errln!("sapwood: {line}")),
    };
    let volumes = Box::new(VolumesOnly(Volumes(served.clone())));
    let server = Arc::new(Server::start(directory, volumes, options)?);
    let for_changes = Arc::downgrade(&server);
    let follow = move || {
        if let Some(Err(error)) = for_changes.upgrade().map(|server| server.refresh()) {
            errln!("sapwood: {error}");
        }
    };
    // Set once.
    drop(served.on_change.set(Box::new(follow)));
    Ok(server)
}
