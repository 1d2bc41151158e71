//! Mark and sweep over the snapshots of a vault: what deletion would do without summaries (VM-centric 5.3).
//!
//! The table has a bit for each chunk. Nothing is deleted: what a sweep finds is counted.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use vault::{ContainerId, ContainerInfo, DiskChunks, DiskId, SnapshotEntry, Vault};

use crate::workload::Cluster;

/// Snapshots of a disk, oldest first, whose marks are kept together.
pub const GROUP_SNAPSHOTS: usize = 5;
/// Beside the bits of a container: its id, and where they stand.
const CONTAINER_BYTES: u64 = 8 + 24;

/// A bit for each chunk of some containers.
#[derive(Default)]
pub struct Marks(BTreeMap<u64, Vec<u64>>);

impl Marks {
    /// Nothing is marked.
    pub fn of(containers: &[ContainerInfo]) -> Self {
        let bits = |c: &ContainerInfo| vec![0; (c.chunks as usize).div_ceil(64)];
        Self(containers.iter().map(|c| (c.id.raw(), bits(c))).collect())
    }

    /// Marks chunks; those of containers that have no bits are another owner's.
    fn mark(&mut self, container: ContainerId, chunks: std::ops::Range<u32>) {
        let Some(bits) = self.0.get_mut(&container.raw()) else { return };
        for no in chunks {
            if let Some(word) = bits.get_mut(no as usize / 64) {
                *word |= 1 << (no % 64);
            }
        }
    }

    /// Marks what a snapshot references.
    fn mark_snapshot(&mut self, disk: &DiskChunks, snapshot: &SnapshotEntry) -> Result<()> {
        Ok(disk.each_run(snapshot, &mut |container, chunks| self.mark(container, chunks))?)
    }

    /// Adds what others have marked.
    fn merge(&mut self, other: &Marks) {
        for (container, theirs) in &other.0 {
            let Some(bits) = self.0.get_mut(container) else { continue };
            bits.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine |= theirs);
        }
    }

    /// Chunks that are not marked.
    fn sweep(&self, containers: &[ContainerInfo]) -> u64 {
        let marked: u32 = self.0.values().flatten().map(|word| word.count_ones()).sum();
        let live: u32 = containers.iter().map(|c| c.chunks - c.dead_chunks).sum();
        u64::from(live - marked)
    }

    /// What the table takes.
    fn memory_bytes(&self) -> u64 {
        self.0.values().map(|bits| CONTAINER_BYTES + 8 * bits.len() as u64).sum()
    }

    /// As a file; containers without a mark are left out.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (container, bits) in self.0.iter().filter(|(_, bits)| bits.iter().any(|word| *word != 0)) {
            out.extend_from_slice(&container.to_le_bytes());
            out.extend_from_slice(&(bits.len() as u64).to_le_bytes());
            bits.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        out
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        ensure!(bytes.len() % 8 == 0, "not a table of marks");
        let mut words = bytes.chunks_exact(8).map(|w| w.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)));
        let mut marks = BTreeMap::new();
        while let Some(container) = words.next() {
            let length = words.next().context("not a table of marks")?;
            let bits: Vec<u64> = words.by_ref().take(length as usize).collect();
            ensure!(bits.len() as u64 == length, "not a table of marks");
            marks.insert(container, bits);
        }
        Ok(Self(marks))
    }
}

/// What a method finds for one disk, or for all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swept {
    /// Chunks that no snapshot will need.
    pub dead_chunks: u64,
    /// What its table takes.
    pub memory_bytes: u64,
    /// Bytes read that are not the vault's.
    pub kept_bytes_read: u64,
}

/// A disk's own containers, and the snapshots that stay once the oldest is deleted.
fn staying(disk: &DiskChunks) -> Result<(Vec<ContainerInfo>, Vec<SnapshotEntry>)> {
    Ok((disk.containers()?, disk.snapshots().skip(1).cloned().collect()))
}

/// VM-oblivious: the snapshots of all disks are marked in one table, chunks of other owners as well.
pub fn of_all(vault: &Vault, disks: usize) -> Result<Swept> {
    let mut of_owners = HashMap::from([(DiskId::POPULAR, Marks::of(&vault.popular_containers()?))]);
    let mut looked_at = Vec::new();
    for no in 0..disks {
        let disk = vault.disk_chunks(&Cluster::name(no))?;
        let (containers, snapshots) = staying(&disk)?;
        of_owners.insert(disk.disk(), Marks::of(&containers));
        looked_at.push((disk, containers, snapshots));
    }
    let mut found = Swept::default();
    for (disk, _, snapshots) in &looked_at {
        for snapshot in snapshots {
            disk.each_run(snapshot, &mut |container, chunks| {
                let Some((owner, container)) = disk.owner_of(container) else { return };
                of_owners.entry(owner).and_modify(|marks| marks.mark(container, chunks));
            })?;
        }
    }
    for (disk, containers, _) in &looked_at {
        found.dead_chunks += of_owners[&disk.disk()].sweep(containers);
    }
    found.memory_bytes = of_owners.values().map(Marks::memory_bytes).sum();
    Ok(found)
}

