//! The volumes of a snapshot's disk, and the lookup of files in them.

use crate::args::Args;
use crate::commands::names::{check_is_disk, open_to_read, split};
use crate::devices::{OpenVault, SnapshotDisk};
use crate::terminal::escape::escaped;
use crate::terminal::streams::errln;
use anyhow::Result;
use filesystem::{resolve, FileSystem, FsError, NodeId, Volume};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use vault::{ReadCache, VaultError};

/// The volumes of a snapshot's disk.
pub struct Disk {
    /// `vm/disk@ID`.
    pub name: String,
    /// Partitions and logical volumes.
    pub volumes: Vec<Volume>,
    opened: HashMap<String, Arc<dyn FileSystem>>,
    /// Until everything was read.
    _vault: OpenVault,
}

/// A file or directory that the user named.
pub struct NamedNode {
    pub volume: String,
    pub fs: Arc<dyn FileSystem>,
    pub id: NodeId,
    /// Its path in the file system, as the user gave it, with a leading `/`. Empty for the root.
    pub path: Vec<u8>,
}

impl NamedNode {
    /// The last part of its path; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }
}

impl Disk {
    /// Opens a snapshot and looks for volumes. Several may share a cache.
    pub fn open(args: &Args, snapshot: &str, cache: &Arc<ReadCache>) -> Result<Disk> {
        let (disk, spec) = split(snapshot);
        let vault = open_to_read(args)?;
        let snapshot = vault.open_snapshot(disk, spec, cache)?;
        check_is_disk(disk, snapshot.entry())?;
        let name = format!("{disk}@{}", snapshot.entry().id);
        let volumes = filesystem::volumes(Arc::new(SnapshotDisk(snapshot)))?;
        Ok(Disk { name, volumes, opened: HashMap::new(), _vault: vault })
    }

    /// The disk and the snapshot's id.
    pub fn snapshot(&self) -> (&str, &str) {
        split(&self.name)
    }

    /// The file system of a volume. Its warnings are printed when it is opened first.
    pub fn file_system(&mut self, volume: &str) -> filesystem::Result<Arc<dyn FileSystem>> {
        if let Some(fs) = self.opened.get(volume) {
            return Ok(fs.clone());
        }
        let Some(found) = self.volumes.iter().find(|v| v.name == volume) else {
            let why = format!("there is no such volume; it has {}", self.volume_names());
            return Err(FsError::Wrong { what: format!("{}, volume {volume}", self.name), why });
        };
        let fs: Arc<dyn FileSystem> = Arc::from(found.open()?);
        let warn = |w: &String| {
            errln!("sapwood: {}, volume {volume}: {}", self.name, escaped(w.as_bytes()));
        };
        fs.warnings().iter().for_each(warn);
        self.opened.insert(volume.to_owned(), fs.clone());
        Ok(fs)
    }

    /// The volumes and their kinds: `1 (ext4), 2 (btrfs)`.
    fn volume_names(&self) -> String {
        match &self.volumes[..] {
            [] => "none".into(),
            all => with_kinds(all.iter()),
        }
    }

    /// The volumes whose file system can be read, and the errors of those that are damaged. Damage of the vault is an
    /// error.
    pub fn readable(&mut self) -> Result<(Vec<String>, Vec<FsError>)> {
        let names: Vec<String> = self.volumes.iter().map(|v| v.name.clone()).collect();
        let (mut readable, mut damaged) = (Vec::new(), Vec::new());
        for name in names {
            match self.file_system(&name) {
                Ok(_) => readable.push(name),
                Err(e @ FsError::Read(_)) => return Err(e.into()),
                Err(e @ FsError::Corrupt { .. }) => damaged.push(e),
                Err(FsError::Wrong { .. } | FsError::Unsupported { .. }) => {}
            }
        }
        Ok((readable, damaged))
    }

