//! Snapshots: plan, backup, restore, deletion, verification.
//!
//! `docs/flows.md` walks through every operation; each verb has its file here and reads like the steps there.

mod backup;
mod claims;
mod codec;
mod compact;
mod container_writer;
mod dead;
mod delete;
mod disks;
mod error;
mod folder;
mod gc;
mod global_index;
mod group_reader;
mod layout;
mod listing;
mod map;
mod own_index;
mod parent;
mod pipeline;
mod place;
mod plan;
mod policy;
mod progress;
mod reader;
mod recipe;
mod reindex;
mod restore;
mod session;
mod snapshot_spec;
mod stats;
mod study;
mod sweep;
mod tables;
mod vault;
mod verify;

pub use backup::{BackupOptions, BackupReport};
pub use compact::CompactReport;
pub use delete::DeleteReport;
pub use error::{Result, VaultError};
pub use format::{SnapId, SnapshotEntry};
pub use gc::GcReport;
pub use layout::{Age, Fragmentation};
pub use listing::{Listing, SnapshotInfo};
pub use map::{Cell, Map};
pub use policy::{CodecChoice, Policy, RewriteAt, BALANCED, CONVENTIONAL, POLICIES};
pub use progress::Progress;
pub use reindex::ReindexReport;
pub use restore::RestoreReport;
pub use snapshot_spec::{format_time, parse_time};
pub use stats::{DiskStats, FolderBytes, Stats};
pub use study::{study, Study, StudyRow};
pub use vault::{check_disk_name, now, Vault};
pub use verify::{Damage, VerifyReport};
