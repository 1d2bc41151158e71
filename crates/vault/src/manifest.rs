//! Manifests and the processes that use them: folders of disks, sessions, readers, rollbacks, holds.

pub(crate) mod container_table;
pub(crate) mod disks;
pub(crate) mod edit;
pub(crate) mod first_backup;
pub(crate) mod folder;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod reader;
pub(crate) mod rename;
pub(crate) mod rollback;
pub(crate) mod session;
pub(crate) mod snapshots;
pub(crate) mod vault;
mod vault_file;
