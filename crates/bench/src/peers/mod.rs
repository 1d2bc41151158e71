//! The tools that are compared, behind one trait: a repository for all disks,
//! as a user would have it, a backup of a version, a restore of it.

mod borg;
mod casync;
mod plain;
mod restic;
mod sapwood;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Result};
use serde::Serialize;

use crate::files::Space;
use crate::run::Cost;

pub use sapwood::{snapshot, Sapwood, Vault};

/// What a tool is in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// What the project makes.
    Subject,
    /// A deduplicating backup tool that people use.
    Peer,
    /// A copy or a compressor without deduplication: it knows one version only.
    Yardstick,
}

/// Who a tool is and how it was called.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// Name in tables, with the setting that differs.
    pub name: String,
    /// What it is in the comparison.
    pub role: Role,
    /// What it says its version is.
    pub version: String,
    /// How it makes a backup.
    pub backup: String,
    /// How it restores.
    pub restore: String,
    /// What must be known to judge its figures.
    pub note: String,
}

/// One version of one disk.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The disk's name, `vm/disk`.
    pub disk: &'a str,
    /// Number of the version, from 0.
    pub number: usize,
    /// The raw image, an absolute path.
    pub path: &'a Path,
}

impl Version<'_> {
    /// A name that is a valid file name.
    pub fn label(&self) -> String {
        format!("{}-v{:02}", self.disk.replace('/', "-"), self.number)
    }
}

/// What reading back everything stored gave.
#[derive(Clone, Copy, Debug)]
pub struct Verified {
    /// Bytes of disk data checked.
    pub data_bytes: u64,
    /// What it cost.
    pub cost: Cost,
}

/// A tool with one repository.
pub trait Tool {
    /// Who it is.
    fn describe(&self) -> Result<Description>;

    /// Makes the repository.
    fn create(&mut self) -> Result<()>;

    /// Stores a version.
    fn backup(&mut self, version: Version<'_>) -> Result<Cost>;

    /// Restores a version into the empty directory `dir`; returns where it is.
    fn restore(&mut self, version: Version<'_>, dir: &Path) -> Result<(PathBuf, Cost)>;

    /// Where the repository is.
    fn repository(&self) -> &Path;

    /// Reads back and checks everything stored, for tools measured in that.
    fn verify(&mut self) -> Result<Option<Verified>> {
        Ok(None)
    }

    /// The space of the repository.
    fn stored(&self) -> Result<Space> {
        Ok(Space::of(self.repository())?)
    }
}

/// A comparison under one rule about codecs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Mode {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// What is the same for all.
    pub what: &'static str,
    /// The tool measured.
    pub subject: &'static str,
    /// The tools it is measured against.
    pub peers: &'static [&'static str],
}

/// The comparisons; those up to `lz4` are made unless others are asked for.
/// casync always compresses with zstd level 3, and restic's `auto` is zstd
/// at a level equivalent to 3.
pub const MODES: [Mode; 4] = [
    Mode {
        name: "default",
        what: "every tool as it comes",
        subject: "sapwood",
        peers: &["borg", "restic", "casync"],
    },
    Mode {
        name: "zstd3",
        what: "all with zstd at level 3",
        subject: "sapwood-zstd3",
        peers: &["borg-zstd3", "restic", "casync"],
    },
    Mode { name: "lz4", what: "all with lz4", subject: "sapwood-lz4", peers: &["borg"] },
    Mode {
        name: "zstd1",
        what: "all with zstd at level 1",
        subject: "sapwood-zstd1",
        peers: &["borg-zstd1"],
    },
];

/// Tools without deduplication.
pub const YARDSTICKS: [&str; 3] = ["cp", "zstd", "qcow2"];

/// The tool called `name` with its files under `home`; `Ok(None)` when its
/// program is not installed.
pub fn tool(name: &str, home: &Path, sapwood: &Path) -> Result<Option<Box<dyn Tool>>> {
    let home = home.join(name);
    fs::create_dir_all(&home)?;
    let (program, setting) = name.split_once('-').unwrap_or((name, ""));
    let codec = match setting {
        "" => None,
        "lz4" => Some("lz4".to_owned()),
        _ => match setting.strip_prefix("zstd").map(str::parse::<u8>) {
            Some(Ok(level)) => Some(format!("zstd,{level}")),
            _ => bail!("unknown tool {name}"),
        },
    };
    let tool: Box<dyn Tool> = match program {
        "sapwood" => {
            let codec = codec.map(|codec| codec.replace(',', ":"));
            let vault = Vault::new(sapwood, home.join("repository"), "balanced", codec);
            return Ok(Some(Box::new(Sapwood::new(name, vault))));
        }
        "borg" => Box::new(borg::Borg::new(name, home, codec)),
        "restic" => Box::new(restic::Restic::new(home)),
        "casync" => Box::new(casync::Casync::new(home)),
        "cp" => Box::new(plain::Plain::cp(home)),
        "zstd" => Box::new(plain::Plain::zstd(home)),
        "qcow2" => Box::new(plain::Plain::qcow2(home)),
        _ => bail!("unknown tool {name}"),
    };
    let needed = if program == "qcow2" { "qemu-img" } else { program };
    Ok(crate::run::is_installed(needed).then_some(tool))
}

/// A command that keeps its caches and settings under `home`, never the user's.
fn command(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", home).env("LC_ALL", "C.UTF-8");
    for variable in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        command.env_remove(variable);
    }
    command
}
