//! Records damaged containers in their owner's manifest.

use crate::base::error::{Result, VaultError};
use crate::container::versions::{generations, Generations};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::rollback::load_checked;
use crate::verify::findings::containers::ContainerFindings;
use format::{ContainerId, Manifest};
use store::Reserve;

/// Containers on the list of a manifest at most. More would take the room of its snapshots.
const LISTED_MAX: usize = 1 << 16;

/// Puts damaged containers on the manifest's list. Those whose chunks were read and found whole go, and those that are no
/// more. Returns how many there was no room for; `None` if the manifest is lost or rolled back, and nothing is recorded.
pub(super) fn record(folder: &Folder, found: &ContainerFindings) -> Result<Option<u64>> {
    let m = match load_checked(folder) {
        // Said already. What is recorded in an older manifest would be lost with it, and make it look newer.
        Err(VaultError::RolledBack { .. } | VaultError::Missing { .. }) => return Ok(None),
        other => other?.0,
    };
    let (list, left_out) = list_after(folder, &m, found)?;
    if list == m.damaged {
        return Ok(Some(left_out));
    }
    drop((list, m));
    let (_, left_out) = folder.with_reserve(Reserve::Whole).update(|m| {
        let (list, left_out) = list_after(folder, m, found)?;
        m.damaged = list;
        Ok(left_out)
    })?;
    Ok(Some(left_out))
}

/// The list as it is to be, and how many damaged containers there is no room for.
fn list_after(folder: &Folder, m: &Manifest, found: &ContainerFindings) -> Result<(Vec<ContainerId>, u64)> {
    let containers = Containers::new(folder.clone(), m);
    let mut table = InOrder::of(&containers);
    let mut list = m.damaged.clone();
    list.sort_unstable();
    list.retain(|id| match table.now(*id) {
        Now::Gone => false,
        Now::There(of) => !found.is_whole(*id, of),
        Now::Unreadable => true,
    });
    let (known, mut left_out) = (list.len(), 0);
    let mut table = InOrder::of(&containers);
    for (id, of) in found.damaged.iter() {
        if list[..known].binary_search(&id).is_err() && table.now(id) == Now::There(of) {
            if list.len() < LISTED_MAX {
                list.push(id);
            } else {
                left_out += 1;
            }
        }
    }
    list.sort_unstable();
    Ok((list, left_out))
}

/// What a container table says of containers that are asked for in order. A page that cannot be read is tried once, and
/// not for each of up to a million containers.
struct InOrder<'a> {
    containers: &'a Containers,
    unreadable: Option<usize>,
}

/// What it says of one of them.
#[derive(PartialEq)]
enum Now {
    Gone,
    /// Of these generations.
    There(Generations),
    Unreadable,
}

impl<'a> InOrder<'a> {
    fn of(containers: &'a Containers) -> Self {
        InOrder { containers, unreadable: None }
    }

    fn now(&mut self, id: ContainerId) -> Now {
        let page = self.containers.page_of(id);
        if page.is_some() && page == self.unreadable {
            return Now::Unreadable;
        }
        match self.containers.get(id) {
            Ok(None) => Now::Gone,
            Ok(Some(entry)) => Now::There(generations(&entry)),
            Err(_) => {
                self.unreadable = page;
                Now::Unreadable
            }
        }
    }
}
