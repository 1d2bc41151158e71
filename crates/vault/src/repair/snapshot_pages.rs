//! Puts pages of snapshots again one of whose two objects is damaged.

use crate::base::error::{Result, UnlessDamaged, VaultError};
use crate::manifest::session::Session;
use crate::manifest::snapshots::pages::names_of;
use format::SnapshotPageRef;

/// Puts new pages with the same snapshots. Those of which neither object can be read stay as they are. Returns how many.
pub(super) fn put_again(session: &Session) -> Result<u64> {
    let folder = &session.folder;
    let mut damaged: Vec<SnapshotPageRef> = Vec::new();
    for at in folder.load_root()?.older {
        let [first, copy] = names_of(folder, &at);
        let read = [&first, &copy].map(|object| folder.read_snapshot_page(&at, object).unless_damaged());
        match read {
            [Ok(first), Ok(copy)] => damaged.extend((first.is_some() != copy.is_some()).then_some(at)),
            // It may be all right for that program.
            [Err(VaultError::Newer { .. }), _] | [_, Err(VaultError::Newer { .. })] => {}
            [Err(e), _] | [_, Err(e)] => return Err(e),
        }
    }
    if !damaged.is_empty() {
        session.swap(|m| damaged.iter().try_for_each(|at| m.replace_snapshot_page(at)))?;
    }
    Ok(damaged.len() as u64)
}
