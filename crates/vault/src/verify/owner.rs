//! Whose containers are looked at, and the chunks of which of them are read.

use crate::container::container_set::ContainerSet;
use crate::container::tables::Tables;
use crate::container::view::View;
use crate::manifest::folder::Folder;
use format::{ContainerId, DiskId};
use std::collections::BTreeMap;

/// The containers whose chunks are read.
#[derive(Clone, Debug)]
pub(crate) enum Reads {
    /// All.
    All,
    /// Those that their owner's manifest lists as damaged.
    Recorded,
    /// Those of these owners, as they name them.
    Only(BTreeMap<DiskId, ContainerSet>),
}

/// Whose containers are looked at.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub folder: &'a Folder,
    pub tables: &'a Tables,
    /// Those of its containers that its manifest lists as damaged.
    pub listed: &'a ContainerSet,
    /// Its snapshots and its name, where it is a disk.
    pub disk: Option<(&'a View, &'a str)>,
}

impl Owner<'_> {
    /// Whether the chunks of a container are read that it has or references.
    pub fn reads(&self, reads: &Reads, id: ContainerId) -> bool {
        match reads {
            Reads::All => true,
            Reads::Recorded if id.is_own() => self.listed.contains(id),
            Reads::Recorded => self.tables.others_list(id),
            Reads::Only(some) => {
                some.get(&self.tables.folder_of(id).disk).is_some_and(|ids| ids.contains(id.local()))
            }
        }
    }
}
