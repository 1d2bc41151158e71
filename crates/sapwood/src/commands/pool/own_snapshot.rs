//! A snapshot of a volume that a backup makes for itself.

use super::control::ask;
use super::request::Request;
use crate::terminal::streams::errln;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use vault::VaultId;

/// Characters of a vault's id in the names of its snapshots.
const ID_CHARS: usize = 8;

/// The point in time that a backup reads. Dropped, it is deleted, unless it was kept.
pub struct OwnSnapshot<'a> {
    pool: &'a Path,
    /// `NAME@SNAPSHOT`
    pub name: String,
    /// How the names of all begin that backups into this vault have made of this volume.
    prefix: String,
    is_kept: bool,
}

impl<'a> OwnSnapshot<'a> {
    /// Makes one.
    pub fn make(pool: &'a Path, volume: &str, vault: VaultId) -> Result<Self> {
        let id = vault.to_string();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let prefix = format!("backup-{}-", &id[..ID_CHARS.min(id.len())]);
        let snapshot = format!("{prefix}{}", since_1970.as_millis());
        let (name, prefix) = (format!("{volume}@{snapshot}"), format!("{volume}@{prefix}"));
        ask(pool, &Request::Snapshot { volume: volume.to_owned(), name: snapshot })?;
        Ok(OwnSnapshot { pool, name, prefix, is_kept: false })
    }

    /// It was stored: the pool keeps it, so that the next backup reads only what has changed since, and deletes those of
    /// earlier backups.
    pub fn keep(mut self) {
        self.is_kept = true;
        if let Err(e) = self.delete_older() {
            errln!("sapwood: {}: the snapshots of earlier backups stay in the pool: {e:#}", self.name);
        }
    }

    fn delete_older(&self) -> Result<()> {
        let all = ask(self.pool, &Request::List)?;
        let names = all["volumes"].as_array().into_iter().flatten().filter_map(|v| v["name"].as_str());
        let older = names.filter(|name| name.starts_with(&self.prefix) && *name != self.name);
        older.into_iter().try_for_each(|name| self.delete(name).map(drop))
    }

    fn delete(&self, name: &str) -> Result<Value> {
        ask(self.pool, &Request::Delete { name: name.to_owned() })
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