    /// The node at `[VOLUME:]PATH`. Without a volume, the path must exist on exactly one.
    pub fn find(&mut self, named: &OsStr) -> Result<NamedNode> {
        let (volume, path) = self.parse(named.as_bytes());
        if let Some(volume) = volume {
            let fs = self.file_system(&volume)?;
            let there = resolve(&*fs, &path, true)?;
            let id = there.ok_or_else(|| self.missing(named, &path, &[]))?;
            return Ok(NamedNode { volume, fs, id, path });
        }
        let (candidates, mut damaged) = self.readable()?;
        let mut found = Vec::new();
        for volume in candidates {
            let fs = self.file_system(&volume)?;
            match resolve(&*fs, &path, true) {
                Ok(Some(id)) => found.push(NamedNode { volume, fs, id, path: path.clone() }),
                Ok(None) => {}
                Err(e @ FsError::Read(_)) => return Err(e.into()),
                // The path may exist on another volume.
                Err(e) => damaged.push(e),
            }
        }
        match (found.len(), damaged.len()) {
            (1, _) => Ok(found.remove(0)),
            (0, 1) if self.volumes.len() == 1 => Err(damaged.remove(0).into()),
            (0, _) => Err(self.missing(named, &path, &damaged).into()),
            _ => {
                let said = printable(&path);
                let volumes: Vec<String> = found.iter().map(|f| format!("{}:{said}", f.volume)).collect();
                let volumes = volumes.join(", ");
                let what = format!("{}: {said} is on several volumes; name one: {volumes}", self.name);
                Err(VaultError::NotFound { what }.into())
            }
        }
    }

    /// The error for a path that was not found, with what may explain it.
    fn missing(&self, named: &OsStr, path: &[u8], damaged: &[FsError]) -> VaultError {
        let mut what = format!("{}: there is no {}", self.name, printable(path));
        if self.opened.is_empty() && damaged.is_empty() {
            what =
                format!("{} has no file system that can be read; it has {}", self.name, self.volume_names());
        } else if named.as_bytes().split(|b| *b == b'/').next().is_some_and(|first| first.contains(&b':')) {
            what += &format!(" (volumes: {})", self.volume_names());
        }
        damaged.iter().for_each(|e| what += &format!("; {e}"));
        // The path may exist in a volume that could not be opened.
        let is_closed =
            |v: &&Volume| !self.opened.contains_key(&v.name) && !["", "lvm", "swap"].contains(&v.kind);
        let closed: Vec<&Volume> = self.volumes.iter().filter(is_closed).collect();
        if !self.opened.is_empty() && !closed.is_empty() {
            what += &format!("; not looked into: {}", with_kinds(closed.into_iter()));
        }
        VaultError::NotFound { what }
    }

    /// Splits `[VOLUME:]PATH`. What stands before a colon is a volume only if there is a volume of that name: file
    /// names may contain colons.
    fn parse(&self, named: &[u8]) -> (Option<String>, Vec<u8>) {
        let colon = named.iter().position(|b| *b == b':');
        if let Some(at) = colon {
            let volume = self.volumes.iter().find(|v| v.name.as_bytes() == &named[..at]);
            if let Some(volume) = volume {
                return (Some(volume.name.clone()), absolute(&named[at + 1..]));
            }
        }
        (None, absolute(named))
    }

    /// The nodes at these paths; without any, the root of the only file system.
    pub fn find_all(&mut self, paths: &[OsString]) -> Result<Vec<NamedNode>> {
        match paths {
            [] => Ok(vec![self.find(OsStr::new("/"))?]),
            paths => paths.iter().map(|p| self.find(p)).collect(),
        }
    }
}

/// Volumes and their kinds.
fn with_kinds<'a>(volumes: impl Iterator<Item = &'a Volume>) -> String {
    let name = |v: &Volume| match v.kind {
        "" => format!("{} (unknown)", v.name),
        kind => format!("{} ({kind})", v.name),
    };
    volumes.map(name).collect::<Vec<_>>().join(", ")
}

/// The path from the root, without `/` at its end. `..` removes the part before it, as in a shell.
fn absolute(path: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".") {
        if part == b".." {
            all.truncate(all.iter().rposition(|b| *b == b'/').unwrap_or(0));
            continue;
        }
        all.push(b'/');
        all.extend_from_slice(part);
    }
    all
}

/// A path for messages: unprintable bytes are escaped.
pub fn printable(path: &[u8]) -> String {
    if path.is_empty() {
        "/".into()
    } else {
        escaped(path)
    }
}
