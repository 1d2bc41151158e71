//! Claims: objects that keep an owner from removing chunks while a backup of another disk, or of its own, adds references
//! to them.
//!
//! A claim covers all containers of one writer: a clone of a disk needs one claim, not one for each container. A
//! backup puts the claim before it looks for a retiring record and reads the owner's manifest. A remover puts the
//! retiring record before it lists claims. So either the remover sees the claim and leaves the container alone, or the
//! backup sees that the container is being looked at, or is already gone.

use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::base::lru::Lru;
use crate::container::dead::read_dead;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::listing::list_names;
use crate::manifest::rollback::load_checked;
use crate::manifest::session::{fence, fence_dead_maintenance, is_alive, Session};
use format::{
    names, ClaimRecord, ContainerEntry, ContainerId, DiskId, Kind, RetiringRecord, RunSet, Token, WriterNo,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::StoreError;

/// How long a backup waits for a remover to look at containers: most look for milliseconds. Then it does without them for
/// [`ASK_AGAIN`].
const REMOVER_WAIT: Duration = Duration::from_secs(1);
/// After so long a backup asks again for containers that were being looked at.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Memory for what manifests said of the writers that were claimed last, in bytes, but for one of which they say more. Most
/// say a few hundred bytes.
const CLAIMABLE_BYTES: usize = 8 << 20;
/// What one takes beside its lists, in bytes, about.
const SLOT_BYTES: usize = 192;

/// The claims of one session.
pub(crate) struct Claims {
    /// The disk that is backed up, and the session's writer there.
    folder: Folder,
    writer: WriterNo,
    session: Token,
    /// By owner and writer.
    writers: HashMap<(DiskId, WriterNo), Asked>,
    claimable: Lru<(DiskId, WriterNo), Arc<Claimable>>,
    /// Owners for whose remover it has waited in vain, and until when it does not wait again.
    waited: HashMap<DiskId, Instant>,
}

/// What became of a claim on what a writer has made.
enum Asked {
    /// It may be referenced.
    Claimed,
    /// Somebody is looking at it, to remove what is not referenced.
    Retiring { until: Instant },
    /// It is gone, or cannot be read.
    Gone,
}

/// What an owner's manifest said of the containers of a writer after the claim was put.
struct Claimable {
    /// In order.
    damaged: Box<[ContainerId]>,
    containers: Containers,
}

impl Claimable {
    /// Memory that it takes, in bytes.
    fn memory_bytes(&self) -> usize {
        self.containers.memory_bytes() + size_of_val(&self.damaged[..]) + SLOT_BYTES
    }
}

/// The answer to a claim.
pub(crate) enum Claim {
    /// It may be referenced.
    Held(Claimed),
    /// It may not, as long as somebody looks at it.
    Later,
    /// It may not.
    Gone,
}

/// A container that may be referenced until the session has committed.
pub(crate) struct Claimed {
    /// As its owner names it.
    pub entry: ContainerEntry,
    /// Chunks of it that may not.
    pub dead: RunSet,
}

impl Claims {
    /// No claims yet: those of a backup.
    pub fn new(session: &Session) -> Self {
        Claims {
            folder: session.folder.clone(),
            writer: session.writer,
            session: session.token,
            writers: HashMap::new(),
            claimable: Lru::new(CLAIMABLE_BYTES),
            waited: HashMap::new(),
        }
    }

    /// Claims a container of an owner, who names it so.
    pub fn claim(&mut self, owner: DiskId, id: ContainerId) -> Result<Claim> {
        let key = (owner, id.writer());
        match self.writers.get(&key) {
            Some(Asked::Retiring { until }) if Instant::now() < *until => return Ok(Claim::Later),
            Some(Asked::Claimed | Asked::Gone) => {}
            Some(Asked::Retiring { .. }) | None => self.ask(key)?,
        }
        match self.read(key, id) {
            // A change of the owner has replaced what its manifest named. What is claimed is in the new one, too.
            Err(VaultError::Missing { .. }) => {
                self.ask(key)?;
                Ok(self.read(key, id).unless_damaged()?.unwrap_or(Claim::Gone))
            }
            claim => Ok(claim.unless_damaged()?.unwrap_or(Claim::Gone)),
        }
    }

    /// Asks the owner anew for what it says of a container: what it said leads nowhere any more.
    pub fn ask_again(&mut self, owner: DiskId, id: ContainerId) -> Result<()> {
        self.ask((owner, id.writer()))
    }

    /// What an owner says of a container. Where its list of dead chunks is damaged, which chunks may be referenced is not
    /// known: a miss costs space only.
    fn read(&mut self, key: (DiskId, WriterNo), id: ContainerId) -> Result<Claim> {
        let claimable = match self.claimable.get(&key) {
            // What was said has gone out of memory, not what was claimed.
            None if matches!(self.writers.get(&key), Some(Asked::Claimed)) => {
                self.ask(key)?;
                self.claimable.get(&key)
            }
            known => known,
        };
        let claimable = match (self.writers.get(&key), claimable) {
            (Some(Asked::Claimed), Some(claimable)) => claimable,
            (Some(Asked::Retiring { .. }), _) => return Ok(Claim::Later),
            _ => return Ok(Claim::Gone),
        };
        let Claimable { damaged, containers } = &*claimable;
        if damaged.binary_search(&id).is_ok() {
            return Ok(Claim::Gone);
        }
        // Of one that a repair has listed anew it is not known which chunks have been freed.
        let Some(entry) = containers.get(id)?.filter(|entry| !entry.is_rebuilt()) else {
            return Ok(Claim::Gone);
        };
        Ok(Claim::Held(Claimed { dead: read_dead(containers.folder(), &entry)?, entry }))
    }

    fn ask(&mut self, key: (DiskId, WriterNo)) -> Result<()> {
        // The claim is ours to take back whatever comes of asking.
        self.writers.insert(key, Asked::Gone);
        self.claimable.remove_all(|known| *known == key);
        let asked = self.ask_writer(key.0, key.1).unless_damaged()?.unwrap_or(Asked::Gone);
        self.writers.insert(key, asked);
        Ok(())
    }

    /// Claims what a writer has made. What is in the manifest from then on stays as it is until the claim ends.
    fn ask_writer(&mut self, owner: DiskId, writer: WriterNo) -> Result<Asked> {
        let folder = self.folder.of(owner);
        // Most hints that lead nowhere lead to a disk that is gone: nothing is left behind for it.
        if folder.load_tagged()?.is_none() {
            return Ok(Asked::Gone);
        }
        let name = names::claim(owner, writer, self.session);
        let frame = ClaimRecord { disk: self.folder.disk, writer: self.writer }.encode(folder.context(&name));
        match folder.store.put(&name, &[&frame]) {
            // Asked for before.
            Ok(()) | Err(StoreError::AlreadyExists { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        let start = Instant::now();
        let waits = self.waited.get(&owner).is_none_or(|until| *until <= start);
        while is_retiring(&folder, writer)? {
            if !waits || start.elapsed() >= REMOVER_WAIT {
                let until = Instant::now() + ASK_AGAIN;
                if waits {
                    self.waited.insert(owner, until);
                }
                return Ok(Asked::Retiring { until });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // An older copy of the manifest lists chunks that are gone.
        let m = load_checked(&folder)?.0;
        let mut damaged: Box<[ContainerId]> =
            m.damaged.iter().copied().filter(|id| id.writer() == writer).collect();
        damaged.sort_unstable();
        let containers = Containers::of_writer(folder, &m, writer);
        let claimable = Claimable { damaged, containers };
        let bytes = claimable.memory_bytes();
        self.claimable.insert((owner, writer), Arc::new(claimable), bytes);
        Ok(Asked::Claimed)
    }
}

/// Whether a session that may still commit looks at containers of a writer, to remove what is not referenced. One that is
/// dead is fenced: only then is its record passed over.
fn is_retiring(folder: &Folder, writer: WriterNo) -> Result<bool> {
    for name in list_names(&*folder.store, &names::retiring_of(folder.disk))? {
        let is_of_others = |r: &Option<RetiringRecord>| {
            r.as_ref().is_some_and(|r| r.writers.binary_search(&writer).is_err())
        };
        match read_retiring(folder, &name)? {
            Retiring::Gone => {}
            Retiring::Held(record) | Retiring::Left(record) if is_of_others(&record) => {}
            Retiring::Held(_) => return Ok(true),
            Retiring::Left(record) => match is_over(folder, record.as_ref()) {
                Ok(true) => {}
                // Where nobody can be fenced for want of room, it counts.
                Err(e) if !e.is_full() => return Err(e),
                _ => return Ok(true),
            },
        }
    }
    Ok(false)
}

/// A retiring record; none if it cannot be read: then it may be of any writer.
enum Retiring {
    /// Its lease is held.
    Held(Option<RetiringRecord>),
    /// It is not.
    Left(Option<RetiringRecord>),
    Gone,
}

fn read_retiring(folder: &Folder, name: &str) -> Result<Retiring> {
    let is_held = match folder.store.is_leased(name) {
        Ok(held) => held,
        Err(StoreError::Unreadable { .. }) => true,
        Err(e) => return Err(e.into()),
    };
    let record = match folder.store.read(name, Kind::Retiring.frame_max()) {
        Err(StoreError::NotFound { .. }) => return Ok(Retiring::Gone),
        read => read.ok().and_then(|bytes| RetiringRecord::decode(folder.context(name), &bytes).ok()),
    };
    Ok(if is_held { Retiring::Held(record) } else { Retiring::Left(record) })
}

/// Whether the session that has left a record can no longer commit: it is dead, and has been fenced. Where nobody knows whose
/// record it is, it may be of any maintenance.
fn is_over(folder: &Folder, left: Option<&RetiringRecord>) -> Result<bool> {
    match left {
        Some(record) if is_alive(&*folder.store, record.session)? => Ok(false),
        Some(record) => fence(folder, record.session).map(|()| true),
        None => fence_dead_maintenance(folder).map(|is_maintained| !is_maintained),
    }
}

/// Whether a retiring record of a folder no longer counts, so that it may be removed by others than its session.
pub(crate) fn is_left_behind(folder: &Folder, name: &str) -> Result<bool> {
    match read_retiring(folder, name)? {
        Retiring::Gone | Retiring::Held(_) => Ok(false),
        Retiring::Left(record) => is_over(folder, record.as_ref()),
    }
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimState {
    /// Its backup may still commit, or cannot be fenced.
    Counts,
    /// Its backup was dead, and has been fenced.
    Over,
    /// Its session is dead, but it cannot be read: it counts until all dead writers of the vault are fenced.
    Unknown,
}

/// Looks whether the backup of a claim may still commit. One that is dead is fenced: only then is its claim passed over.
pub(crate) fn claim_state(folder: &Folder, claim: &str) -> Result<ClaimState> {
    let session = claim.rsplit('/').next().unwrap_or_default();
    match folder.store.is_leased(&format!("{}{session}", names::SESSIONS)) {
        Ok(false) => {}
        // A session that cannot be read may live.
        Ok(true) | Err(StoreError::Unreadable { .. }) => return Ok(ClaimState::Counts),
        Err(e) => return Err(e.into()),
    }
    // No session is called so.
    let Ok(token) = u64::from_str_radix(session, 16).map(Token) else { return Ok(ClaimState::Over) };
    let record = match folder.store.read(claim, Kind::Claim.frame_max()) {
        Err(StoreError::NotFound { .. }) => return Ok(ClaimState::Over),
        read => read.ok().and_then(|bytes| ClaimRecord::decode(folder.context(claim), &bytes).ok()),
    };
    let Some(record) = record else { return Ok(ClaimState::Unknown) };
    let fenced = fence(&folder.of(record.disk).with_reserve(folder.reserve), token);
    // Where a manifest is damaged or was rolled back, nobody changes it.
    Ok(fenced.unless_damaged()?.map_or(ClaimState::Counts, |()| ClaimState::Over))
}

impl Drop for Claims {
    /// As far as it is possible; `gc` removes the claims of dead sessions.
    fn drop(&mut self) {
        for (owner, writer) in self.writers.keys() {
            let _ = self.folder.store.delete(&names::claim(*owner, *writer, self.session));
        }
    }
}
