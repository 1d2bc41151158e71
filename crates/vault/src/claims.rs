//! Claims: what keeps a shared container from being removed while a session takes chunks from it.
//!
//! The claim is durable before the retiring record and the manifest are looked at; a remover puts the retiring
//! record before it looks for claims. So either the remover sees the claim and lets the container be, or the
//! session sees that it is retiring, or gone already.

use crate::dead::read_dead;
use crate::error::Result;
use crate::folder::{Containers, Folder};
use format::{encode_frame, names, ContainerEntry, ContainerId, Kind, RunSet, SnapId};
use std::collections::HashMap;
use store::StoreError;

/// The claims of one session.
pub(crate) struct Claims {
    folder: Folder,
    session: SnapId,
    asked: HashMap<ContainerId, Option<Claimed>>,
}

/// A shared container that may be referenced until the session has committed.
pub(crate) struct Claimed {
    pub entry: ContainerEntry,
    /// Chunks of it that may not.
    pub dead: RunSet,
}

impl Claims {
    pub fn new(folder: Folder, session: SnapId) -> Self {
        Claims { folder, session, asked: HashMap::new() }
    }

    /// Claims a container, once; `None` where it is going or gone.
    pub fn claim(&mut self, id: ContainerId) -> Result<Option<&Claimed>> {
        if !self.asked.contains_key(&id) {
            let claimed = self.ask(id)?;
            self.asked.insert(id, claimed);
        }
        Ok(self.asked.get(&id).and_then(Option::as_ref))
    }

    fn ask(&self, id: ContainerId) -> Result<Option<Claimed>> {
        let name = names::claim(id, self.session);
        let frame = encode_frame(Kind::Claim, self.folder.context(&name), b"");
        self.folder.store.put(&name, &[&frame])?;
        match self.folder.store.len(&names::retiring(id)) {
            Err(StoreError::NotFound { .. }) => {}
            Ok(_) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        let manifest = self.folder.load()?;
        if manifest.damaged.contains(&id) {
            return Ok(None);
        }
        let Some(entry) = Containers::new(self.folder.clone(), &manifest).get(id)? else { return Ok(None) };
        match read_dead(&self.folder, &entry) {
            Ok(dead) => Ok(Some(Claimed { dead, entry })),
            // Which chunks may be referenced is not known: a miss costs space only.
            Err(e) if e.is_damage() => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Claims {
    /// As far as it is possible; `gc` removes the claims of dead sessions.
    fn drop(&mut self) {
        for id in self.asked.keys() {
            let _ = self.folder.store.delete(&names::claim(*id, self.session));
        }
    }
}
