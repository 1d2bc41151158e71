//! Policies: sets of parameters that make the one write path behave as a paper describes.

use crate::base::error::{Result, VaultError};
use chunk::ChunkSpec;
use std::fmt;
use std::str::FromStr;

/// How groups are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecChoice {
    /// zstd at a level that follows the load: `idle` while compression keeps up, `busy` while it is the full queue.
    Auto {
        /// Level while the queue has room.
        idle: i32,
        /// Level while it is full.
        busy: i32,
    },
    /// zstd at one level.
    Zstd(i32),
    /// lz4.
    Lz4,
    /// Not at all.
    Raw,
}

impl CodecChoice {
    /// What `auto` means.
    pub const AUTO: CodecChoice = CodecChoice::Auto { idle: 3, busy: 2 };

    /// The level of zstd at which all groups are packed, 0 if there is none.
    pub(crate) fn level(&self) -> u8 {
        match self {
            CodecChoice::Zstd(level) => u8::try_from(*level).unwrap_or(0),
            _ => 0,
        }
    }
}

impl FromStr for CodecChoice {
    type Err = VaultError;
    fn from_str(s: &str) -> Result<Self> {
        let wrong = || {
            VaultError::Usage(format!(
                "{s:?} is not a codec: auto, lz4, none, or zstd:LEVEL with a level of -7 to 19"
            ))
        };
        match s {
            "auto" => Ok(CodecChoice::AUTO),
            "lz4" => Ok(CodecChoice::Lz4),
            "none" => Ok(CodecChoice::Raw),
            "zstd" => Ok(CodecChoice::Zstd(3)),
            _ => {
                let level = s.strip_prefix("zstd:").and_then(|l| l.parse().ok());
                level.filter(|l| (-7..=19).contains(l)).map(CodecChoice::Zstd).ok_or_else(wrong)
            }
        }
    }
}

impl fmt::Display for CodecChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecChoice::Auto { .. } => f.write_str("auto"),
            CodecChoice::Zstd(l) => write!(f, "zstd:{l}"),
            CodecChoice::Lz4 => f.write_str("lz4"),
            CodecChoice::Raw => f.write_str("none"),
        }
    }
}

/// Which stored chunks a backup writes again, so that the newest snapshot stays in few places on the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rewrite {
    /// Only new chunks are written.
    Never,
    /// Fragmented chunks of the parent are rewritten: those in the containers and groups with the highest read ratio
    /// first, at most two bytes for each byte that was new in the parent.
    Fragmented {
        /// Bytes fetched for each byte needed, above which chunks are fragmented; a seek counts as 2 MiB.
        read_ratio: f64,
    },
    /// Every segment that is not stored as a whole is written whole (RevDedup 3.1), except for chunks that other disks
    /// keep anyway.
    Whole {
        /// If at least this share of a segment is in shared containers that other disks use, only the rest is written;
        /// otherwise that share would be stored twice. `None`: the whole segment is written, as in the paper.
        keep_shared: Option<f64>,
    },
}

/// What a backup takes from other disks, and how it finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Global {
    /// Nothing.
    Off,
    /// Chunks that any disk has, found by hooks (sparse indexing).
    Chunks {
        /// One chunk in 2^`sampled` is a hook.
        sampled: u32,
        /// Containers that are looked at for a segment, those first to which most of its hooks lead.
        champions: usize,
    },
    /// Whole segments that any disk has (RevDedup 3.1): their fingerprints are the hooks.
    Segments,
    /// Chunks of the popular set, if one was built (VM-centric 3.1).
    Popular {
        /// Number of consecutive chunks that must match for a hit to be used.
        shortest_run: usize,
    },
}

/// How deletion finds out which chunks a snapshot references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summaries {
    /// The exact summaries of its pages.
    Exact,
    /// Deletion asks a Bloom filter instead; false positives leak until a repair (VM-centric 3.2).
    Bloom,
}

/// The parameters of the write path. No code branches on `name`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Its name on the command line.
    pub name: &'static str,
    /// Bytes in a segment.
    pub segment_bytes: u32,
    /// How segments are cut.
    pub chunking: ChunkSpec,
    /// What a backup takes from other disks.
    pub global: Global,
    /// Whether the user wanted that to be no more than the popular set.
    pub isolated: bool,
    /// Whether the parent's segment at the same offset is searched.
    pub same_offset: bool,
    /// How many parent segments of equal signature are searched.
    pub similar_segments: usize,
    /// Memory of the index over what the backup itself has written, in bytes.
    pub own_index_bytes: usize,
    /// Whether that index also takes the parent's chunks, for data that moved.
    pub own_index_parent: bool,
    /// Which stored chunks are written again.
    pub rewrite_at: Rewrite,
    /// Whether a reverse pass follows each backup (RevDedup 3.2).
    pub reverse: bool,
    /// Share of dead chunks from which the reverse pass compacts a container; below it, the container is punched
    /// (RevDedup 3.2.4).
    pub rebuild_at: f64,
    /// Recipes that passes have reversed and that wait until they are put into the reference index.
    pub index_at: usize,
    /// Bytes of chunks in one group.
    pub group_bytes: u32,
    /// Bytes of chunks in one container.
    pub container_bytes: u32,
    /// How groups are compressed.
    pub codec: CodecChoice,
    /// How deletion finds out which chunks a snapshot references.
    pub summaries: Summaries,
}

