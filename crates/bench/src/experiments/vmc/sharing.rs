//! Which blocks of a store the disks of a cluster need: kept as the VM-centric policy keeps them, and as a scheme does
//! that shares all chunks (VM-centric, appendix A).
//!
//! A block is a container, or so many stored bytes of consecutive containers, as a distributed file system cuts its files:
//! the containers of one owner, a disk or the popular set, are one file. Within a container all chunks count as if they
//! took the same room.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use serde::Serialize;
use vault::{ContainerId, ContainerInfo, DiskId, Policy, Sharing, CONVENTIONAL, VM_CENTRIC};

use super::{back_up_disk, build_set, Set, PAPER_DISK_BYTES};
use crate::context::Context;
use crate::vaults::in_process::LocalVault;
use crate::workload::Cluster;

/// Bytes of a block of the paper's file system.
pub const PAPER_BLOCK_BYTES: u64 = 64 << 20;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Block {
    Container,
    Bytes(u64),
}

impl Block {
    /// What stands to a disk as 64 MiB stand to one of the paper's.
    pub fn scaled(data_bytes: u64) -> Self {
        let part = data_bytes as f64 / PAPER_DISK_BYTES;
        Block::Bytes(((PAPER_BLOCK_BYTES as f64 * part) as u64).max(4096))
    }

    /// The name of it in tables.
    pub fn name(self) -> String {
        match self {
            Block::Container => "containers".into(),
            Block::Bytes(PAPER_BLOCK_BYTES) => "64 MiB".into(),
            Block::Bytes(bytes) => format!("{} KiB", bytes >> 10),
        }
    }
}

/// Chunks of a container that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    owner: DiskId,
    /// As its owner names it.
    container: ContainerId,
    start: u32,
    end: u32,
}

/// What a disk references in one vault.
struct Referenced {
    disk: DiskId,
    /// In the order of owners, containers and chunks.
    runs: Vec<Run>,
    /// The disk's own containers.
    own: Vec<ContainerInfo>,
}

/// The same disks in two vaults.
pub struct Pair<'a> {
    context: &'a Context,
    cluster: &'a Cluster,
    centric: LocalVault,
    oblivious: LocalVault,
    /// The popular set of the first one.
    pub set: Set,
    /// By disk.
    disks: Vec<[Referenced; 2]>,
}

impl<'a> Pair<'a> {
    /// Two vaults without disks; the popular set is that of all of them.
    pub fn create(context: &'a Context, cluster: &'a Cluster) -> Result<Self> {
        let dir = context.space().join("centric");
        let vault = LocalVault::create(&dir, VM_CENTRIC, None)?;
        let set = build_set(context, &vault, cluster)?;
        drop(vault);
        let centric = LocalVault::counting_on(&dir, VM_CENTRIC)?;
        let Policy { chunking, segment_bytes, codec, .. } = VM_CENTRIC;
        let policy = Policy { chunking, segment_bytes, codec, ..CONVENTIONAL };
        let oblivious = LocalVault::counting(&context.space().join("oblivious"), policy, None)?;
        Ok(Self { context, cluster, centric, oblivious, set, disks: Vec::new() })
    }

    /// Stores all days of the next disk in both.
    pub fn add_disk(&mut self) -> Result<()> {
        let shape = self.cluster.shape();
        let disk = self.disks.len();
        self.context.require_free(shape.data_bytes)?;
        back_up_disk(&self.centric, self.cluster, disk, shape.days)?;
        back_up_disk(&self.oblivious, self.cluster, disk, shape.days)?;
        let name = Cluster::name(disk);
        self.disks.push([referenced(&self.centric, &name)?, referenced(&self.oblivious, &name)?]);
        Ok(())
    }

    /// Disks so far.
    pub fn disks(&self) -> usize {
        self.disks.len()
    }

    /// Which blocks the disks need: their own and popular ones as the policy keeps them, and those of the other vault.
    pub fn sharing(&self, block: Block) -> Result<Sharing> {
        let popular = self.popular(block)?;
        let all = Places::of(self.disks.iter().map(|[_, without]| (without.disk, &without.own[..])), block);
        let (mut own, mut shared, mut oblivious) = (Vec::new(), Vec::new(), Vec::new());
        for [centric, without] in &self.disks {
            let (of_disk, of_set) = centric.blocks(&popular, block);
            own.push(of_disk);
            shared.push(of_set);
            oblivious.push(all.blocks(&without.runs));
        }
        Ok(Sharing::new(own, shared, oblivious))
    }

    /// The same without the blocks of the other vault, which trials then need not draw.
    pub fn sharing_as_kept(&self, block: Block) -> Result<Sharing> {
        let popular = self.popular(block)?;
        let disks = self.disks.iter().map(|[centric, _]| centric.blocks(&popular, block));
        let (own, shared): (Vec<u32>, Vec<Vec<u32>>) = disks.unzip();
        let none = vec![Vec::new(); own.len()];
        Ok(Sharing::new(own, shared, none))
    }

