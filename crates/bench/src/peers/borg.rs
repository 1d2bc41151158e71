//! BorgBackup: content-defined chunks of about 2 MiB, encryption off.

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
    /// As borg spells it; none is borg's own default, lz4.
    codec: Option<String>,
}

impl Borg {
    /// With its repository, cache and settings under `home`.
    pub fn new(name: &str, home: PathBuf, codec: Option<String>) -> Self {
        let repository = home.join("repository");
        Self { name: name.to_owned(), home, repository, codec }
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
        let codec = self.codec.as_ref();
        let option = codec.map_or_else(String::new, |codec| format!(" --compression {codec}"));
        Ok(Description {
            name: self.name.clone(),
            role: Role::Peer,
            version: first_line(self.borg().arg("--version"))?,
            backup: format!("borg create{option} REPOSITORY::ARCHIVE FILE"),
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
        create.arg("create");
        if let Some(codec) = &self.codec {
            create.args(["--compression", codec]);
        }
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