/// A few recipes are read about as fast as a part of the index; fewer parts are found faster.
pub(crate) const INDEX_AT: usize = 4;

/// The default: little memory, small later versions, restores in large reads.
pub const BALANCED: Policy = Policy {
    name: "balanced",
    segment_bytes: 4 << 20,
    chunking: ChunkSpec::Fixed { bytes: 4096 },
    global: Global::Chunks { sampled: 6, champions: 4 },
    isolated: false,
    same_offset: true,
    similar_segments: 10,
    own_index_bytes: 48 << 20,
    own_index_parent: true,
    rewrite_at: Rewrite::Fragmented { read_ratio: 1.25 },
    reverse: true,
    rebuild_at: 0.25,
    index_at: INDEX_AT,
    group_bytes: 4 << 20,
    container_bytes: 64 << 20,
    codec: CodecChoice::AUTO,
    summaries: Summaries::Exact,
};

/// Inline deduplication over everything: the baseline of the papers.
pub const CONVENTIONAL: Policy = Policy {
    name: "conventional",
    segment_bytes: 128 << 10,
    chunking: ChunkSpec::Fixed { bytes: 4096 },
    global: Global::Chunks { sampled: 0, champions: usize::MAX },
    isolated: false,
    same_offset: false,
    similar_segments: 0,
    own_index_bytes: 32 << 20,
    own_index_parent: false,
    rewrite_at: Rewrite::Never,
    reverse: false,
    rebuild_at: 0.5,
    index_at: INDEX_AT,
    group_bytes: 4 << 20,
    container_bytes: 64 << 20,
    codec: CodecChoice::AUTO,
    summaries: Summaries::Exact,
};

/// RevDedup: segments that no disk has stored are written whole, and older snapshots refer to newer ones for the chunks
/// that both contain.
pub const REVERSE: Policy = Policy {
    name: "reverse",
    segment_bytes: 8 << 20,
    chunking: ChunkSpec::Fixed { bytes: 4096 },
    global: Global::Segments,
    isolated: false,
    same_offset: false,
    similar_segments: 0,
    own_index_bytes: 1 << 20,
    own_index_parent: false,
    rewrite_at: Rewrite::Whole { keep_shared: Some(0.5) },
    reverse: true,
    rebuild_at: 0.6,
    index_at: INDEX_AT,
    group_bytes: 8 << 20,
    container_bytes: 8 << 20,
    codec: CodecChoice::Raw,
    summaries: Summaries::Exact,
};

/// VM-centric: deduplication within a disk and with the popular set, in little memory.
pub const VM_CENTRIC: Policy = Policy {
    name: "vm-centric",
    segment_bytes: 2 << 20,
    chunking: ChunkSpec::ContentDefined { min: 1024, average: 4096, max: 16384 },
    global: Global::Popular { shortest_run: 1 },
    isolated: false,
    same_offset: true,
    similar_segments: 10,
    own_index_bytes: 1 << 20,
    own_index_parent: false,
    rewrite_at: Rewrite::Never,
    reverse: false,
    rebuild_at: 0.5,
    index_at: INDEX_AT,
    group_bytes: 4 << 20,
    container_bytes: 64 << 20,
    codec: CodecChoice::Zstd(3),
    summaries: Summaries::Exact,
};

/// VM-centric with the paper's approximate deletion.
pub const VM_CENTRIC_BLOOM: Policy =
    Policy { name: "vm-centric-bloom", summaries: Summaries::Bloom, ..VM_CENTRIC };

/// Chunks of the popular set that an isolated disk takes at least: it takes no shorter runs, which are slow to read.
const ISOLATED_RUN: usize = 4;

/// All policies.
pub const POLICIES: [Policy; 5] = [BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC, VM_CENTRIC_BLOOM];

impl Policy {
    /// The same, but that nothing is taken from other disks except for runs of the popular set. So damage of another disk's
    /// containers cannot affect it. The backup puts no hooks.
    pub fn isolated(self) -> Policy {
        let global = match self.global {
            Global::Chunks { .. } | Global::Segments => Global::Popular { shortest_run: ISOLATED_RUN },
            global => global,
        };
        Policy { global, isolated: true, ..self }
    }

    /// The length of its chunks, if all have the same.
    pub fn fixed_chunk_bytes(&self) -> Option<u32> {
        match self.chunking {
            ChunkSpec::Fixed { bytes } => Some(bytes),
            ChunkSpec::ContentDefined { .. } => None,
        }
    }

    /// The policy with this name.
    pub fn by_name(name: &str) -> Result<Policy> {
        POLICIES.into_iter().find(|p| p.name == name).ok_or_else(|| {
            let names: Vec<_> = POLICIES.iter().map(|p| p.name).collect();
            VaultError::Usage(format!("there is no policy {name:?}; there are {}", names.join(", ")))
        })
    }
}

/// Gaps up to this size are read instead of skipped.
pub(crate) const GAP_BYTES: u64 = 64 << 10;

/// Bytes of chunks in a group of the popular set. A group is read as a whole, and popular runs are short.
pub(crate) const POPULAR_GROUP_BYTES: usize = 256 << 10;
