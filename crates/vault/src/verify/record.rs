//! Records damaged containers in their owner's manifest.

use crate::base::error::{Result, VaultError};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::rollback::load_checked;
use crate::verify::findings::{generations, ContainerFindings, Generations};
use format::{ContainerId, Manifest};
use std::collections::HashSet;
use store::Reserve;

/// Puts damaged containers on the manifest's list. Those whose chunks were read and found whole go, and those that are no
/// more.
pub(super) fn record(folder: &Folder, found: &ContainerFindings) -> Result<()> {
    let m = match load_checked(folder) {
        // Said already. What is recorded in an older manifest would be lost with it, and make it look newer.
        Err(VaultError::RolledBack { .. } | VaultError::Missing { .. }) => return Ok(()),
        other => other?.0,
    };
    if list_after(folder, &m, found)? == m.damaged {
        return Ok(());
    }
    folder.with_reserve(Reserve::Whole).update(|m| {
        m.damaged = list_after(folder, m, found)?;
        Ok(())
    })?;
    Ok(())
}

fn list_after(folder: &Folder, m: &Manifest, found: &ContainerFindings) -> Result<Vec<ContainerId>> {
    let containers = Containers::new(folder.clone(), m);
    // Containers whose page cannot be read stay as they are.
    let now = |id: &ContainerId| containers.get(*id).map(|e| e.map(|e| generations(&e)));
    let mut list = m.damaged.clone();
    let was_read =
        |id: &ContainerId, now: Generations| found.read.contains(id) && found.seen.get(id) == Some(&now);
    list.retain(|id| match now(id) {
        Ok(None) => false,
        Ok(Some(g)) => !was_read(id, g) || found.damaged.contains_key(id),
        Err(_) => true,
    });
    let known: HashSet<ContainerId> = list.iter().copied().collect();
    for (id, g) in &found.damaged {
        if !known.contains(id) && matches!(now(id), Ok(Some(n)) if n == *g) {
            list.push(*id);
        }
    }
    list.sort();
    Ok(list)
}
