//! Availability of disks when machines of the store fail (VM-centric, appendix A).
//!
//! The store keeps each block on `r` of `p` machines; `d` machines fail; a disk is available if each of its blocks has
//! a replica left. A block is a container. Two ways of keeping the same chunks are compared:
//!
//! - as in this vault: a disk needs its own containers and shared ones;
//! - VM-oblivious: each chunk is stored once, in a container of the first disk that stored it.

use crate::base::error::{Result, VaultError};
use crate::manifest::vault::Vault;
use crate::popular::census::Census;
use format::{ContainerId, DiskId};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

/// A cluster that might keep the vault.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// Machines, p.
    pub machines: u32,
    /// Replicas of a block, r.
    pub replicas: u32,
    /// Replicas of a block that disks share, r_c.
    pub shared_replicas: u32,
}

impl Default for Cluster {
    /// That of the paper, section 5.
    fn default() -> Self {
        Cluster { machines: 100, replicas: 3, shared_replicas: 6 }
    }
}

impl Cluster {
    /// Whether there can be such a cluster, with so many machines failed.
    ///
    /// # Errors
    /// `Usage` where it has too few machines.
    pub fn check(&self, failed: u32) -> Result<()> {
        let most = self.replicas.max(self.shared_replicas).max(failed);
        if self.replicas == 0 || self.shared_replicas == 0 || self.machines < most {
            let why = format!("{} machines are too few for {most} replicas or failures", self.machines);
            return Err(VaultError::Usage(why));
        }
        Ok(())
    }

    /// A(r) = 1 - C(d, r) / C(p, r): the probability that not all replicas of a block are among the `failed` machines.
    pub fn block_availability(&self, failed: u32, replicas: u32) -> f64 {
        if failed < replicas {
            return 1.0;
        }
        let all = (0..replicas).map(|n| f64::from(failed - n) / f64::from(self.machines - n));
        1.0 - all.product::<f64>()
    }
}

/// Which blocks the disks of a vault need.
#[derive(Clone, Debug, Default)]
pub struct Sharing {
    /// Of each disk: blocks that only it needs.
    own: Vec<u32>,
    /// Of each disk: numbers of the shared blocks that it needs.
    shared: Vec<Vec<u32>>,
    /// Of each disk: numbers of the blocks that it would need without regard to disks.
    oblivious: Vec<Vec<u32>>,
    /// What could not be counted because of damage.
    pub damaged: Vec<String>,
}

/// The part of the disks that is available, by the formulas.
#[derive(Clone, Copy, Debug)]
pub struct Availability {
    /// Without regard to disks: A(r)^No.
    pub oblivious: f64,
    /// As they are: A(r)^N1 A(r_c)^N2.
    pub centric: f64,
}

impl Vault {
    /// Looks which blocks each disk needs. `scratch`: see [`Vault::popular_status`].
    pub fn sharing(&self, scratch: &Path) -> Result<Sharing> {
        let census = Census::take(self, scratch)?;
        let disks = census.disks.len();
        let mut own: Vec<BTreeSet<ContainerId>> = vec![BTreeSet::new(); disks];
        // Containers that disks reference without owning them: all who reference them share them.
        let mut referenced: HashSet<(DiskId, ContainerId)> = HashSet::new();
        census.each(&mut |chunk| {
            for o in chunk.all_of_disks().filter(|o| !o.place.container.is_own()) {
                referenced.insert(census.home(o));
            }
            Ok(())
        })?;
        let mut shared: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); disks];
        let mut oblivious: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); disks];
        let mut shared_numbers: HashMap<(DiskId, ContainerId), u32> = HashMap::new();
        let mut homes: HashMap<(DiskId, ContainerId), u32> = HashMap::new();
        census.each(&mut |chunk| {
            // A container is one block, whichever disk comes first.
            let next = homes.len() as u32;
            let home = *homes.entry(census.home(&chunk.all[0])).or_insert(next);
            for o in chunk.of_disks() {
                oblivious[o.disk as usize].insert(home);
            }
            // Of two copies that a disk has, some snapshot needs each.
            for o in chunk.all_of_disks() {
                let disk = o.disk as usize;
                let home = census.home(o);
                if referenced.contains(&home) {
                    let next = shared_numbers.len() as u32;
                    shared[disk].insert(*shared_numbers.entry(home).or_insert(next));
                } else {
                    own[disk].insert(o.place.container);
                }
            }
            Ok(())
        })?;
        let list = |sets: Vec<BTreeSet<u32>>| sets.into_iter().map(|s| s.into_iter().collect()).collect();
        Ok(Sharing {
            own: own.iter().map(|s| s.len() as u32).collect(),
            shared: list(shared),
            oblivious: list(oblivious),
            damaged: census.into_disks().1.into_lines(),
        })
    }
}

