//! Claims: objects that keep the sweep from removing chunks of a shared container while a session adds references to
//! them.
//!
//! A claim covers all containers of one writer: a clone of a disk needs one claim, not one for each container. A
//! session makes the claim durable before it looks for a retiring record and reads the manifest. The sweep puts the
//! retiring record before it lists claims. So either the sweep sees the claim and leaves the container alone, or the
//! session sees that the container is being swept or is already gone.

use crate::base::error::Result;
use crate::base::error::UnlessDamaged;
use crate::container::dead::read_dead;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use format::Token;
use format::{encode_mark, names, ContainerEntry, ContainerId, Kind, RunSet, WriterNo};
use std::collections::HashMap;
use store::StoreError;

/// The claims of one session.
pub(crate) struct Claims {
    folder: Folder,
    session: Token,
    /// By writer; `None` where its containers are being looked at for removal.
    writers: HashMap<WriterNo, Option<(Vec<ContainerId>, Containers)>>,
    asked: HashMap<ContainerId, Option<Claimed>>,
}

/// A shared container that may be referenced until the session has committed.
pub(crate) struct Claimed {
    pub entry: ContainerEntry,
    /// Chunks of it that may not.
    pub dead: RunSet,
}

impl Claims {
    /// No claims yet: those of a session on containers of a folder.
    pub fn new(folder: Folder, session: Token) -> Self {
        Claims { folder, session, writers: HashMap::new(), asked: HashMap::new() }
    }

    /// Claims a container, once; `None` where it is going or gone.
    pub fn claim(&mut self, id: ContainerId) -> Result<Option<&Claimed>> {
        if !self.asked.contains_key(&id) {
            let claimed = self.ask(id)?;
            self.asked.insert(id, claimed);
        }
        Ok(self.asked.get(&id).and_then(Option::as_ref))
    }

    fn ask(&mut self, id: ContainerId) -> Result<Option<Claimed>> {
        if !self.writers.contains_key(&id.writer()) {
            // The claim is ours to take back whatever comes of asking.
            self.writers.insert(id.writer(), None);
            match self.ask_writer(id.writer()) {
                Err(e) if e.is_damage() => {}
                claimed => drop(self.writers.insert(id.writer(), claimed?)),
            }
        }
        let Some(Some((damaged, containers))) = self.writers.get(&id.writer()) else { return Ok(None) };
        if damaged.contains(&id) {
            return Ok(None);
        }
        let Some(entry) = containers.get(id).unless_damaged()?.flatten() else { return Ok(None) };
        // Where the list is damaged, which chunks may be referenced is not known: a miss costs space only.
        let dead = read_dead(&self.folder, &entry).unless_damaged()?;
        Ok(dead.map(|dead| Claimed { dead, entry }))
    }
}

impl Claims {
    /// Claims what a writer has made. What is in the manifest from then on stays as it is until the claim ends.
    fn ask_writer(&self, writer: WriterNo) -> Result<Option<(Vec<ContainerId>, Containers)>> {
        let name = names::claim(self.folder.owner, writer, self.session);
        let frame = encode_mark(Kind::Claim, self.folder.context(&name));
        self.folder.store.put(&name, &[&frame])?;
        match self.folder.store.len(&names::retiring(self.folder.owner, writer)) {
            Err(StoreError::NotFound { .. }) => {}
            Ok(_) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        let manifest = self.folder.load()?;
        Ok(Some((manifest.damaged.clone(), Containers::new(self.folder.clone(), &manifest))))
    }
}

impl Drop for Claims {
    /// As far as it is possible; `gc` removes the claims of dead sessions.
    fn drop(&mut self) {
        for writer in self.writers.keys() {
            let _ = self.folder.store.delete(&names::claim(self.folder.owner, *writer, self.session));
        }
    }
}
