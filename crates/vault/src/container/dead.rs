//! Reading lists of dead chunks.

use crate::base::error::{Named, Result, VaultError};
use crate::manifest::folder::Folder;
use format::{names, ContainerEntry, DeadLog, Kind, RunSet};

/// The chunks of a container that are dead.
pub(crate) fn read_dead(folder: &Folder, entry: &ContainerEntry) -> Result<RunSet> {
    let Some(generation) = entry.dead else { return Ok(RunSet::default()) };
    let name = names::dead(&folder.path, entry.id, generation);
    let bytes = folder.store.read(&name, Kind::Dead.frame_max()).named()?;
    let log = DeadLog::decode(folder.context(&name), &bytes).map_err(VaultError::malformed(&name))?;
    if log.container != entry.id.local() {
        return Err(VaultError::corrupt(&name, format!("is of container {}", log.container)));
    }
    Ok(log.dead)
}
