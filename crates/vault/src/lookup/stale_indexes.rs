//! Finds indexes of containers that no longer exist.

use crate::base::error::Result;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::list_names;
use crate::manifest::folder::Folder;
use format::names;
use std::collections::HashSet;

/// Segment indexes of writers that are not registered and have no container any more.
pub(crate) fn stale_segments(folder: &Folder) -> Result<Vec<String>> {
    let mut found = list_names(&*folder.store, &names::segments_of(folder.owner))?;
    let m = folder.load()?;
    let mut known: HashSet<String> = m.writers.iter().map(|w| names::segments(folder.owner, w.no)).collect();
    Containers::new(folder.clone(), &m).each(|e| {
        known.insert(names::segments(folder.owner, e.id.writer()));
        Ok(())
    })?;
    found.retain(|o| !known.contains(o));
    Ok(found)
}

/// Indexes of containers that the manifest does not know and no registered writer may be about to add.
pub(crate) fn stale_prefixes(folder: &Folder) -> Result<Vec<String>> {
    let prefix = names::prefixes_of(folder.owner);
    let mut found = list_names(&*folder.store, &prefix)?;
    let m = folder.load()?;
    let mut known = HashSet::new();
    Containers::new(folder.clone(), &m).each(|e| {
        known.insert(names::prefixes(e.id));
        Ok(())
    })?;
    let writers: HashSet<String> = m.writers.iter().map(|w| format!("{}{}-", prefix, w.no.0)).collect();
    found.retain(|o| !known.contains(o) && !writers.iter().any(|w| o.starts_with(w)));
    Ok(found)
}
