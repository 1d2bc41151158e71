//! The files of a snapshot that cannot be read wholly, because chunks are lost.

use crate::args::Args;
use crate::commands::files::disk::{printable, Disk};
use crate::commands::files::ranges::RangesOnVolume;
use crate::commands::names::split;
use crate::devices::read_cache;
use crate::terminal::outcome;
use anyhow::Result;
use filesystem::{FileSystem, NodeKind, Order, Step, Walk};
use serde_json::{json, Value};
use std::ops::Range;
use vault::{LostChunks, Vault, VaultError};

/// What cannot be read of a snapshot.
pub struct LostFiles {
    /// `vm/disk@id`.
    pub snapshot: String,
    /// Bytes of the disk; `None` if nothing can be read.
    pub bytes: Option<u64>,
    /// In how many ranges.
    pub ranges: usize,
    /// `VOLUME:PATH` of files with lost data.
    pub files: Vec<String>,
    /// Where it cannot be known which files are hit.
    pub unknown: Vec<String>,
}

impl LostFiles {
    pub fn json(&self) -> Value {
        let (disk, id) = split(&self.snapshot);
        json!({
            "disk": disk,
            "snapshot": id,
            "bytes": self.bytes,
            "ranges_count": self.ranges,
            "paths": self.files,
            "unknown": self.unknown,
        })
    }
}

/// Looks for the files of a snapshot that lost chunks hit.
pub fn find(args: &Args, vault: &Vault, snapshot: &str, lost: &LostChunks) -> Result<LostFiles> {
    let mut found = LostFiles {
        snapshot: snapshot.to_owned(),
        bytes: None,
        ranges: 0,
        files: Vec::new(),
        unknown: Vec::new(),
    };
    let (disk, id) = split(snapshot);
    let ranges = match vault.lost_ranges(disk, id, lost) {
        Err(VaultError::Corrupt { .. } | VaultError::Missing { .. }) => return Ok(found),
        ranges => ranges?,
    };
    found.bytes = Some(ranges.iter().map(|r| r.end - r.start).sum());
    found.ranges = ranges.len();
    if lost.is_cut() {
        found.unknown.push("so much of the vault is damaged that more than this may be lost".into());
    }
    // Whatever of the disk cannot be read.
    if let Err(e) = look(args, snapshot, &ranges, &mut found) {
        found.unknown.push(format!("its files are not known: {}", outcome::one_line(&e)));
    }
    Ok(found)
}

fn look(args: &Args, snapshot: &str, ranges: &[Range<u64>], found: &mut LostFiles) -> Result<()> {
    let mut disk = Disk::open(args, snapshot, &read_cache(None))?;
    let volumes: Vec<_> = disk.volumes.iter().map(|v| (v.name.clone(), v.part().ok())).collect();
    for (name, part) in volumes {
        let on_volume = RangesOnVolume { part, ranges };
        if on_volume.are_elsewhere() {
            continue;
        }
        match disk.file_system(&name) {
            Ok(fs) => files_of(&name, &*fs, &on_volume, found),
            Err(e) => found.unknown.push(format!("volume {name}: {}", outcome::one_line(&e.into()))),
        }
    }
    Ok(())
}

fn files_of(name: &str, fs: &dyn FileSystem, ranges: &RangesOnVolume<'_>, found: &mut LostFiles) {
    let mut walk = Walk::new(fs, b"", fs.root(), Order::Name);
    while let Some(step) = walk.next() {
        let touched = match step {
            Ok(Step::Node(id, node)) if node.kind == NodeKind::File => ranges.touch(fs, id),
            Ok(_) => continue,
            Err(e) => Err(e),
        };
        let path = format!("{name}:{}", printable(walk.path()));
        match touched {
            Ok(true) => found.files.push(path),
            Ok(false) => {}
            Err(e) => found.unknown.push(format!("{path}: {}", outcome::one_line(&e.into()))),
        }
    }
}
