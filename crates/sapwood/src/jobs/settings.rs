//! What a job is: its own settings, and those that all jobs share where it has none.

use super::schedule::{Schedule, Zone};
use super::source::{DiskSource, Disks};
use super::values::{Codec, Level, PolicyName, Rate, Rules, Seconds, Tags, Timeout, Verify};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use vault::RetentionRules;

/// How late a run may be before its job is overdue, unless the job says otherwise: seconds.
const OVERDUE_AFTER: u64 = 3600;

/// How long `before` and `after` may run, unless the job says otherwise: seconds.
const COMMAND_TIMEOUT: u64 = 3600;

/// The settings of a section, `[defaults]` or `[jobs.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    disks: Option<Disks>,
    store: Option<String>,
    schedule: Option<Schedule>,
    zone: Option<Zone>,
    limit: Option<Rate>,
    copy_to: Option<String>,
    retain: Option<Rules>,
    verify: Option<Verify>,
    gc: Option<bool>,
    recompress: Option<Level>,
    recompress_for: Option<Timeout>,
    tags: Tags,
    before: Option<String>,
    after: Option<String>,
    command_timeout: Option<Timeout>,
    warn_age: Option<Seconds>,
    overdue_after: Option<Seconds>,
    policy: Option<PolicyName>,
    isolate: Option<bool>,
    codec: Option<Codec>,
    scratch: Option<PathBuf>,
    pool: Option<PathBuf>,
}

impl Settings {
    /// Whether they say what is to be done to disks that are in a vault already.
    fn is_upkeep(&self) -> bool {
        let verifies = self.verify.is_some_and(|verify| verify != Verify::No);
        verifies
            || self.gc == Some(true)
            || self.retain.is_some()
            || self.recompress.is_some()
            || self.copy_to.is_some()
    }

    fn without_upkeep(self) -> Settings {
        Settings { retain: None, copy_to: None, verify: None, gc: None, recompress: None, ..self }
    }

    /// One that is about backups.
    fn of_backups(&self) -> Option<&'static str> {
        let all = [
            ("limit", self.limit.is_some()),
            ("tags", !self.tags.0.is_empty()),
            ("warn_age", self.warn_age.is_some()),
            ("policy", self.policy.is_some()),
            ("isolate", self.isolate.is_some()),
            ("codec", self.codec.is_some()),
            ("scratch", self.scratch.is_some()),
            ("pool", self.pool.is_some()),
        ];
        all.into_iter().find_map(|(name, is_set)| is_set.then_some(name))
    }
}

/// `[defaults]`: anything but disks and a store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Settings")]
pub(super) struct Defaults(Settings);

impl TryFrom<Settings> for Defaults {
    type Error = &'static str;

    fn try_from(settings: Settings) -> Result<Self, Self::Error> {
        match (&settings.disks, &settings.store) {
            (Some(_), _) => Err("disks are for a job; put them below [jobs.NAME.disks]"),
            (_, Some(_)) => Err("the vault of all jobs is the store at the top of the file"),
            (None, None) => Ok(Defaults(settings)),
        }
    }
}

impl Defaults {
    /// The zone of jobs that name none.
    pub(super) fn zone(&self) -> Zone {
        self.0.zone.clone().unwrap_or_default()
    }
}

/// `[jobs.NAME]`: with disks.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Settings")]
pub(super) struct OwnSettings(Settings, Disks);

impl TryFrom<Settings> for OwnSettings {
    type Error = String;

    fn try_from(mut settings: Settings) -> Result<Self, Self::Error> {
        let disks = settings.disks.take();
        let disks = disks.ok_or(
            "has no disks; add a table like disks = { \"web01/vda\" = \"/images/web01.qcow2\" }, or disks = \"all\" to \
             look after what the vault has",
        )?;
        match (&disks, settings.of_backups()) {
            (Disks::From(_), _) if settings.store.is_some() => {
                Err("a store is for a job with disks = \"all\": backups go to that of the file".into())
            }
            (Disks::AllThere, _) if !settings.is_upkeep() => {
                Err("has nothing to do with all disks: add verify, gc, retain, recompress or copy_to".into())
            }
            (Disks::AllThere, Some(name)) => {
                Err(format!("backs up nothing with disks = \"all\", so {name} is of no use"))
            }
            _ => Ok(OwnSettings(settings, disks)),
        }
    }
}

