//! What can be asked of a pool: of one that this process opens, or of a server.

use super::file_system::{file_of, PoolFiles};
use super::fill_source::FillSource;
use crate::args::ShareMode;
use anyhow::Result;
use pool::{Finding, Pool, PoolError};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use std::sync::Arc;

const BLOCK_BYTES: u64 = 4096;

/// A request.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Make a volume.
    Create {
        /// Its name.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// When its blocks are shared.
        share: ShareMode,
    },
    /// Make a volume that is filled from elsewhere.
    CreateFilled {
        /// Its name.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// When its blocks are shared.
        share: ShareMode,
        /// What it is filled from, as the pool remembers it.
        source: String,
    },
    /// List volumes and snapshots.
    List,
    /// Change the size of a volume.
    Resize {
        /// Its name.
        name: String,
        /// Its new size in bytes.
        size: u64,
    },
    /// Choose when blocks of a volume are shared.
    Share {
        /// Its name.
        name: String,
        /// When.
        share: ShareMode,
    },
    /// Make a snapshot.
    Snapshot {
        /// The volume.
        volume: String,
        /// The part behind `@`.
        name: String,
    },
    /// Make a volume or a file of a snapshot or a file.
    Clone {
        /// The snapshot, or a file.
        snapshot: String,
        /// The volume, or a file.
        name: String,
    },
    /// Delete a volume or a snapshot.
    Delete {
        /// Its name.
        name: String,
    },
    /// What a backup of a snapshot has to know.
    Changes {
        /// The snapshot.
        snapshot: String,
        /// The key of the snapshot that the vault has.
        since: Option<String>,
    },
    /// Show space.
    Stats,
    /// Check the pool.
    Check {
        /// All data as well.
        data: bool,
        /// Make anew what can be.
        repair: bool,
        /// Bytes of content in a second at most, while it is served.
        limit: Option<u64>,
    },
}

impl Request {
    /// Does what was asked for. Returns what `--json` prints.
    pub fn perform(&self, pool: &Arc<Pool>, files: &PoolFiles) -> Result<Value, PoolError> {
        match self {
            Request::Create { name, size, share } => {
                pool.create_volume(name, *size, (*share).into())?;
                Ok(json!({ "name": name, "size": size, "from": null }))
            }
            Request::CreateFilled { name, size, share, source } => {
                pool.create_filled(name, *size, (*share).into(), source)?;
                let from = FillSource::parse(source).map(|source| source.snapshot());
                Ok(json!({ "name": name, "size": size, "from": from }))
            }
            Request::List => list(pool),
            Request::Resize { name, size } => {
                pool.resize(name, *size)?;
                Ok(json!({ "name": name, "size": size }))
            }
            Request::Share { name, share } => {
                pool.share(name, (*share).into())?;
                Ok(json!({ "name": name, "share": share }))
            }
            Request::Snapshot { volume, name } => {
                pool.snapshot(volume, name)?;
                Ok(json!({ "name": format!("{volume}@{name}") }))
            }
            Request::Clone { snapshot, name } => {
                match (file_of(snapshot), file_of(name)) {
                    (None, None) => pool.clone_snapshot(snapshot, name)?,
                    (None, Some(path)) => files.get()?.clone_from_volume(snapshot, path)?,
                    (Some(path), None) => files.get()?.clone_to_volume(path, name)?,
                    (Some(from), Some(path)) => files.get()?.clone_file(from, path)?,
                }
                Ok(json!({ "name": name, "from": snapshot }))
            }
            Request::Delete { name } => {
                pool.delete(name)?;
                Ok(json!({ "name": name }))
            }
            Request::Changes { snapshot, since } => changes(pool, snapshot, since.as_deref()),
            Request::Stats => stats(pool),
            Request::Check { data, repair, .. } => {
                let report = if *repair { pool.repair(*data)? } else { pool.check(*data)? };
                let (mended, findings): (Vec<_>, Vec<_>) =
                    report.findings.into_iter().partition(|finding| finding.is_mended);
                let texts = |findings: Vec<Finding>| findings.into_iter().map(|f| f.what).collect::<Vec<_>>();
                Ok(json!({
                    "findings": texts(findings),
                    "mended": texts(mended),
                    "more": report.more,
                    "used_blocks": report.used_blocks,
                    "counted": true,
                }))
            }
        }
    }
}

fn list(pool: &Pool) -> Result<Value, PoolError> {
    let fills = pool.fills()?;
    let fill = |name: &str| {
        let fill = fills.iter().find(|fill| fill.volume == name)?;
        let (from, store) = match FillSource::parse(&fill.source) {
            Some(source) => (source.snapshot(), Some(source.store)),
            None => (fill.source.clone(), None),
        };
        Some(json!({ "from": from, "store": store, "bytes": fill.filled, "error": null }))
    };
    let volumes: Vec<_> = pool
        .volumes()
        .into_iter()
        .map(|v| {
            json!({
                "name": v.name,
                "size": v.size,
                "kind": if v.is_snapshot { "snapshot" } else { "volume" },
                "share": ShareMode::from(v.sharing),
                "time": v.created,
                "fill": fill(&v.name),
            })
        })
        .collect();
    Ok(json!({ "volumes": volumes }))
}

/// `changes` is null where they cannot be told.
fn changes(pool: &Pool, snapshot: &str, since: Option<&str>) -> Result<Value, PoolError> {
    let facts = pool.snapshot_facts(snapshot)?;
    let changes = since.map(|since| pool.changed(snapshot, since)).transpose()?.flatten();
    let changes = changes.map(|c| c.into_iter().map(|r| [r.start, r.end]).collect::<Vec<_>>());
    Ok(json!({ "key": facts.key, "created": facts.created, "changes": changes }))
}

fn stats(pool: &Pool) -> Result<Value, PoolError> {
    let stats = pool.stats();
    let report = pool.usage()?;
    let volumes = pool.volumes();
    let count = |mode: ShareMode| {
        volumes.iter().filter(|v| !v.is_snapshot && ShareMode::from(v.sharing) == mode).count()
    };
    Ok(json!({
        "data_bytes": stats.data_bytes,
        "free_bytes": stats.free_bytes,
        "mapped_bytes": report.mapped_bytes,
        "stored_bytes": report.stored_bytes,
        "unshared_bytes": report.unshared_bytes,
        "modes": {
            "inline": count(ShareMode::Inline),
            "background": count(ShareMode::Background),
            "off": count(ShareMode::Off),
        },
        "filter_entries": stats.filter_entries,
        "filter_bytes": stats.filter_bytes,
        "scan_rate": stats.scanning.map(|s| s.bytes_per_second),
        "scan_pause": stats.scanning.map(|s| s.pause.as_secs()),
        "scans": stats.scans.scans,
        "hashed_bytes": stats.scans.hashed_blocks * BLOCK_BYTES,
        "shared_bytes": stats.scans.shared_blocks * BLOCK_BYTES,
    }))
}
