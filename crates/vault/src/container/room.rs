//! Checks that the store has room for what a session still has to write.

use crate::base::error::Result;
use crate::manifest::session::Session;
use format::CONTAINERS_PER_PAGE;
use store::StoreError;

/// Room that backups leave on the store, so that deletion and collection work on a full one: so much, and for each of
/// the owner's containers what a list of dead chunks usually takes. What other disks need is not counted.
const RESERVE_BYTES: u64 = 8 << 20;

const RESERVE_BYTES_OF_CONTAINER: u64 = 4096;

/// Whether there is room for so many bytes more, after `made` new containers.
pub(crate) fn check_room(session: &Session, made: usize, bytes: u64) -> Result<()> {
    let store = &session.folder.store;
    // All pages but the last one are full, more or less.
    let before = session.manifest.pages.len().saturating_sub(1) * CONTAINERS_PER_PAGE;
    let reserve_bytes = RESERVE_BYTES + (before + made) as u64 * RESERVE_BYTES_OF_CONTAINER;
    match store.free()? {
        Some(free) if free < reserve_bytes + bytes => {
            let object = format!("{}containers", session.folder.path);
            Err(StoreError::Full { object, location: store.location() }.into())
        }
        _ => Ok(()),
    }
}
