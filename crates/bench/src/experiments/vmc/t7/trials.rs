//! Trials of failures: every block gets machines of its own by chance, and disks that lost a block are counted.

use crate::images::generate::Random;
use vault::{Cluster, Sharing};

/// The part of the disks that is available, over all trials.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Without regard to disks.
    pub oblivious: f64,
    /// As they are.
    pub centric: f64,
}

/// Tries so many failures of `failed` machines, each with other places of all blocks. The cluster must have that many
/// machines.
pub fn count(sharing: &Sharing, cluster: Cluster, failed: u32, trials: u32, seed: u64) -> Counted {
    let of_own = cluster.block_availability(failed, cluster.replicas);
    let mut random = Random::new(seed);
    let (mut oblivious, mut centric) = (0u64, 0u64);
    for _ in 0..trials {
        let mut lost = |lists: &[Vec<u32>], replicas: u32| -> Vec<bool> {
            let blocks = lists.iter().flatten().max().map_or(0, |last| last + 1);
            (0..blocks).map(|_| is_lost(&mut random, cluster.machines, failed, replicas)).collect()
        };
        let shared = lost(sharing.shared(), cluster.shared_replicas);
        let blocks = lost(sharing.oblivious(), cluster.replicas);
        let any = |list: &[u32], lost: &[bool]| list.iter().any(|n| lost[*n as usize]);
        for disk in 0..sharing.disks() {
            // Only this disk needs its own blocks: one draw stands for all of them.
            let is_own_there = random.unit() < of_own.powi(sharing.own()[disk] as i32);
            centric += u64::from(is_own_there && !any(&sharing.shared()[disk], &shared));
            oblivious += u64::from(!any(&sharing.oblivious()[disk], &blocks));
        }
    }
    let tried = (u64::from(trials) * sharing.disks() as u64).max(1) as f64;
    Counted { oblivious: oblivious as f64 / tried, centric: centric as f64 / tried }
}

/// Puts the replicas of a block on different machines. Returns whether all of these failed: the first `failed` ones did.
fn is_lost(random: &mut Random, machines: u32, failed: u32, replicas: u32) -> bool {
    let mut places = Vec::with_capacity(replicas as usize);
    while places.len() < replicas as usize {
        let machine = random.below(u64::from(machines));
        if machine >= u64::from(failed) {
            return false;
        }
        if !places.contains(&machine) {
            places.push(machine);
        }
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn trials_agree_with_the_formula() {
        let disks = 40;
        let same = |blocks: u32| (0..disks).map(|_| (0..blocks).collect()).collect();
        let sharing = Sharing::new(vec![30; disks], same(5), same(200));
        let cluster = Cluster::default();
        for failed in [3, 10, 20] {
            let (by_formula, counted) =
                (sharing.availability(cluster, failed).unwrap(), count(&sharing, cluster, failed, 300, 1));
            assert!(
                (by_formula.centric - counted.centric).abs() < 0.03,
                "{failed}: {by_formula:?} {counted:?}"
            );
            // All disks share the same blocks: trials differ, disks within a trial do not.
            assert!(
                (by_formula.oblivious - counted.oblivious).abs() < 0.1,
                "{failed}: {by_formula:?} {counted:?}"
            );
        }
    }

    #[test]
    fn blocks_without_failures_are_never_lost() {
        let mut random = Random::new(7);
        assert!((0..1000).all(|_| !is_lost(&mut random, 10, 2, 3)));
        assert!((0..1000).all(|_| is_lost(&mut random, 10, 10, 3)));
    }
}
