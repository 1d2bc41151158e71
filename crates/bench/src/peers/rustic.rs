//! rustic: a restic repository, written by another program. It always encrypts.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::tool::{command, Description, Role, Tool, Version};
use crate::run::{first_line, run, Cost};

/// A rustic repository of format 2.
pub struct Rustic {
    program: PathBuf,
    home: PathBuf,
    repository: PathBuf,
}

impl Rustic {
    /// With its repository and cache under `home`.
    pub fn new(program: PathBuf, home: PathBuf) -> Self {
        let repository = home.join("repository");
        Self { program, home, repository }
    }

    fn rustic(&self) -> Command {
        let mut rustic = command(&self.program, &self.home);
        rustic
            .env("RUSTIC_PASSWORD", "bench")
            .env("RUSTIC_REPOSITORY", &self.repository)
            .env("RUSTIC_CACHE_DIR", self.home.join("cache"))
            .env("RUSTIC_NO_PROGRESS", "true")
            .env("RUSTIC_LOG_LEVEL", "warn")
            .current_dir(&self.home);
        rustic
    }
}

impl Tool for Rustic {
    fn describe(&self) -> Result<Description> {
        Ok(Description {
            name: "rustic".into(),
            role: Role::Peer,
            version: first_line(self.rustic().arg("--version"))?,
            backup: "rustic backup FILE".into(),
            restore: "rustic restore SNAPSHOT --sparse by-content DIR".into(),
            note: "rustic cannot be told not to encrypt; each command derives a key first".into(),
        })
    }

    fn create(&mut self) -> Result<()> {
        run(self.rustic().arg("init"), &self.home)?;
        Ok(())
    }

    fn backup(&mut self, version: Version<'_>) -> Result<Cost> {
        let mut backup = self.rustic();
        backup.args(["backup", "--label", &version.label()]).arg(version.path);
        Ok(run(&mut backup, &self.repository)?.cost)
    }

    fn restore(&mut self, version: Version<'_>, dir: &Path) -> Result<(PathBuf, Cost)> {
        let mut restore = self.rustic();
        restore
            .args(["restore", "latest", "--sparse", "by-content", "--filter-label", &version.label()])
            .arg(dir);
        let cost = run(&mut restore, dir)?.cost;
        let inside = version.path.strip_prefix("/").context("absolute path")?;
        Ok((dir.join(inside), cost))
    }

    fn repository(&self) -> &Path {
        &self.repository
    }
}
