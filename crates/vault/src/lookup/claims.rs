//! Claims: objects that keep an owner from removing chunks while a backup of another disk, or of its own, adds references
//! to them.
//!
//! A claim covers all containers of one writer: a clone of a disk needs one claim, not one for each container. A
//! backup puts the claim before it looks for a retiring record and reads the owner's manifest. Whoever removes puts the
//! retiring record before it lists claims. So either the remover sees the claim and leaves the container alone, or the
//! backup sees that the container is being looked at, or is already gone.

use crate::base::error::{Result, UnlessDamaged};
use crate::container::dead::read_dead;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::{list_names, Folder};
use crate::manifest::rollback::load_checked;
use crate::manifest::session::Session;
use format::{
    names, ClaimRecord, ContainerEntry, ContainerId, DiskId, Kind, RetiringRecord, RunSet, Token, WriterNo,
};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use store::StoreError;

/// How long a backup waits for a remover to look at containers: most look for milliseconds. Then it does without them.
const REMOVER_WAIT: Duration = Duration::from_secs(1);

/// The claims of one session.
pub(crate) struct Claims {
    /// The disk that is backed up, and the session's writer there.
    folder: Folder,
    writer: WriterNo,
    session: Token,
    /// By owner and writer; `None` where its containers are being looked at for removal, or cannot be read.
    writers: HashMap<(DiskId, WriterNo), Option<Claimable>>,
    asked: HashMap<(DiskId, ContainerId), Option<Claimed>>,
}

/// What an owner's manifest said after the claim was put.
struct Claimable {
    damaged: HashSet<ContainerId>,
    containers: Containers,
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
            asked: HashMap::new(),
        }
    }

    /// Claims a container of an owner, who names it so, once; `None` where it is going or gone.
    pub fn claim(&mut self, owner: DiskId, id: ContainerId) -> Result<Option<&Claimed>> {
        if !self.asked.contains_key(&(owner, id)) {
            let claimed = self.ask(owner, id)?;
            self.asked.insert((owner, id), claimed);
        }
        Ok(self.asked.get(&(owner, id)).and_then(Option::as_ref))
    }

    fn ask(&mut self, owner: DiskId, id: ContainerId) -> Result<Option<Claimed>> {
        let key = (owner, id.writer());
        if !self.writers.contains_key(&key) {
            // The claim is ours to take back whatever comes of asking.
            self.writers.insert(key, None);
            let claimed = self.ask_writer(owner, id.writer()).unless_damaged()?.flatten();
            self.writers.insert(key, claimed);
        }
        let Some(Some(Claimable { damaged, containers })) = self.writers.get(&key) else { return Ok(None) };
        if damaged.contains(&id) {
            return Ok(None);
        }
        let Some(entry) = containers.get(id).unless_damaged()?.flatten() else { return Ok(None) };
        // Where the list is damaged, which chunks may be referenced is not known: a miss costs space only.
        let dead = read_dead(containers.folder(), &entry).unless_damaged()?;
        Ok(dead.map(|dead| Claimed { dead, entry }))
    }

    /// Claims what a writer has made. What is in the manifest from then on stays as it is until the claim ends.
    fn ask_writer(&self, owner: DiskId, writer: WriterNo) -> Result<Option<Claimable>> {
        let folder = self.folder.of(owner);
        // Most hints that lead nowhere lead to a disk that is gone: nothing is left behind for it.
        if folder.load_tagged()?.is_none() {
            return Ok(None);
        }
        let name = names::claim(owner, writer, self.session);
        let frame = ClaimRecord { disk: self.folder.disk, writer: self.writer }.encode(folder.context(&name));
        folder.store.put(&name, &[&frame])?;
        let start = Instant::now();
        while is_retiring(&folder, writer)? {
            if start.elapsed() >= REMOVER_WAIT {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // An older copy of the manifest lists chunks that are gone.
        let m = load_checked(&folder)?.0;
        let damaged = m.damaged.iter().copied().filter(|id| id.writer() == writer).collect();
        Ok(Some(Claimable { damaged, containers: Containers::new(folder, &m) }))
    }
}

/// Whether a living session looks at containers of a writer, to remove what is not referenced.
fn is_retiring(folder: &Folder, writer: WriterNo) -> Result<bool> {
    for name in list_names(&*folder.store, &names::retiring_of(folder.disk))? {
        match folder.store.is_held(&name) {
            Ok(false) => continue,
            Ok(true) | Err(StoreError::Unreadable { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        let record = match folder.store.read(&name, Kind::Retiring.frame_max()) {
            Err(StoreError::NotFound { .. }) => continue,
            read => read.ok().and_then(|bytes| RetiringRecord::decode(folder.context(&name), &bytes).ok()),
        };
        // One that cannot be read may be of any writer.
        if record.is_none_or(|r| r.writers.binary_search(&writer).is_ok()) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Drop for Claims {
    /// As far as it is possible; `gc` removes the claims of dead sessions.
    fn drop(&mut self) {
        for (owner, writer) in self.writers.keys() {
            let _ = self.folder.store.delete(&names::claim(*owner, *writer, self.session));
        }
    }
}
