//! The file allocation table: which cluster follows which.

use super::boot::{Geometry, Width, FIRST_CLUSTER};
use super::error::damaged;
use crate::bytes::{le16, le32};
use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::Result;
use std::fmt;
use std::sync::Arc;

/// The table is read so much at a time; a multiple of what entries of every width have together.
const WINDOW_BYTES: u64 = 48 << 10;
const WINDOWS_KEPT_BYTES: usize = 4 << 20;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Cluster(u32),
    End,
    /// It is free, or bad.
    Nothing,
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::Cluster(n) => write!(f, "cluster {n:#x}"),
            Next::End => f.write_str("the end"),
            Next::Nothing => f.write_str("a free or bad cluster"),
        }
    }
}

/// The first of the tables.
pub(super) struct Table {
    windows: Cache<u64, Arc<[u8]>>,
}

/// Clusters one behind the other on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first cluster.
    pub first: u32,
    /// How many there are.
    pub clusters: u64,
}

/// How many clusters a chain has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// So many are needed; it may go on behind them.
    Exactly(u64),
    /// It says itself where it ends.
    UpTo(u64),
}

impl Table {
    /// Nothing of it was read yet.
    pub fn new() -> Table {
        Table { windows: Cache::new(WINDOWS_KEPT_BYTES) }
    }

