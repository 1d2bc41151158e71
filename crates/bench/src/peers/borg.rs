//! BorgBackup: content-defined chunks of about 2 MiB, or of a fixed length; encryption off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::tool::{command, Description, Role, Tool, Version};
use crate::run::{first_line, run, Cost};

/// A borg repository.
pub struct Borg {
    name: String,
    home: PathBuf,
    repository: PathBuf,
    /// Options of `borg create` that differ from borg's own defaults.
    options: Vec<String>,
}

impl Borg {
    /// With its repository, cache and settings under `home`; the codec as borg spells it.
    pub fn new(name: &str, home: PathBuf, codec: Option<String>) -> Self {
        let options = codec.map(|codec| vec!["--compression".to_owned(), codec]).unwrap_or_default();
        Self::with_options(name, home, options)
    }

    /// As its manual advises for images of disks: chunks of 4 MiB at fixed places, so that boundaries need not be searched
    /// for.
    pub fn fixed(name: &str, home: PathBuf) -> Self {
        let options = ["--chunker-params", "fixed,4194304", "--compression", "zstd,1"];
        Self::with_options(name, home, options.map(str::to_owned).to_vec())
    }

    fn with_options(name: &str, home: PathBuf, options: Vec<String>) -> Self {
        let repository = home.join("repository");
        Self { name: name.to_owned(), home, repository, options }
    }

    fn borg(&self) -> Command {
        let mut borg = command("borg", &self.home);
        borg.env("BORG_BASE_DIR", &self.home)
            .env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes")
            .env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes");
        borg
    }

    fn archive(&self, version: Version<'_>) -> String {
        format!("{}::{}", self.repository.display(), version.label())
    }
}

impl Tool for Borg {
    fn describe(&self) -> Result<Description> {
        Ok(Description {
            name: self.name.clone(),
            role: Role::Peer,
            version: first_line(self.borg().arg("--version"))?,
            backup: [
                &["borg create".to_owned()],
                &self.options[..],
                &["REPOSITORY::ARCHIVE FILE".to_owned()],
            ]
            .concat()
            .join(" "),
            restore: "borg extract --sparse REPOSITORY::ARCHIVE".into(),
            note: "borg init -e none: neither encrypted nor authenticated".into(),
        })
    }

    fn create(&mut self) -> Result<()> {
        let mut init = self.borg();
        init.args(["init", "-e", "none"]).arg(&self.repository);
        run(&mut init, &self.home)?;
        Ok(())
    }

    fn backup(&mut self, version: Version<'_>) -> Result<Cost> {
        let mut create = self.borg();
        create.arg("create").args(&self.options);
        create.arg(self.archive(version)).arg(version.path);
        Ok(run(&mut create, &self.repository)?.cost)
    }

    fn restore(&mut self, version: Version<'_>, dir: &Path) -> Result<(PathBuf, Cost)> {
        let mut extract = self.borg();
        extract.args(["extract", "--sparse"]).arg(self.archive(version)).current_dir(dir);
        let cost = run(&mut extract, dir)?.cost;
        let inside = version.path.strip_prefix("/").context("absolute path")?;
        Ok((fs::canonicalize(dir)?.join(inside), cost))
    }

    fn repository(&self) -> &Path {
        &self.repository
    }
}
