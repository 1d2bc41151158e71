//! Snapshots: plan, backup, restore, deletion, verification.
//!
//! `docs/flows.md` walks through every operation; each verb has its file here and reads like the steps there.

mod availability;
mod backup;
mod chain;
mod chunks;
mod claims;
mod codec;
mod compact;
mod container_writer;
mod dead;
mod delete;
mod disks;
mod error;
mod filters;
mod folder;
mod gc;
mod global_index;
mod group_cache;
mod group_reader;
mod in_order;
mod layout;
mod leaks;
mod listing;
mod map;
mod open_snapshot;
mod own_index;
mod parent;
mod pipeline;
mod place;
mod plan;
mod policy;
mod popular;
mod progress;
mod read_ahead;
mod reader;
mod recipe;
mod recipe_writer;
mod reindex;
mod released;
mod restore;
mod reverse;
mod segment_index;
mod segment_map;
mod session;
mod sharers;
mod since;
mod snapshot_spec;
mod sparse;
mod stages;
mod stats;
mod study;
mod sweep;
mod tables;
mod vault;
mod verify;

pub use availability::{Availability, Cluster, Sharing};
pub use backup::{BackupOptions, BackupReport, OpenBackup};
pub use chunks::{ContainerInfo, DiskChunks};
pub use compact::CompactReport;
pub use delete::DeleteReport;
pub use error::{Result, VaultError};
pub use format::{ContainerId, Owner, SnapId, SnapshotEntry, VaultId, WriterNo};
pub use gc::GcReport;
pub use group_cache::GroupCache;
pub use layout::{Age, Fragmentation};
pub use leaks::{filter_shape, leak_ratio, misjudged, LEAK_MAX};
pub use listing::{Listing, SnapshotInfo};
pub use map::{Cell, Map};
pub use open_snapshot::OpenSnapshot;
pub use policy::{
    CodecChoice, Global, Policy, Rewrite, Summaries, BALANCED, CONVENTIONAL, POLICIES, REVERSE, VM_CENTRIC,
    VM_CENTRIC_BLOOM,
};
pub use popular::{PopularClass, PopularReport, PopularStatus, POPULAR_FRACTION};
pub use progress::Progress;
pub use reindex::ReindexReport;
pub use restore::{RestoreReport, StoreRead};
pub use reverse::ReverseReport;
pub use since::{Scan, Since};
pub use snapshot_spec::{format_time, parse_time};
pub use stages::StageSeconds;
pub use stats::{DiskStats, FolderBytes, Stats};
pub use study::{study, Study, StudyRow};
pub use vault::{check_disk_name, now, Vault};
pub use verify::{Damage, VerifyReport};
