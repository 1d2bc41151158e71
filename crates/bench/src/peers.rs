//! The tools that are compared, behind one trait: a repository for all disks,
//! as a user would have it, a backup of a version, a restore of it.

mod borg;
mod casync;
mod plain;
mod restic;
mod rustic;
mod sapwood;
mod tool;

use std::fs;
use std::path::Path;

use anyhow::{bail, Result};
use serde::Serialize;

use crate::install;
pub use sapwood::{snapshot, Sapwood, Vault};
pub use tool::{Description, Role, Tool, Version};

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
        peers: &["borg", BORG_FIXED, "restic", "rustic", "casync"],
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

/// Borg as it is fastest with images of disks: chunks of 4 MiB at fixed places, zstd at level 1.
const BORG_FIXED: &str = "borg-fixed";

/// Sapwood with an index of every chunk.
pub const CONVENTIONAL: &str = "sapwood-conventional";

/// Tools without deduplication.
pub const YARDSTICKS: [&str; 3] = ["cp", "zstd", "qcow2"];

/// The tool called `name` with its files under `home`; `Ok(None)` when its
/// program is not installed.
pub fn tool(name: &str, home: &Path, sapwood: &Path) -> Result<Option<Box<dyn Tool>>> {
    let home = home.join(name);
    fs::create_dir_all(&home)?;
    if name == CONVENTIONAL {
        let vault = Vault::new(sapwood, home.join("repository"), "conventional", None);
        return Ok(Some(Box::new(Sapwood::new(name, vault))));
    }
    if name == BORG_FIXED {
        return Ok(crate::run::is_installed("borg").then(|| Box::new(borg::Borg::fixed(name, home)) as _));
    }
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
        "rustic" => match install::program("rustic") {
            Some(program) => return Ok(Some(Box::new(rustic::Rustic::new(program, home)))),
            None => return Ok(None),
        },
        "casync" => Box::new(casync::Casync::new(home)),
        "cp" => Box::new(plain::Plain::cp(home)),
        "zstd" => Box::new(plain::Plain::zstd(home)),
        "qcow2" => Box::new(plain::Plain::qcow2(home)),
        _ => bail!("unknown tool {name}"),
    };
    let needed = if program == "qcow2" { "qemu-img" } else { program };
    Ok(crate::run::is_installed(needed).then_some(tool))
}
