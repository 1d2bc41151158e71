//! Puts manifests again that are lost, damaged or rolled back: as the newest commit record has them.
//!
//! What sessions have changed since that record was put is lost: they died before they ended, and nothing of it was
//! acknowledged. All that the newest record names is there ([`crate::reclaim::released`]); where that one is lost as well, an
//! older one is better than none.

use crate::base::error::{fault, Result, UnlessDamaged, VaultError};
use crate::manifest::folder::Folder;
use crate::manifest::rollback::{read_record, record, Evidence};
use format::{Manifest, Sequence, WriterNo};
use std::sync::Arc;
use store::StoreError;

/// Puts the manifest of a folder again, if that is necessary. Returns whether it was, and could be done.
pub(super) fn put_back(folder: &Folder) -> Result<bool> {
    let evidence = Evidence::of_folder(folder)?;
    let current = match folder.load_tagged() {
        Ok(Some((m, _))) => match evidence.check(folder, &m) {
            Err(VaultError::RolledBack { .. }) => Some(m),
            checked => return checked.map(|()| false),
        },
        Ok(None) => None,
        Err(VaultError::Corrupt { .. }) => None,
        // One that a newer program has written stays.
        Err(e) => return fault(e).map(|_| false),
    };
    let mut copy = None;
    for sequence in evidence.commits() {
        // One that names pages which are gone would have none of the snapshots in them.
        let read = read_record(folder, sequence).and_then(|m| folder.whole(Arc::new(m)));
        copy = read.unless_unreadable()?;
        if copy.is_some() {
            break;
        }
    }
    // An older manifest is better than an even older copy.
    let Some(copy) = copy.filter(|copy| current.as_ref().is_none_or(|m| m.sequence < copy.sequence)) else {
        return Ok(false);
    };
    let mut m = Manifest::clone(copy.root());
    // Also above that of records which cannot be read.
    let seen = evidence.commits().into_iter().chain(current.map(|current| current.sequence));
    let newest = seen.fold(m.sequence, Sequence::max);
    m.sequence = Sequence(newest.0.saturating_add(1));
    if let Some(highest) = evidence.highest_writer() {
        m.next_writer = m.next_writer.max(WriterNo(highest.0.saturating_add(1)));
    }
    let name = folder.manifest_name();
    // What stands there instead, say a directory, may be nothing that can be replaced.
    let Ok(damaged) = folder.store.load(&name) else { return Ok(false) };
    match folder.store.swap(&name, damaged.map(|(_, tag)| tag), &m.encode(folder.context(&name))) {
        Ok(_) => {}
        // Somebody else has put one.
        Err(StoreError::Conflict { .. }) => return Ok(false),
        Err(e) => return Err(e.into()),
    }
    record(folder, &m, &evidence);
    Ok(true)
}