/// A job with all its settings.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Disks and machines, and where they are read. None where it looks after all disks that the vault has.
    pub disks: Vec<(String, DiskSource)>,
    /// The vault, if it is another one than that of the file.
    pub store: Option<String>,
    /// When it is due; a job without one runs only when it is named.
    pub schedule: Option<Schedule>,
    /// The zone of the schedule, and of the periods of `retain`.
    pub zone: Zone,
    /// Bytes a second.
    pub limit: Option<u64>,
    /// Another vault, to which the snapshots of the job's disks are copied.
    pub copy_to: Option<String>,
    /// Which snapshots stay; all without rules.
    pub retain: Option<RetentionRules>,
    /// What is verified after the backups.
    pub verify: Verify,
    /// Whether the vault is collected at the end.
    pub gc: bool,
    /// The level at which the job's disks are compressed again.
    pub recompress: Option<u8>,
    /// How long that may take in one run.
    pub recompress_for: Option<Duration>,
    /// Tags of each snapshot.
    pub tags: Vec<(String, String)>,
    /// A shell command that runs first.
    pub before: Option<String>,
    /// A shell command that runs last, whatever happened.
    pub after: Option<String>,
    /// How long each of both may run.
    pub command_timeout: Duration,
    /// The age of a disk's newest snapshot, in seconds, from which `status` warns.
    pub warn_age: Option<u64>,
    /// How late a run may be before `status` warns, in seconds.
    pub overdue_after: u64,
    /// `--policy`
    pub policy: Option<String>,
    /// `--isolate`
    pub isolate: bool,
    /// `--codec`
    pub codec: Option<String>,
    /// `--scratch`
    pub scratch: Option<PathBuf>,
    /// `--pool`
    pub pool: Option<PathBuf>,
}

impl Job {
    /// Whether its settings fit together.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.recompress_for.is_some() && self.recompress.is_none() {
            return Err("recompress_for needs recompress = LEVEL (1 to 19)".into());
        }
        let is_place = |url: &&String| url.starts_with('/') || url.starts_with("file:///");
        if let Some(store) = self.store.as_ref().filter(|url| !is_place(url)) {
            return Err(format!("store: {store:?} must begin with / or file:///"));
        }
        match &self.pool {
            Some(pool) if !pool.is_absolute() => Err(format!("pool: {:?} must begin with /", pool.display())),
            None if self.disks.iter().any(|(_, from)| from.is_volume()) => {
                Err("has a volume: add pool = \"/path/of/the/pool\"".into())
            }
            _ => Ok(()),
        }
    }

    /// Whether it backs up nothing, but looks after all disks that its vault has.
    pub fn is_upkeep(&self) -> bool {
        self.disks.is_empty()
    }

    /// Whether it runs commands that the configuration names.
    pub fn has_commands(&self) -> bool {
        self.before.is_some() || self.after.is_some()
    }

    /// A job's own settings, and the defaults where it has none. Tags of both count.
    pub(super) fn new(name: String, own: OwnSettings, defaults: &Defaults) -> Job {
        let (OwnSettings(own, disks), defaults) = (own, defaults.0.clone());
        let (disks, defaults) = match disks {
            Disks::From(disks) => (disks, defaults),
            // What jobs do to their own disks is not meant for all that the vault has.
            Disks::AllThere => (Vec::new(), defaults.without_upkeep()),
        };
        let mut tags = defaults.tags.0;
        tags.extend(own.tags.0);
        let recompress = own.recompress.or(defaults.recompress).map(|level| level.0);
        // That of the defaults is for those jobs that compress again.
        let recompress_for = own.recompress_for.or(defaults.recompress_for.filter(|_| recompress.is_some()));
        let overdue_after = own.overdue_after.or(defaults.overdue_after).map_or(OVERDUE_AFTER, |s| s.0);
        let command_timeout =
            own.command_timeout.or(defaults.command_timeout).map_or(COMMAND_TIMEOUT, |s| s.0);
        Job {
            name,
            disks,
            store: own.store,
            schedule: own.schedule.or(defaults.schedule),
            zone: own.zone.or(defaults.zone).unwrap_or_default(),
            limit: own.limit.or(defaults.limit).map(|r| r.0),
            copy_to: own.copy_to.or(defaults.copy_to),
            retain: own.retain.or(defaults.retain).map(|r| r.0),
            verify: own.verify.or(defaults.verify).unwrap_or_default(),
            gc: own.gc.or(defaults.gc).unwrap_or_default(),
            recompress,
            recompress_for: recompress_for.map(|limit| Duration::from_secs(limit.0)),
            tags: tags.into_iter().collect(),
            before: own.before.or(defaults.before),
            after: own.after.or(defaults.after),
            command_timeout: Duration::from_secs(command_timeout),
            warn_age: own.warn_age.or(defaults.warn_age).map(|s| s.0),
            overdue_after,
            policy: own.policy.or(defaults.policy).map(|p| p.0),
            isolate: own.isolate.or(defaults.isolate).unwrap_or_default(),
            codec: own.codec.or(defaults.codec).map(|c| c.0),
            scratch: own.scratch.or(defaults.scratch),
            pool: own.pool.or(defaults.pool),
        }
    }
}
