//! What cases of several kinds are made of.

use crate::forge::Vault;
use format::{
    ChunkNo, ContainerId, DiskId, OwnerNo, RecipePage, Reference, SegmentRecipe, SnapshotEntry,
    SnapshotState, WriterNo,
};

pub fn newest(v: &Vault) -> SnapshotEntry {
    v.manifest().recent.into_iter().rfind(|s| s.state == SnapshotState::Live).unwrap()
}

/// A container that is not there.
pub fn far(n: u32) -> ContainerId {
    ContainerId::new(OwnerNo::OWN, WriterNo(1 << 20), n)
}

/// A disk that is not there.
pub fn nobody(n: u32) -> DiskId {
    let mut id = [0xab; 16];
    id[..4].copy_from_slice(&n.to_le_bytes());
    DiskId(id)
}

/// One that is.
pub fn first_container(v: &Vault) -> ContainerId {
    v.manifest().pages[0].first
}

/// Tags that take about so many bytes of memory.
pub fn tags(bytes: usize) -> Vec<(String, String)> {
    (0..bytes / 120).map(|n| (format!("{n:06}"), String::new())).collect()
}

pub fn segment_of(references: Vec<Reference>) -> SegmentRecipe {
    SegmentRecipe { fingerprint: [3; 32], signature: 5, references }
}

pub fn page_of(references: &[Reference]) -> RecipePage {
    RecipePage { segments: vec![(0, segment_of(references.to_vec()))] }
}

/// The same, each to a chunk that stands alone.
pub fn directs(v: &Vault) -> RecipePage {
    let container = first_container(v);
    let chunk = |n: u32| Reference::Direct { container, first: ChunkNo(n % 2 * 7), count: 1 };
    let references: Vec<Reference> = (0..(RecipePage::REFERENCES_MAX / 1024) as u32).map(chunk).collect();
    RecipePage { segments: (0..1024).map(|n| (n, segment_of(references.clone()))).collect() }
}
