//! A snapshot of a volume that a backup makes for itself.

use super::control::{ask, ask_server, ask_within, open_free, PoolAtPath};
use super::file_system::PoolFiles;
use super::request::Request;
use crate::terminal::streams::errln;
use anyhow::Result;
use pool::PoolError;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vault::{DiskId, VaultId};

/// How long a server may take to make one: a guest may be frozen meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// A volume of which one can be made.
pub struct Prepared<'a> {
    pool: &'a Path,
    volume: &'a str,
    /// How the names of all begin that backups of this disk into this vault have made of this volume.
    prefix: String,
    /// Those that are there.
    older: Vec<String>,
    /// Whether another process serves the pool, so that machines may be using the volume.
    pub is_served: bool,
}

impl<'a> Prepared<'a> {
    /// Finds the volume, and what earlier backups have left of it.
    ///
    /// # Errors
    /// `Refused` where there is no such volume.
    pub fn find(pool: &'a Path, volume: &'a str, vault: VaultId, disk: DiskId) -> Result<Self> {
        let (list, is_served) = match open_free(pool)? {
            PoolAtPath::Held(why) => (ask_server(pool, &Request::List, &why)?, true),
            PoolAtPath::Free(opened) => {
                let list = Request::List.perform(&opened, &PoolFiles::new(Arc::clone(&opened)));
                let closed = opened.close();
                let list = list?;
                closed?;
                (list, false)
            }
        };
        let shown = pool.display();
        if !named(&list).any(|name| name == volume) {
            let why = format!("{shown}: there is no volume {volume}; `volume list` tells what there is");
            return Err(PoolError::NotFound(why).into());
        }
        // One of the same time in another vault, or for another disk, has another name; a disk that is renamed has the same.
        let (vault, disk) = (vault.to_string(), disk.to_string());
        let [vault, disk] = [&vault, &disk].map(|id| id.get(..8).unwrap_or(id));
        let prefix = format!("{volume}@backup-{vault}-{disk}-");
        let is_own = |name: &str| {
            let time = name.strip_prefix(&prefix);
            time.is_some_and(|time| !time.is_empty() && time.bytes().all(|b| b.is_ascii_digit()))
        };
        let older = named(&list).filter(|name| is_own(name)).map(str::to_owned).collect();
        Ok(Prepared { pool, volume, prefix, older, is_served })
    }

    /// Makes it.
    pub fn make(self) -> Result<OwnSnapshot<'a>> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{}{}", self.prefix, since_1970.as_millis());
        let snapshot = name[self.volume.len() + 1..].to_owned();
        ask_within(
            self.pool,
            &Request::Snapshot { volume: self.volume.to_owned(), name: snapshot },
            PATIENCE,
        )?;
        Ok(OwnSnapshot { pool: self.pool, name, older: self.older, is_kept: false })
    }
}

/// The names of all volumes and snapshots of a list.
fn named(list: &Value) -> impl Iterator<Item = &str> {
    list["volumes"].as_array().into_iter().flatten().filter_map(|v| v["name"].as_str())
}

/// The point in time that a backup reads. Dropped, it is deleted, unless it was kept.
pub struct OwnSnapshot<'a> {
    pool: &'a Path,
    /// `NAME@SNAPSHOT`
    pub name: String,
    /// Those of earlier backups, as of before it was made.
    older: Vec<String>,
    is_kept: bool,
}

impl OwnSnapshot<'_> {
    /// It was stored: the pool keeps it, so that the next backup reads only what has changed since, and deletes those of
    /// earlier backups.
    pub fn keep(mut self) {
        self.is_kept = true;
        for older in &self.older {
            if let Err(e) = self.delete(older) {
                errln!("sapwood: {older}: stays in the pool until the next backup: {e:#}");
            }
        }
    }

    fn delete(&self, name: &str) -> Result<()> {
        ask(self.pool, &Request::Delete { name: name.to_owned() }).map(drop)
    }
}

impl Drop for OwnSnapshot<'_> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(e) = self.delete(&self.name) {
            errln!("sapwood: {}: stays in the pool until the next backup: {e:#}", self.name);
        }
    }
}