    fn popular(&self, block: Block) -> Result<Places> {
        let containers = self.centric.vault().popular_containers()?;
        Ok(Places::of([(DiskId::POPULAR, &containers[..])], block))
    }
}

impl Referenced {
    /// How many blocks the disk has for itself, and which popular ones it needs.
    fn blocks(&self, popular: &Places, block: Block) -> (u32, Vec<u32>) {
        let (of_disk, of_set): (Vec<Run>, Vec<Run>) =
            self.runs.iter().partition(|run| run.owner == self.disk);
        let own = Places::of([(self.disk, &self.own[..])], block);
        (own.blocks(&of_disk).len() as u32, popular.blocks(&of_set))
    }
}

fn referenced(vault: &LocalVault, disk: &str) -> Result<Referenced> {
    let disk = vault.vault().disk_chunks(disk)?;
    let mut all: Vec<Run> = Vec::new();
    for snapshot in disk.snapshots() {
        disk.each_run(snapshot, &mut |container, chunks| {
            let Some((owner, container)) = disk.owner_of(container) else { return };
            all.push(Run { owner, container, start: chunks.start, end: chunks.end });
        })?;
    }
    Ok(Referenced { disk: disk.disk(), runs: merged(all), own: disk.containers()? })
}

/// Runs in order, those that overlap or meet as one.
fn merged(mut all: Vec<Run>) -> Vec<Run> {
    all.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for run in all {
        match runs.last_mut() {
            Some(last)
                if (last.owner, last.container) == (run.owner, run.container) && run.start <= last.end =>
            {
                last.end = last.end.max(run.end);
            }
            _ => runs.push(run),
        }
    }
    runs
}

/// Where the containers of some owners lie.
struct Places {
    block: Block,
    /// Number and first byte of a container, its stored bytes and its chunks.
    containers: HashMap<(DiskId, ContainerId), (u32, u64, ContainerInfo)>,
}

impl Places {
    fn of<'a>(owners: impl IntoIterator<Item = (DiskId, &'a [ContainerInfo])>, block: Block) -> Self {
        let mut at = 0_u64;
        let mut places = HashMap::new();
        for (owner, containers) in owners {
            // No block has parts of two files.
            if let Block::Bytes(bytes) = block {
                at = at.next_multiple_of(bytes);
            }
            for info in containers {
                places.insert((owner, info.id), (places.len() as u32, at, *info));
                at += info.stored_bytes;
            }
        }
        Self { block, containers: places }
    }

    /// The numbers of the blocks that runs stand in.
    fn blocks(&self, runs: &[Run]) -> Vec<u32> {
        let mut blocks = BTreeSet::new();
        for run in runs {
            let Some((no, at, info)) = self.containers.get(&(run.owner, run.container)) else { continue };
            match self.block {
                Block::Container => drop(blocks.insert(*no)),
                Block::Bytes(bytes) => {
                    let offset =
                        |chunk: u32| info.stored_bytes * u64::from(chunk) / u64::from(info.chunks.max(1));
                    let (first, end) =
                        (at + offset(run.start), at + offset(run.end).max(offset(run.start) + 1));
                    blocks.extend((first / bytes) as u32..end.div_ceil(bytes) as u32);
                }
            }
        }
        blocks.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::MemoryDisk;
    use std::sync::Arc;
    use vault::Policy;

    #[test]
    fn blocks_are_those_that_chunks_stand_in() {
        let dir = tempfile::tempdir().expect("dir");
        let policy = Policy { container_bytes: 64 << 10, group_bytes: 16 << 10, ..VM_CENTRIC };
        let vault = LocalVault::counting(dir.path(), policy, Some(vault::CodecChoice::Raw)).expect("vault");
        let bytes: Vec<u8> =
            (0..1_u32 << 18).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
        let disk = MemoryDisk(Arc::new(bytes));
        vault.backup_source("a/a", Box::new(disk)).expect("backup");
        let found = referenced(&vault, "a/a").expect("references");
        let none = Places::of([], Block::Container);
        let count = |block| found.blocks(&none, block).0 as usize;
        assert_eq!(count(Block::Container), found.own.len());
        let stored: u64 = found.own.iter().map(|c| c.stored_bytes).sum();
        assert!(stored >= 1 << 20);
        for bytes in [10_000, 100_000, 1 << 30] {
            assert_eq!(count(Block::Bytes(bytes)), stored.div_ceil(bytes) as usize, "{bytes}");
        }
    }

    #[test]
    fn runs_that_overlap_are_one() {
        let id = |n| ContainerId::new(vault::OwnerNo::OWN, vault::WriterNo(n), 0);
        let run = |n, start, end| Run { owner: DiskId::POPULAR, container: id(n), start, end };
        let all = vec![run(2, 0, 4), run(1, 8, 9), run(1, 0, 5), run(1, 3, 7), run(1, 7, 8)];
        assert!(merged(all) == [run(1, 0, 9), run(2, 0, 4)]);
    }
}