impl Sharing {
    /// What was counted elsewhere, with other blocks than containers for instance. Of each disk: how many blocks only it
    /// needs, which of the shared blocks it needs, and which it would need without regard to disks. Blocks are numbered
    /// from 0 on, the shared ones and the others each by themselves.
    ///
    /// # Panics
    /// Where the lists are of different numbers of disks.
    pub fn new(own: Vec<u32>, shared: Vec<Vec<u32>>, oblivious: Vec<Vec<u32>>) -> Self {
        assert!(own.len() == shared.len() && own.len() == oblivious.len(), "not of the same disks");
        Sharing { own, shared, oblivious, damaged: Vec::new() }
    }

    /// Disks.
    pub fn disks(&self) -> usize {
        self.own.len()
    }

    /// Of each disk: how many blocks only it needs.
    pub fn own(&self) -> &[u32] {
        &self.own
    }

    /// Of each disk: numbers of the shared blocks that it needs.
    pub fn shared(&self) -> &[Vec<u32>] {
        &self.shared
    }

    /// Of each disk: numbers of the blocks that it would need without regard to disks.
    pub fn oblivious(&self) -> &[Vec<u32>] {
        &self.oblivious
    }

    /// Blocks of a disk on average: its own (N1), shared ones (N2), and without regard to disks (No).
    pub fn blocks(&self) -> (f64, f64, f64) {
        let disks = self.disks().max(1) as f64;
        let mean = |lists: &[Vec<u32>]| lists.iter().map(Vec::len).sum::<usize>() as f64 / disks;
        (
            self.own.iter().map(|n| f64::from(*n)).sum::<f64>() / disks,
            mean(&self.shared),
            mean(&self.oblivious),
        )
    }

    /// The part of the disks that is available when `failed` machines have failed.
    ///
    /// # Errors
    /// `Usage` where there are not that many machines.
    pub fn availability(&self, cluster: Cluster, failed: u32) -> Result<Availability> {
        cluster.check(failed)?;
        let (n1, n2, no) = self.blocks();
        let a = cluster.block_availability(failed, cluster.replicas);
        let a_shared = cluster.block_availability(failed, cluster.shared_replicas);
        Ok(Availability { oblivious: a.powf(no), centric: a.powf(n1) * a_shared.powf(n2) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Table 9 of the paper: p = 100, in percent.
    #[test]
    fn blocks_are_as_available_as_published() {
        for (failed, replicas, percent) in [
            (3, 3, 99.999381571),
            (5, 3, 99.993815708),
            (10, 3, 99.925788497),
            (20, 3, 99.294990724),
            (10, 6, 99.999982383),
            (20, 6, 99.996748465),
            (3, 6, 100.0),
            (10, 9, 99.999999999),
            (20, 9, 99.99999117),
        ] {
            let a = 100.0 * Cluster::default().block_availability(failed, replicas);
            assert!((a - percent).abs() < 2e-9, "d = {failed}, r = {replicas}: {a}");
        }
    }

    #[test]
    fn shared_blocks_are_weighted_by_their_replicas() {
        let same = |blocks: u32| vec![(0..blocks).collect(); 40];
        let sharing = Sharing::new(vec![30; 40], same(5), same(200));
        assert_eq!(sharing.blocks(), (30.0, 5.0, 200.0));
        let cluster = Cluster::default();
        for failed in [3, 10, 20] {
            let (own, shared) =
                (cluster.block_availability(failed, 3), cluster.block_availability(failed, 6));
            let a = sharing.availability(cluster, failed).unwrap();
            assert!((a.centric - own.powi(30) * shared.powi(5)).abs() < 1e-12, "{failed}: {a:?}");
            assert!((a.oblivious - own.powi(200)).abs() < 1e-12, "{failed}: {a:?}");
        }
        assert!(sharing.availability(Cluster { machines: 5, ..cluster }, 3).is_err());
    }
}
