//! Health: the newest snapshot of each disk, damage that is recorded, space, and which processes change the
//! vault.
//!
//! Manifests are read, objects and sessions are listed. No recipe, container table or chunk is read, so it is
//! fast with a thousand disks. It finds no new damage: [`Vault::verify`] does.

use crate::base::error::{damage_line, fault, Result};
use crate::manifest::disks;
use crate::manifest::listing::{for_each_object, list_names};
use crate::manifest::session::is_alive;
use crate::manifest::snapshots::hold::held_for;
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::{now, Vault};
use crate::report::verifications::{DiskVerification, LastVerifications};
use format::{names, SessionRecord, SnapshotEntry, Token};
use std::collections::HashMap;

const WEEK_SECONDS: i64 = 7 * 86_400;

/// What can be said of a vault cheaply.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// By name; those without snapshots too.
    pub disks: Vec<DiskHealth>,
    /// Damaged names and manifests.
    pub damaged: Vec<String>,
    /// Containers of the popular set that are recorded as damaged.
    pub damaged_popular: u64,
    /// Snapshots that something holds which needs them: no user.
    pub held_for: Vec<HeldFor>,
    /// Sessions whose process lives, oldest first.
    pub sessions: Vec<SessionInfo>,
    /// Bytes of all objects; holes do not count.
    pub stored_bytes: u64,
    /// What the snapshots of the last seven days stored, by their times.
    pub stored_week_bytes: u64,
    /// The same for the seven days before.
    pub stored_week_before_bytes: u64,
    /// Bytes that the store has free; `None` where it has no such limit.
    pub free_bytes: Option<u64>,
}

/// One disk.
#[derive(Clone, Debug)]
pub struct DiskHealth {
    /// `vm/disk`.
    pub name: String,
    /// Snapshots that users see.
    pub snapshots: u64,
    /// The newest of them.
    pub newest: Option<SnapshotEntry>,
    /// How many of them users hold.
    pub held: u64,
    /// Containers that a verification has recorded as damaged.
    pub damaged_containers: u64,
    /// Its last verification.
    pub verified: Option<DiskVerification>,
    /// The last one that read all its chunks.
    pub data_verified: Option<DiskVerification>,
}

/// A snapshot that something holds which needs it.
#[derive(Clone, Debug)]
pub struct HeldFor {
    /// `vm/disk@id`.
    pub snapshot: String,
    /// What needs it.
    pub what: String,
}

/// A process that changes the vault.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// What it does, such as `backup`.
    pub work: String,
    /// The disk that it has locked; `None` where that is not known.
    pub disk: Option<String>,
    /// The name of its host.
    pub host: String,
    /// Its process number there.
    pub process: u32,
    /// Since when, in seconds since 1970.
    pub since: i64,
}

impl Vault {
    /// What can be said of the vault cheaply.
    ///
    /// # Errors
    /// Those that keep it from looking. Damage is in the report.
    pub fn health(&self) -> Result<Health> {
        let mut health = Health::default();
        let last = self.last_verifications();
        let now = now();
        let mut disk_of: HashMap<Token, String> = HashMap::new();
        let (all, nowhere) = disks::all(self)?;
        health.damaged.extend(nowhere.into_iter().map(damage_line));
        for at in all {
            health.damaged.extend(at.name_fault.clone().map(damage_line));
            match disks::unless_gone(self, &at, at.folder.load()) {
                Ok(Some(m)) => {
                    disk_of.extend(m.writers.iter().map(|w| (w.token, at.name.clone())));
                    health.count_weeks(&m, now);
                    health.held_for.extend(HeldFor::of(&at.name, &m));
                    health.disks.push(DiskHealth::of(&at.name, &m, &last));
                }
                Ok(None) => {}
                Err(e) => {
                    let line = damage_line(fault(e)?);
                    if !health.damaged.contains(&line) {
                        health.damaged.push(line);
                    }
                }
            }
        }
        match self.popular().load_tagged() {
            Ok(popular) => health.damaged_popular = popular.map_or(0, |(m, _)| m.damaged.len() as u64),
            Err(e) => health.damaged.push(damage_line(fault(e)?)),
        }
        health.sessions = self.live_sessions(&disk_of)?;
        health.stored_bytes = self.stored_bytes()?;
        health.free_bytes = self.store.free()?;
        Ok(health)
    }

    fn live_sessions(&self, disk_of: &HashMap<Token, String>) -> Result<Vec<SessionInfo>> {
        let mut sessions = Vec::new();
        for object in list_names(&*self.store, names::SESSIONS)? {
            let token =
                object.strip_prefix(names::SESSIONS).and_then(|t| u64::from_str_radix(t, 16).ok()).map(Token);
            let Some(token) = token.filter(|t| names::session(*t) == object) else { continue };
            if !is_alive(&*self.store, token)? {
                continue;
            }
            // It may have ended since; what cannot be read is told by those who need it.
            let Ok(bytes) = self.store.read(&object, 1 << 16) else { continue };
            let Ok(record) = SessionRecord::decode(self.context(&object), &bytes) else { continue };
            let SessionRecord { work, host, process, since } = record;
            let disk = disk_of.get(&token).cloned();
            sessions.push(SessionInfo { work, disk, host, process, since });
        }
        sessions.sort_by_key(|s| (s.since, s.process));
        Ok(sessions)
    }

    /// Bytes of all objects; holes do not count.
    ///
    /// # Errors
    /// If the store cannot be listed.
    pub fn stored_bytes(&self) -> Result<u64> {
        let mut sum = 0;
        for_each_object(&*self.store, "", |e| {
            // Containers alone have holes.
            let is_data = e.name.ends_with(".data");
            let allocated = is_data.then(|| self.store.allocated(&e.name).ok()).flatten();
            sum += allocated.map_or(e.len, |bytes| bytes.min(e.len));
        })?;
        Ok(sum)
    }
}

impl Health {
    /// Adds what the snapshots of a disk stored in the last two weeks.
    fn count_weeks(&mut self, m: &Whole, now: i64) {
        for s in m.live() {
            match now.saturating_sub(s.time).div_euclid(WEEK_SECONDS) {
                0 => self.stored_week_bytes += s.stored_bytes,
                1 => self.stored_week_before_bytes += s.stored_bytes,
                _ => {}
            }
        }
    }
}

impl HeldFor {
    fn of(disk: &str, m: &Whole) -> Vec<HeldFor> {
        let held = m.live().filter_map(|s| Some((s.id, held_for(s)?)));
        held.map(|(id, what)| HeldFor { snapshot: format!("{disk}@{id}"), what: what.into() }).collect()
    }
}

impl DiskHealth {
    fn of(name: &str, m: &Whole, last: &LastVerifications) -> DiskHealth {
        DiskHealth {
            name: name.to_owned(),
            snapshots: m.live().count() as u64,
            newest: m.live().max_by_key(|s| s.time).cloned(),
            held: m.live().filter(|s| s.held && held_for(s).is_none()).count() as u64,
            damaged_containers: m.damaged.len() as u64,
            verified: last.last(m.disk),
            data_verified: last.last_of_data(m.disk),
        }
    }
}
