//! Snapshots of disks on a store: backup, restore, reverse pass, deletion, collection, verification.
//!
//! The modules are wings. Each uses its own files and those of the wings before it:
//! `base`, `manifest`, `container`, `recipe`, `lookup`, `reclaim`, `backup`, `popular`, `restore`, `report`, `verify`,
//! `repair`, `copy`.
//! `docs/design.md` says what each is for; `docs/flows` walks through the operations step by step.

mod backup;
mod base;
mod container;
mod copy;
mod lookup;
mod manifest;
mod popular;
mod recipe;
mod reclaim;
mod repair;
mod report;
mod restore;
mod verify;

pub use backup::read_bytes::SourceBytes;
pub use backup::{BackupOptions, BackupReport, OpenBackup};
pub use base::calendar::{format_time, parse_time};
pub use base::disk_name::check_disk_name;
pub use base::error::{Result, VaultError};
pub use base::memory::give_memory_back_with;
pub use base::policy::{
    CodecChoice, Global, Policy, Rewrite, Summaries, BALANCED, CONVENTIONAL, POLICIES, REVERSE, VM_CENTRIC,
    VM_CENTRIC_BLOOM,
};
pub use base::progress::Progress;
pub use base::retention::{utc, Clock, Keeps, RetentionRules};
pub use base::stages::StageSeconds;
pub use copy::{Copied, CopyOptions, CopyReport, COPIED_FROM};
pub use format::{ContainerId, DiskId, OwnerNo, SnapId, SnapshotEntry, VaultId, WriterNo, FORMAT_VERSION};
pub use lookup::reindex::ReindexReport;
pub use lookup::since::{Scan, Since};
pub use manifest::snapshots::hold::HELD_FOR;
pub use manifest::vault::{now, Vault};
pub use popular::report::{PopularClass, PopularReport, PopularStatus};
pub use popular::POPULAR_FRACTION;
pub use reclaim::compact::recompress::LEVELS as RECOMPRESS_LEVELS;
pub use reclaim::compact::CompactReport;
pub use reclaim::delete::{DeleteReport, RemoveReport, RetainReport};
pub use reclaim::gc_report::GcReport;
pub use reclaim::leaks::{filter_shape, leak_ratio, misjudged, LEAK_MAX};
pub use reclaim::reverse::ReverseReport;
pub use repair::{ChunkCounts, LostChunks, OpenDisk, RepairOptions, RepairReport};
pub use report::availability::{Availability, Cluster, Sharing};
pub use report::health::{DiskHealth, Health, HeldFor, SessionInfo};
pub use report::layout::{Age, Fragmentation};
pub use report::listing::{Listing, SnapshotInfo};
pub use report::map::{Cell, Map};
pub use report::stats::{DiskStats, FolderBytes, NewestStats, Stats, Taken};
pub use report::study::{study, Study, StudyRow};
pub use report::verifications::{DiskVerification, LastVerifications, SnapshotVerification};
pub use restore::chunks::{ContainerInfo, DiskChunks};
pub use restore::open_snapshot::OpenSnapshot;
pub use restore::read_cache::ReadCache;
pub use restore::{RestoreReport, StoreRead};
pub use verify::findings::damage::Damage;
pub use verify::report::{RecordedDamage, VerifyReport};
