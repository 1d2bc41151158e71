//! restic: content-defined chunks of 0.5 to 8 MiB. It always encrypts.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::tool::{command, Description, Role, Tool, Version};
use crate::run::{first_line, run, Cost};

/// A restic repository of format 2.
pub struct Restic {
    home: PathBuf,
    repository: PathBuf,
    /// Whether this version can restore sparsely.
    sparse: bool,
}

impl Restic {
    /// With its repository and cache under `home`.
    pub fn new(home: PathBuf) -> Self {
        let repository = home.join("repository");
        Self { home, repository, sparse: false }
    }

    fn restic(&self) -> Command {
        let mut restic = command("restic", &self.home);
        restic
            .env("RESTIC_PASSWORD", "bench")
            .env("RESTIC_CACHE_DIR", self.home.join("cache"))
            .arg("--repo")
            .arg(&self.repository)
            .arg("--quiet");
        restic
    }

    fn can_restore_sparsely(&self) -> Result<bool> {
        let help = command("restic", &self.home).args(["restore", "--help"]).output()?;
        Ok(String::from_utf8_lossy(&help.stdout).contains("--sparse"))
    }

    fn restore_arguments(&self) -> &'static [&'static str] {
        if self.sparse {
            &["restore", "latest", "--sparse"]
        } else {
            &["restore", "latest"]
        }
    }
}

impl Tool for Restic {
    fn describe(&self) -> Result<Description> {
        let sparse = if self.can_restore_sparsely()? { " --sparse" } else { "" };
        Ok(Description {
            name: "restic".into(),
            role: Role::Peer,
            version: first_line(command("restic", &self.home).arg("version"))?,
            backup: "restic backup FILE".into(),
            restore: format!("restic restore SNAPSHOT{sparse} --target DIR"),
            note: "restic cannot be told not to encrypt; each command derives a key first. \
                   Compression auto is zstd about level 3"
                .into(),
        })
    }

    fn create(&mut self) -> Result<()> {
        self.sparse = self.can_restore_sparsely()?;
        let mut init = self.restic();
        init.args(["init", "--repository-version", "2"]);
        run(&mut init, &self.home)?;
        Ok(())
    }

    fn backup(&mut self, version: Version<'_>) -> Result<Cost> {
        let mut backup = self.restic();
        backup.args(["backup", "--tag", &version.label()]).arg(version.path);
        Ok(run(&mut backup, &self.repository)?.cost)
    }

    fn restore(&mut self, version: Version<'_>, dir: &Path) -> Result<(PathBuf, Cost)> {
        let mut restore = self.restic();
        restore.args(self.restore_arguments()).args(["--tag", &version.label(), "--target"]).arg(dir);
        let cost = run(&mut restore, dir)?.cost;
        let inside = version.path.strip_prefix("/").context("absolute path")?;
        Ok((dir.join(inside), cost))
    }

    fn repository(&self) -> &Path {
        &self.repository
    }
}