    /// The clusters of a chain.
    pub fn chain(&self, disk: &dyn Disk, g: &Geometry, first: u32, count: Count) -> Result<Vec<Run>> {
        let wrong = |why: String| damaged(format!("the chain from cluster {first:#x} on"), why);
        let (needed, limit) = match count {
            Count::Exactly(needed) => (needed, needed),
            Count::UpTo(limit) => (1, limit.min(g.clusters)),
        };
        if needed > g.clusters {
            return Err(wrong(format!("{needed} clusters are needed, and there are {}", g.clusters)));
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut window = (u64::MAX, Arc::from([]));
        let mut next = Next::Cluster(first);
        let mut done = 0;
        loop {
            let cluster = match next {
                Next::End if done >= needed => return Ok(runs),
                _ if matches!(count, Count::Exactly(_)) && done == needed => return Ok(runs),
                Next::Cluster(cluster) if g.place(cluster).is_some() => cluster,
                found => {
                    return Err(wrong(format!("after {done} clusters comes {found}, of {}", g.clusters)))
                }
            };
            if done == limit {
                return Err(wrong(format!("it has a loop, or more than {limit} clusters")));
            }
            match runs.last_mut().filter(|r| u64::from(r.first) + r.clusters == u64::from(cluster)) {
                Some(last) => last.clusters += 1,
                None => runs.push(Run { first: cluster, clusters: 1 }),
            }
            done += 1;
            next = self.next(disk, g, cluster, &mut window)?;
        }
    }

    /// What follows a cluster. The window is the one that was used last.
    fn next(&self, disk: &dyn Disk, g: &Geometry, cluster: u32, held: &mut (u64, Arc<[u8]>)) -> Result<Next> {
        let cluster = u64::from(cluster);
        let at = match g.width {
            Width::Fat12 => cluster + cluster / 2,
            Width::Fat16 => cluster * 2,
            Width::Fat32 => cluster * 4,
        };
        let window = at / WINDOW_BYTES;
        if held.0 != window {
            *held = (window, self.window(disk, g, window)?);
        }
        let within = (at % WINDOW_BYTES) as usize;
        let (bytes, bad) = (&held.1, |bits: u32| 0x0fff_fff7 & ((1 << bits) - 1));
        let (entry, bad) = match g.width {
            Width::Fat12 => {
                let pair = le16(bytes, within).map(u32::from);
                (pair.map(|pair| if cluster % 2 == 0 { pair & 0xfff } else { pair >> 4 }), bad(12))
            }
            Width::Fat16 => (le16(bytes, within).map(u32::from), bad(16)),
            Width::Fat32 => (le32(bytes, within).map(|n| n & 0x0fff_ffff), bad(28)),
        };
        Ok(match entry {
            Some(n) if n > bad => Next::End,
            Some(n) if n < FIRST_CLUSTER || n == bad => Next::Nothing,
            Some(n) => Next::Cluster(n),
            None => Next::Nothing,
        })
    }

    /// A piece of the table, with a byte of the next one: an entry of FAT12 may lie across.
    fn window(&self, disk: &dyn Disk, g: &Geometry, window: u64) -> Result<Arc<[u8]>> {
        if let Some(held) = self.windows.get(window) {
            return Ok(held);
        }
        let from = window * WINDOW_BYTES;
        let mut bytes = vec![0; (WINDOW_BYTES + 1).min(g.table_bytes.saturating_sub(from)) as usize];
        disk.read_at(g.table + from, &mut bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        self.windows.put(window, bytes.clone(), WINDOW_BYTES as usize);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::boot::RootPlace;
    use super::*;
    use crate::memory::Memory;
    use Next::{Cluster, End, Nothing};

    /// A volume with nothing but a table, that says what follows the clusters from 2 on.
    fn volume(width: Width, nexts: &[Next]) -> (Memory, Geometry) {
        let mut bytes = vec![0; (nexts.len() + 2) * 4];
        let number = |next: &Next, bits: u32| match next {
            Cluster(n) => *n,
            End => 0x0fff_fff8 & ((1 << bits) - 1),
            Nothing => 0x0fff_fff7 & ((1 << bits) - 1),
        };
        for (n, next) in (2..).zip(nexts) {
            match width {
                Width::Fat12 => {
                    let (at, shift) = (n + n / 2, n % 2 * 4);
                    let pair = u32::from(bytes[at]) | number(next, 12) << shift;
                    bytes[at..at + 2].copy_from_slice(&(pair as u16).to_le_bytes());
                }
                Width::Fat16 => {
                    bytes[n * 2..n * 2 + 2].copy_from_slice(&(number(next, 16) as u16).to_le_bytes())
                }
                Width::Fat32 => {
                    bytes[n * 4..n * 4 + 4].copy_from_slice(&(number(next, 28) | 0xf000_0000).to_le_bytes());
                }
            }
        }
        let geometry = Geometry {
            width,
            cluster_bytes: 512,
            clusters: nexts.len() as u64,
            table: 0,
            table_bytes: bytes.len() as u64,
            root: RootPlace::Chain(2),
            data: 0,
            size: 0,
            label: Vec::new(),
            is_dirty: false,
        };
        (Memory(bytes), geometry)
    }

    #[test]
    fn chains_are_runs() {
        let nexts = [
            Cluster(3),
            Cluster(4),
            Cluster(7),
            End,
            Nothing,
            Cluster(8),
            End,
            Cluster(8),
            Cluster(99),
            Cluster(2),
        ];
        for width in [Width::Fat12, Width::Fat16, Width::Fat32] {
            let (disk, g) = volume(width, &nexts);
            let chain = |first, count| {
                let runs = Table::new().chain(&disk, &g, first, count).map_err(|why| why.to_string())?;
                Ok(runs.iter().map(|r| (r.first, r.clusters)).collect::<Vec<_>>())
            };
            let wrong = |first, count| -> String { chain(first, count).expect_err("a bad chain") };
            assert_eq!(chain(2, Count::UpTo(9)), Ok(vec![(2, 3), (7, 2)]));
            assert_eq!(chain(2, Count::Exactly(5)), Ok(vec![(2, 3), (7, 2)]));
            assert_eq!(chain(2, Count::Exactly(2)), Ok(vec![(2, 2)]));
            assert_eq!(chain(0, Count::Exactly(0)), Ok(vec![]));
            assert!(wrong(2, Count::Exactly(6)).contains("after 5 clusters comes the end"));
            assert!(wrong(6, Count::UpTo(9)).contains("a free or bad cluster"));
            assert!(wrong(10, Count::UpTo(9)).contains("cluster 0x63"));
            assert!(wrong(0, Count::UpTo(9)).contains("cluster 0x0"));
            assert!(wrong(2, Count::UpTo(4)).contains("loop"));
            assert!(wrong(2, Count::Exactly(11)).contains("11 clusters are needed"));
            let (disk, g) = volume(width, &[Cluster(3), Cluster(2)]);
            assert!(Table::new().chain(&disk, &g, 2, Count::UpTo(9)).is_err());
        }
    }
}