/// VM-centric without summaries: the snapshots of one disk are marked.
pub fn of_disk(vault: &Vault, no: usize) -> Result<Swept> {
    let disk = vault.disk_chunks(&Cluster::name(no))?;
    let (containers, snapshots) = staying(&disk)?;
    let mut marks = Marks::of(&containers);
    for snapshot in &snapshots {
        marks.mark_snapshot(&disk, snapshot)?;
    }
    let (dead_chunks, memory_bytes) = (marks.sweep(&containers), marks.memory_bytes());
    Ok(Swept { dead_chunks, memory_bytes, kept_bytes_read: 0 })
}

/// Grouped (Guo and Efstathopoulos 2011): marks are kept by groups of snapshots, and only a group in which something was
/// deleted is marked again.
pub struct Grouped {
    dir: PathBuf,
}

impl Grouped {
    /// Marks all groups of all disks, and keeps that in the directory `dir`.
    pub fn create(vault: &Vault, disks: usize, dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let grouped = Self { dir: dir.to_owned() };
        for no in 0..disks {
            let disk = vault.disk_chunks(&Cluster::name(no))?;
            let containers = disk.containers()?;
            let snapshots: Vec<&SnapshotEntry> = disk.snapshots().collect();
            for (group, of_group) in snapshots.chunks(GROUP_SNAPSHOTS).enumerate() {
                let mut marks = Marks::of(&containers);
                for snapshot in of_group {
                    marks.mark_snapshot(&disk, snapshot)?;
                }
                fs::write(grouped.path(no, group), marks.to_bytes())?;
            }
        }
        Ok(grouped)
    }

    fn path(&self, disk: usize, group: usize) -> PathBuf {
        self.dir.join(format!("{disk}-{group}"))
    }

    /// The oldest snapshot of every disk goes: the first group of each is marked again, and the others' marks are read.
    pub fn of_all(&self, vault: &Vault, disks: usize) -> Result<Swept> {
        let mut tables = Vec::new();
        let mut found = Swept::default();
        for no in 0..disks {
            let disk = vault.disk_chunks(&Cluster::name(no))?;
            let containers = disk.containers()?;
            let mut marks = Marks::of(&containers);
            for snapshot in disk.snapshots().take(GROUP_SNAPSHOTS).skip(1) {
                marks.mark_snapshot(&disk, snapshot)?;
            }
            fs::write(self.path(no, 0), marks.to_bytes())?;
            let groups = disk.snapshots().count().div_ceil(GROUP_SNAPSHOTS);
            for group in 1..groups {
                let kept = fs::read(self.path(no, group))?;
                found.kept_bytes_read += kept.len() as u64;
                marks.merge(&Marks::from_bytes(&kept)?);
            }
            tables.push((marks, containers));
        }
        for (marks, containers) in &tables {
            found.dead_chunks += marks.sweep(containers);
            found.memory_bytes += marks.memory_bytes();
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault::{OwnerNo, WriterNo};

    #[test]
    fn marks_are_kept_and_added_up() {
        let id = |n| ContainerId::new(OwnerNo::OWN, WriterNo(1), n);
        let info = |n, chunks| ContainerInfo { id: id(n), chunks, dead_chunks: 0, stored_bytes: 0 };
        let containers = [info(0, 100), info(1, 64), info(2, 7)];
        let (mut a, mut b) = (Marks::of(&containers), Marks::of(&containers));
        a.mark(id(0), 0..70);
        a.mark(id(9), 0..5);
        b.mark(id(0), 60..100);
        b.mark(id(1), 63..64);
        assert_eq!((a.sweep(&containers), b.sweep(&containers)), (101, 130));
        let bytes = b.to_bytes();
        assert_eq!(bytes.len(), 2 * 16 + 3 * 8);
        a.merge(&Marks::from_bytes(&bytes).expect("marks"));
        assert_eq!(a.sweep(&containers), 63 + 7);
        assert!(Marks::from_bytes(&bytes[..bytes.len() - 8]).is_err());
        assert!(Marks::from_bytes(&bytes[..9]).is_err());
    }
}
