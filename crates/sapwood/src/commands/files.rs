//! `sapwood files`

mod get;
pub mod list;
mod tar;

use super::{open, split};
use crate::args::{Args, Files, FilesWhat};
use crate::devices::SnapshotDisk;
use crate::serving::cache_bytes;
use anyhow::Result;
use filesystem::{resolve, FileSystem, NodeId, Volume};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;
use vault::{GroupCache, VaultError};

pub fn run(args: &Args, a: &Files) -> Result<ExitCode> {
    let disk = Disk::open(args, &a.snapshot, a.cache)?;
    match &a.what {
        None => list::volumes(args, &disk),
        Some(FilesWhat::List { paths, recursive }) => list::run(args, disk, paths, *recursive),
        Some(FilesWhat::Get { paths, to }) => get::run(args, disk, paths, to.as_deref()),
        Some(FilesWhat::Tar { paths }) => tar::run(args, disk, paths),
    }
}

/// A snapshot's disk, by its volumes.
pub struct Disk {
    /// `vm/disk@ID`.
    pub name: String,
    /// Partitions and logical volumes.
    pub volumes: Vec<Volume>,
    opened: HashMap<String, Arc<dyn FileSystem>>,
}

/// A node that somebody named.
pub struct Found {
    pub volume: String,
    pub fs: Arc<dyn FileSystem>,
    pub id: NodeId,
    /// The path as it was named, from the root of its file system, with a `/` before it.
    pub path: Vec<u8>,
}

impl Found {
    /// The last part of its path; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }
}

impl Disk {
    /// Opens a snapshot and looks for volumes.
    pub fn open(args: &Args, snapshot: &str, cache: Option<u64>) -> Result<Disk> {
        let (disk, spec) = split(snapshot);
        let vault = open(args)?;
        let snapshot = vault.open_snapshot(disk, spec, &GroupCache::new(cache_bytes(cache)))?;
        let name = format!("{disk}@{}", snapshot.entry().id);
        let volumes = filesystem::volumes(Arc::new(SnapshotDisk(snapshot)))?;
        Ok(Disk { name, volumes, opened: HashMap::new() })
    }

    /// The file system of a volume. What it warns of is said once.
    pub fn file_system(&mut self, volume: &str) -> Result<Arc<dyn FileSystem>> {
        if let Some(fs) = self.opened.get(volume) {
            return Ok(fs.clone());
        }
        let Some(found) = self.volumes.iter().find(|v| v.name == volume) else {
            let names: Vec<&str> = self.volumes.iter().map(|v| &*v.name).collect();
            let why = format!("{} has no volume {volume:?}; it has {}", self.name, names.join(", "));
            return Err(VaultError::NotFound { what: why }.into());
        };
        let fs: Arc<dyn FileSystem> = Arc::from(found.open()?);
        fs.warnings().iter().for_each(|w| eprintln!("sapwood: {}, volume {volume}: {w}", self.name));
        self.opened.insert(volume.to_owned(), fs.clone());
        Ok(fs)
    }

    /// The volumes with a file system that can be read.
    pub fn readable(&mut self) -> Vec<String> {
        let names: Vec<String> = self.volumes.iter().map(|v| v.name.clone()).collect();
        names.into_iter().filter(|name| self.file_system(name).is_ok()).collect()
    }

    /// What `[VOLUME:]PATH` leads to. Without a volume it must be in one only.
    pub fn find(&mut self, named: &OsStr) -> Result<Found> {
        let (volume, path) = self.parse(named.as_bytes());
        let candidates = match volume {
            Some(volume) => vec![volume],
            None => self.readable(),
        };
        let mut found = Vec::new();
        for volume in &candidates {
            let fs = self.file_system(volume)?;
            if let Some(id) = resolve(&*fs, &path, true)? {
                found.push(Found { volume: volume.clone(), fs, id, path: path.clone() });
            }
        }
        let said = printable(&path);
        let what = match (found.len(), candidates.len()) {
            (1, _) => return Ok(found.remove(0)),
            (0, 0) => format!(
                "{} has no file system that can be read; `sapwood files {}` lists its volumes",
                self.name, self.name
            ),
            (0, _) => format!("{}: there is no {said}", self.name),
            _ => {
                let volumes: Vec<String> = found.iter().map(|f| format!("{}:{said}", f.volume)).collect();
                format!("{}: {said} is on several volumes; name one: {}", self.name, volumes.join(", "))
            }
        };
        Err(VaultError::NotFound { what }.into())
    }

    /// Volume and path. A colon belongs to the volume only where there is a volume of that name.
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

    /// What was named, or, where nothing was, the root of the only file system.
    pub fn find_all(&mut self, paths: &[OsString]) -> Result<Vec<Found>> {
        match paths {
            [] => Ok(vec![self.find(OsStr::new("/"))?]),
            paths => paths.iter().map(|p| self.find(p)).collect(),
        }
    }
}

fn absolute(path: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".") {
        all.push(b'/');
        all.extend_from_slice(part);
    }
    all
}

/// A name for people: what is no text, or would play tricks with a terminal, as `\xNN`.
pub fn printable(name: &[u8]) -> String {
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() {
                true => out.extend(c.to_string().bytes().map(|b| format!("\\x{b:02x}"))),
                false => out.push(c),
            }
        }
        out.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    if out.is_empty() {
        out.push('/');
    }
    out
}
