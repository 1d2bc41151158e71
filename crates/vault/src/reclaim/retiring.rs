//! Looking at containers of a folder to remove what nothing references, while backups of other disks may come to
//! reference it.
//!
//! 1. A session puts a retiring record, which it holds: from now on no backup adds references to these containers.
//! 2. It lists the claims on them, and then the referrer records: a backup whose claim is gone has committed, and put
//!    its record before.
//!
//! A claim whose process is dead no longer counts; but its writer is fenced before.

use crate::base::error::{Result, VaultError};
use crate::base::random::random_token;
use crate::lookup::claims::{claim_state, ClaimState};
use crate::lookup::referrers::referred;
use crate::manifest::folder::Folder;
use crate::manifest::listing::list_names;
use crate::manifest::session::Session;
use format::{names, RetiringRecord, WriterNo};
use std::collections::{BTreeSet, HashSet};
use store::{Lease, StoreError};

/// A look at the containers of some writers. No backup adds references to them as long as it lives.
pub(crate) struct RetiringLease {
    _hold: Box<dyn Lease>,
    claimed: HashSet<WriterNo>,
    referred: HashSet<WriterNo>,
}

impl RetiringLease {
    /// Steps 1 and 2. Writers beyond [`RetiringRecord::WRITERS_MAX`] count as claimed.
    pub fn begin(session: &Session, writers: &BTreeSet<WriterNo>) -> Result<RetiringLease> {
        let folder = &session.folder;
        // A name is used once: a collection that has found its holder gone may delete it later.
        let name = names::retiring(folder.disk, random_token()?);
        let most = RetiringRecord::WRITERS_MAX;
        let record =
            RetiringRecord { session: session.token, writers: writers.iter().copied().take(most).collect() };
        let hold = match folder.store.lease(&name, &record.encode(folder.context(&name))) {
            // Something that is no object stands in its place.
            Err(StoreError::AlreadyExists { object }) => {
                return Err(VaultError::corrupt(&object, "something stands in its place; remove it"));
            }
            hold => hold?,
        };
        let mut claimed = claimed(folder)?;
        claimed.extend(writers.iter().skip(most));
        Ok(RetiringLease { _hold: hold, claimed, referred: referred(folder)? })
    }

    /// Whether a living backup has claimed what a writer made.
    pub fn is_claimed(&self, writer: WriterNo) -> bool {
        self.claimed.contains(&writer)
    }

    /// Whether other disks reference what a writer made, or have done so.
    pub fn is_referred(&self, writer: WriterNo) -> bool {
        self.referred.contains(&writer)
    }

    /// Whether nobody but the owner itself references what a writer made.
    pub fn is_free(&self, writer: WriterNo) -> bool {
        !self.is_claimed(writer) && !self.is_referred(writer)
    }
}

/// The writers of a folder whose containers living backups have claimed.
fn claimed(folder: &Folder) -> Result<HashSet<WriterNo>> {
    let prefix = names::claims_on(folder.disk);
    let mut claimed = HashSet::new();
    for name in list_names(&*folder.store, &prefix)? {
        let parts = name.strip_prefix(&prefix).and_then(|rest| rest.split_once('/'));
        let Some(Ok(writer)) = parts.map(|(writer, _)| writer.parse().map(WriterNo)) else { continue };
        match claim_state(folder, &name)? {
            ClaimState::Over => drop(folder.store.delete(&name)?),
            ClaimState::Counts | ClaimState::Unknown => drop(claimed.insert(writer)),
        }
    }
    Ok(claimed)
}
