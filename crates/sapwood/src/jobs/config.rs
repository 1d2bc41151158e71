//! The configuration file, `sapwood.toml` (docs/config.md has every setting).

use super::schedule::Zone;
use super::settings::{Defaults, Job, OwnSettings};
use crate::system::trust;
use anyhow::Result;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use vault::VaultError;

/// The file that is read if none is named.
pub const DEFAULT_FILE: &str = "/etc/sapwood/sapwood.toml";

/// The longest name of a job: it is the name of a file.
const NAME_BYTES_MAX: usize = 100;

/// What a configuration file says.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file.
    pub path: PathBuf,
    /// The vault where the command line names none.
    pub store: Option<String>,
    /// Where the state of jobs is kept.
    pub state_dir: Option<PathBuf>,
    /// The zone that `[defaults]` names.
    pub zone: Zone,
    /// By name.
    pub jobs: Vec<Job>,
    /// Why somebody else may have written the file, if so.
    untrusted: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    store: Option<String>,
    state_dir: Option<PathBuf>,
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    jobs: BTreeMap<JobName, OwnSettings>,
}

/// A name that a file can have, too.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct JobName(String);

impl<'de> Deserialize<'de> for JobName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let is_sign = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with(['.', '-']);
        if fits && name.chars().all(is_sign) {
            return Ok(JobName(name));
        }
        Err(D::Error::custom(format!(
            "{name:?} is not the name of a job: ASCII letters, digits and . _ -, not beginning with . or -, {NAME_BYTES_MAX} \
             at most"
        )))
    }
}

impl Config {
    /// Reads the file that was named; else the default one, if it exists.
    pub fn find(named: Option<&Path>) -> Result<Option<Config>> {
        let path = named.unwrap_or(Path::new(DEFAULT_FILE));
        match read(path) {
            Ok((text, untrusted)) => Ok(Some(Config { untrusted, ..Config::parse(path, &text)? })),
            Err(e) if e.kind() == ErrorKind::NotFound && named.is_none() => Ok(None),
            Err(e) => {
                let path = path.display();
                Err(VaultError::Usage(format!("{path}: cannot read the configuration: {e}")).into())
            }
        }
    }

    /// Refuses commands (`before`, `after`) that somebody else may have written: they run with the rights of this process.
    ///
    /// # Errors
    /// `Refused` with what to change.
    pub fn check_commands(&self) -> Result<()> {
        match &self.untrusted {
            Some(why) if self.jobs.iter().any(Job::has_commands) => {
                let why = format!(
                    "{}: has commands (before, after), and {why}; nothing was run",
                    self.path.display()
                );
                Err(VaultError::Refused(why).into())
            }
            _ => Ok(()),
        }
    }

    /// The same, where a command needs one.
    pub fn need(named: Option<&Path>) -> Result<Config> {
        let missing = || {
            let why = format!("which jobs? Give --config FILE, set SAPWOOD_CONFIG, or make {DEFAULT_FILE}");
            VaultError::Usage(why)
        };
        Ok(Config::find(named)?.ok_or_else(missing)?)
    }

    /// What a text says.
    ///
    /// # Errors
    /// `Usage` with file, line, key, and what is allowed.
    pub fn parse(path: &Path, text: &str) -> Result<Config> {
        let written: Written = toml::from_str(text).map_err(|e| {
            let place = e.span().map(|at| place(text, at)).unwrap_or_default();
            let why = e.message().trim_end().replace('\n', ", ");
            VaultError::Usage(format!("{}{place}: {why}", path.display()))
        })?;
        let absolute = |dir: &PathBuf| dir.is_absolute();
        if let Some(dir) = written.state_dir.as_ref().filter(|dir| !absolute(dir)) {
            let why = format!("{}, state_dir: {} must begin with /", path.display(), dir.display());
            return Err(VaultError::Usage(why).into());
        }
        let defaults = written.defaults;
        let jobs: Vec<Job> =
            written.jobs.into_iter().map(|(name, own)| Job::new(name.0, own, &defaults)).collect();
        if let Some((job, why)) = jobs.iter().find_map(|job| Some((job, job.check().err()?))) {
            return Err(VaultError::Usage(format!("{}, job {}: {why}", path.display(), job.name)).into());
        }
        let (store, state_dir) = (written.store, written.state_dir);
        let (path, zone) = (path.to_owned(), defaults.zone());
        Ok(Config { path, store, state_dir, zone, jobs, untrusted: None })
    }

    /// The jobs of these names; all without names.
    pub fn named(&self, names: &[String]) -> Result<Vec<&Job>> {
        if let Some(unknown) = names.iter().find(|n| !self.jobs.iter().any(|j| j.name == **n)) {
            let all: Vec<&str> = self.jobs.iter().map(|j| j.name.as_str()).collect();
            let path = self.path.display();
            let why = format!("{unknown}: {path} has no such job; it has: {}", all.join(", "));
            return Err(VaultError::Usage(why).into());
        }
        Ok(self.jobs.iter().filter(|j| names.is_empty() || names.contains(&j.name)).collect())
    }
}

/// The text of a file, and why somebody else may have written it.
fn read(path: &Path) -> std::io::Result<(String, Option<String>)> {
    let mut file = std::fs::File::open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((text, trust::doubt(&file, path)?))
}

/// `, line 3, jobs.web.schedule`: where something is wrong.
fn place(text: &str, at: Range<usize>) -> String {
    let line = 1 + text.as_bytes()[..at.start.min(text.len())].iter().filter(|b| **b == b'\n').count();
    let key = DeTable::parse(text).ok().and_then(|table| key_at(table.get_ref(), at.start));
    let key = key.map(|key| format!(", {key}")).unwrap_or_default();
    format!(", line {line}{key}")
}

/// The key of what begins at a position.
fn key_at(table: &DeTable<'_>, at: usize) -> Option<String> {
    let quoted = |key: &str| if key.contains(['/', '.', ' ']) { format!("{key:?}") } else { key.to_owned() };
    table.iter().find_map(|(key, value)| {
        let name = quoted(key.get_ref());
        if let DeValue::Table(below) = value.get_ref() {
            if let Some(rest) = key_at(below, at) {
                return Some(format!("{name}.{rest}"));
            }
        }
        (key.span().contains(&at) || value.span().contains(&at)).then_some(name)
    })
}
