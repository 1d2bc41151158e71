//! casync: content-defined chunks of about 64 KiB, each a file of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::tool::{command, Description, Role, Tool, Version};
use crate::run::{first_line, run, Cost};

/// A chunk store and the indexes of the images in it.
pub struct Casync {
    home: PathBuf,
    repository: PathBuf,
}

impl Casync {
    /// With its store and indexes under `home`.
    pub fn new(home: PathBuf) -> Self {
        let repository = home.join("repository");
        Self { home, repository }
    }

    fn index(&self, version: Version<'_>) -> PathBuf {
        self.repository.join(format!("{}.caibx", version.label()))
    }

    fn store(&self) -> String {
        format!("--store={}", self.repository.join("store.castr").display())
    }
}

impl Tool for Casync {
    fn describe(&self) -> Result<Description> {
        Ok(Description {
            name: "casync".into(),
            role: Role::Peer,
            version: first_line(command("casync", &self.home).arg("--version"))?,
            backup: "casync make --store=STORE INDEX.caibx FILE".into(),
            restore: "casync extract --store=STORE INDEX.caibx TARGET".into(),
            note: "compresses with zstd level 3, which cannot be changed".into(),
        })
    }

    fn create(&mut self) -> Result<()> {
        fs::create_dir_all(&self.repository)?;
        Ok(())
    }

    fn backup(&mut self, version: Version<'_>) -> Result<Cost> {
        let mut make = command("casync", &self.home);
        make.arg("make").arg(self.store()).arg(self.index(version)).arg(version.path);
        Ok(run(&mut make, &self.repository)?.cost)
    }

    fn restore(&mut self, version: Version<'_>, dir: &Path) -> Result<(PathBuf, Cost)> {
        let target = dir.join("restored.raw");
        let mut extract = command("casync", &self.home);
        extract.arg("extract").arg(self.store()).arg(self.index(version)).arg(&target);
        let cost = run(&mut extract, dir)?.cost;
        Ok((target, cost))
    }

    fn repository(&self) -> &Path {
        &self.repository
    }
}
