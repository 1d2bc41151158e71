//! Copies and compressors: what storing or reading a version costs without any
//! deduplication.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::tool::{command, Description, Role, Tool, Version};
use crate::run::{first_line, run, Cost};

/// A directory with one file a version.
pub struct Plain {
    name: &'static str,
    program: &'static str,
    /// Arguments before the source and those between source and target.
    store: (&'static [&'static str], &'static [&'static str]),
    load: (&'static [&'static str], &'static [&'static str]),
    repository: PathBuf,
}

impl Plain {
    /// A sparse copy.
    pub fn cp(home: PathBuf) -> Self {
        Self {
            name: "cp",
            program: "cp",
            store: (&["--sparse=always", "--reflink=never"], &[]),
            load: (&["--sparse=always", "--reflink=never"], &[]),
            repository: home.join("repository"),
        }
    }

    /// The fastest ordinary level of zstd, on all cores.
    pub fn zstd(home: PathBuf) -> Self {
        Self {
            name: "zstd",
            program: "zstd",
            store: (&["-1", "-T0", "-q"], &["-o"]),
            load: (&["-d", "-q"], &["-o"]),
            repository: home.join("repository"),
        }
    }

    /// A compressed qcow2 image.
    pub fn qcow2(home: PathBuf) -> Self {
        Self {
            name: "qcow2",
            program: "qemu-img",
            store: (&["convert", "-c", "-f", "raw", "-O", "qcow2"], &[]),
            load: (&["convert", "-f", "qcow2", "-O", "raw"], &[]),
            repository: home.join("repository"),
        }
    }

    fn file(&self, version: Version<'_>) -> PathBuf {
        self.repository.join(version.label())
    }

    fn command(
        &self,
        (before, between): (&[&str], &[&str]),
        source: impl AsRef<OsStr>,
        target: impl AsRef<OsStr>,
    ) -> Command {
        let mut command = command(self.program, &self.repository);
        command.args(before).arg(source).args(between).arg(target);
        command
    }

    fn shown(&self, (before, between): (&[&str], &[&str])) -> String {
        let words = [&[self.program], before, &["SOURCE"], between, &["TARGET"]];
        words.concat().join(" ")
    }
}

impl Tool for Plain {
    fn describe(&self) -> Result<Description> {
        Ok(Description {
            name: self.name.into(),
            role: Role::Yardstick,
            version: first_line(Command::new(self.program).arg("--version"))?,
            backup: self.shown(self.store),
            restore: self.shown(self.load),
            note: "stores the first and the newest version only, each whole".into(),
        })
    }

    fn create(&mut self) -> Result<()> {
        fs::create_dir_all(&self.repository)?;
        Ok(())
    }

    fn backup(&mut self, version: Version<'_>) -> Result<Cost> {
        let mut store = self.command(self.store, version.path, self.file(version));
        Ok(run(&mut store, &self.repository)?.cost)
    }

    fn restore(&mut self, version: Version<'_>, dir: &Path) -> Result<(PathBuf, Cost)> {
        let target = dir.join("restored.raw");
        let mut load = self.command(self.load, self.file(version), &target);
        let cost = run(&mut load, dir)?.cost;
        Ok((target, cost))
    }

    fn repository(&self) -> &Path {
        &self.repository
    }
}
