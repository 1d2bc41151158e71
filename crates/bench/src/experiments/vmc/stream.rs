//! The chunks of a cluster's snapshots as they go by, what a perfect scheme keeps of them, and what stateless routing with
//! binning keeps (VM-centric 5; Dong et al. 2011, Bhagwat et al. 2009).
//!
//! Routing is simulated: every changed segment goes to the machine that its least fingerprint names, where its chunks are
//! compared with all that the machine has. A segment that has not changed goes nowhere.

use std::collections::HashSet;
use std::sync::mpsc::{sync_channel, SyncSender};
use std::thread;

use anyhow::{Context as _, Result};
use chunk::{ChunkSpec, Fingerprint, Piece};
use serde::Serialize;

use crate::run::check_interrupted;
use crate::workload::{Cluster, Day};

/// Of a fingerprint in the index of a machine: 20 bytes of hash, 8 of address, 4 of length and references.
const ENTRY_BYTES: u64 = 32;

/// How the vault under comparison cuts disks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    pub chunking: ChunkSpec,
    pub segment_bytes: u32,
}

/// A changed segment: its chunks that are not null, by the first half of their fingerprints, and their lengths.
struct Segment {
    chunks: Vec<(u128, u32)>,
    signature: u64,
}

/// What there is to deduplicate.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Perfect {
    /// Bytes that are not null, in all snapshots of all disks.
    pub logical_bytes: u64,
    /// The same of segments that changed.
    pub changed_bytes: u64,
    /// Distinct chunks.
    pub chunks: u64,
    /// Their bytes: what a perfect scheme keeps.
    pub distinct_bytes: u64,
}

impl Perfect {
    /// The part of the duplicates that is removed where so many bytes are kept.
    pub fn efficiency(&self, kept_bytes: u64) -> f64 {
        let removed = self.logical_bytes as f64 - kept_bytes as f64;
        removed / (self.logical_bytes - self.distinct_bytes).max(1) as f64
    }
}

/// What routing keeps.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Routed {
    /// Machines, p.
    pub machines: usize,
    /// Bytes of chunks that all machines keep.
    pub kept_bytes: u64,
    /// Bytes of the index of a machine, on average and of the largest.
    pub index_bytes_mean: u64,
    pub index_bytes_max: u64,
}

/// What all changed segments hold.
pub struct Stream {
    pub perfect: Perfect,
    pub routed: Vec<Routed>,
}

/// A router and its machines.
struct Router {
    machines: Vec<HashSet<u128>>,
    kept_bytes: u64,
}

impl Router {
    fn new(machines: usize) -> Self {
        Self { machines: vec![HashSet::new(); machines.max(1)], kept_bytes: 0 }
    }

    fn add(&mut self, segment: &Segment) {
        let count = self.machines.len() as u64;
        let machine = &mut self.machines[(segment.signature % count) as usize];
        for &(fingerprint, bytes) in &segment.chunks {
            if machine.insert(fingerprint) {
                self.kept_bytes += u64::from(bytes);
            }
        }
    }

    fn finish(self) -> Routed {
        let sizes = || self.machines.iter().map(|machine| machine.len() as u64 * ENTRY_BYTES);
        Routed {
            machines: self.machines.len(),
            kept_bytes: self.kept_bytes,
            index_bytes_mean: sizes().sum::<u64>() / self.machines.len() as u64,
            index_bytes_max: sizes().max().unwrap_or(0),
        }
    }
}

/// Goes through all disks and days; `machines` are the numbers of machines that routing is simulated for.
pub fn stream(cluster: &Cluster, cut: Cut, machines: &[usize]) -> Result<Stream> {
    let mut perfect = Perfect::default();
    let mut seen: HashSet<u128> = HashSet::new();
    let mut routers: Vec<Router> = machines.iter().map(|&p| Router::new(p)).collect();
    let threads = thread::available_parallelism().map_or(2, |n| n.get());
    thread::scope(|scope| -> Result<()> {
        let (out, segments) = sync_channel::<Segment>(64);
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let out = out.clone();
                scope.spawn(move || -> Result<u64> {
                    let disks = (worker..cluster.shape().disks).step_by(threads);
                    disks.map(|disk| cut_disk(cluster, disk, cut, &out)).sum()
                })
            })
            .collect();
        drop(out);
        for segment in segments {
            for &(fingerprint, bytes) in &segment.chunks {
                perfect.changed_bytes += u64::from(bytes);
                if seen.insert(fingerprint) {
                    perfect.chunks += 1;
                    perfect.distinct_bytes += u64::from(bytes);
                }
            }
            routers.iter_mut().for_each(|router| router.add(&segment));
        }
        for worker in workers {
            let logical_bytes = worker.join().ok().context("a thread has failed")??;
            perfect.logical_bytes += logical_bytes;
        }
        Ok(())
    })?;
    Ok(Stream { perfect, routed: routers.into_iter().map(Router::finish).collect() })
}

/// Cuts what of a disk changes from day to day. Returns the bytes of all its versions.
fn cut_disk(cluster: &Cluster, disk: usize, cut: Cut, out: &SyncSender<Segment>) -> Result<u64> {
    let mut data = vec![0; cut.segment_bytes as usize];
    let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
    let segment_bytes = u64::from(cut.segment_bytes);
    let mut logical_bytes = 0;
    for (no, Day { version, changes }) in cluster.days(disk).take(cluster.shape().days).enumerate() {
        check_interrupted()?;
        logical_bytes += version.nonzero_bytes;
        for start in (0..version.size_bytes).step_by(cut.segment_bytes as usize) {
            if no > 0 && !changes.touch(start..start + segment_bytes) {
                continue;
            }
            let length = version.read_at(start, &mut data)?;
            pieces.clear();
            fingerprints.clear();
            chunk::cut(&data[..length], cut.chunking, &mut pieces);
            chunk::fingerprint_pieces(&data[..length], &pieces, &mut fingerprints);
            let Some(signature) = chunk::signature(&fingerprints) else { continue };
            let data = pieces.iter().filter(|p| matches!(p, Piece::Data { .. }));
            let chunks = fingerprints.iter().map(half).zip(data.map(|p| p.bytes())).collect();
            // Nobody listens any more where the other side has failed.
            let _ = out.send(Segment { chunks, signature });
        }
    }
    Ok(logical_bytes)
}

/// Half a fingerprint tells chunks apart well enough to count them.
fn half(fingerprint: &Fingerprint) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(&fingerprint.0[..16]);
    u128::from_le_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(signature: u64, chunks: &[u128]) -> Segment {
        Segment { chunks: chunks.iter().map(|c| (*c, 1000)).collect(), signature }
    }

    #[test]
    fn a_chunk_is_kept_once_by_every_machine_that_gets_it() {
        let mut router = Router::new(2);
        router.add(&segment(0, &[1, 2, 3, 3]));
        router.add(&segment(2, &[2, 3, 4]));
        router.add(&segment(1, &[1, 2]));
        let routed = router.finish();
        assert_eq!(routed.kept_bytes, 6000);
        assert_eq!((routed.index_bytes_mean, routed.index_bytes_max), (96, 128));
    }

    #[test]
    fn efficiency_is_one_where_nothing_is_kept_twice() {
        let perfect = Perfect { logical_bytes: 100, changed_bytes: 50, chunks: 5, distinct_bytes: 20 };
        assert_eq!(perfect.efficiency(20), 1.0);
        assert_eq!(perfect.efficiency(60), 0.5);
        assert_eq!(perfect.efficiency(100), 0.0);
    }
}
