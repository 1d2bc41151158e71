//! Blocks that leaves of maps name in the same range of 2 MiB: found, hashed, and shared in one transaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chunk::Fingerprint;
use format::pool::{Home, MapEntry, PoolBlock, Sharing, VolumeBlock, VolumeId, BLOCK_BYTES};
use xxhash_rust::xxh3::xxh3_64;

use super::stats::ScanCounters;
use crate::engine::{can_share, Engine, Need, Page, Transaction};
use crate::error::Result;
use crate::filter::prefix;
use crate::volume::{entry_of, InFlight, Volume};

/// What may name blocks: a volume, a snapshot, or what is being deleted.
pub(crate) struct Holder {
    /// To walk its map.
    pub volume: Volume,
    /// Its id.
    pub id: VolumeId,
    /// What it was made from.
    pub origin: Option<VolumeId>,
    /// When its blocks are shared.
    pub sharing: Sharing,
    /// It is being deleted.
    pub is_deleted: bool,
}

/// A block without a fingerprint.
#[derive(Clone, Copy)]
pub(super) struct Unshared {
    pub block: PoolBlock,
    pub home: Home,
    /// Slots that name it.
    pub count: u32,
}

/// What becomes of a block that was hashed.
#[derive(Clone, Copy)]
enum Target {
    /// No other has its content: it gets its fingerprint.
    Own,
    /// This block has its content.
    Block(PoolBlock),
    /// Another one of the same leaf has its content, and gets the fingerprint.
    Twin(usize),
}

struct Hashed {
    block: PoolBlock,
    /// The slot of leaves.
    slot: usize,
    /// What leaves have there if they name it.
    entry: MapEntry,
    content_hash: u64,
    fingerprint: Fingerprint,
    target: Target,
}

/// Blocks of one leaf, and who may name them.
pub(super) struct LeafScan<'a> {
    pub engine: &'a Engine,
    pub in_flight: &'a InFlight,
    pub holders: &'a [Holder],
    pub counters: &'a ScanCounters,
}

impl LeafScan<'_> {
    /// Shares blocks whose homes are in the same leaf of the same volume. Returns how many blocks were read.
    pub fn share(&self, blocks: &[PoolBlock]) -> Result<u64> {
        // What was looked up stays as it is: if the transaction finds a block in use, its content is what was hashed.
        let _guard = self.engine.read_guard();
        let unshared: Vec<Unshared> = blocks.iter().filter_map(|block| self.look_up(*block)).collect();
        let Some(first) = unshared.first() else { return Ok(0) };
        let start = first.home.block.leaf_start();
        let home = first.home.volume;
        let (holders, entries) = self.find(home, start, &unshared);
        // The mode of the volume that wrote a block decides, even if only a clone has the block now. If that volume is gone,
        // the modes of those that have it decide.
        let is_gone = !self.holders.iter().any(|holder| holder.id == home && !holder.is_deleted);
        if is_gone && holders.iter().all(|holder| holder.sharing == Sharing::Off) {
            return Ok(0);
        }
        let (mut hashed, read) = self.hash(&unshared, &entries);
        // Nobody else writes what is claimed until this is done. What others write now is left to the next scan.
        let mut claims = self.in_flight.claims();
        let mut claimed = HashSet::new();
        hashed.retain(|Hashed { fingerprint, .. }| {
            claimed.contains(fingerprint) || claims.claim(*fingerprint) && claimed.insert(*fingerprint)
        });
        let mut search = self.engine.search();
        let mut own: HashMap<Fingerprint, usize> = HashMap::new();
        for (n, item) in hashed.iter_mut().enumerate() {
            item.target = match own.get(&item.fingerprint) {
                Some(first) => Target::Twin(*first),
                None => match search.find(&item.fingerprint) {
                    Some(block) => Target::Block(block),
                    None => {
                        own.insert(item.fingerprint, n);
                        Target::Own
                    }
                },
            };
        }
        self.commit(start, &holders, &hashed)?;
        Ok(read)
    }

    /// What the fingerprint store says of a block, if it is one to look at. A fingerprint store that cannot be read is found by
    /// others.
    fn look_up(&self, block: PoolBlock) -> Option<Unshared> {
        let (entry, bytes) = self.engine.fingerprint_entry(block).ok()?;
        let home = Home::decode(&bytes.0);
        entry.is_unshared().then_some(Unshared { block, home, count: entry.count })
    }

    /// Who leads to leaves that name the blocks, and what those have in the blocks' slots. First the volume that wrote them
    /// is asked, then its snapshots, then all others, until all slots are found that the counts tell of.
    fn find(
        &self,
        home: VolumeId,
        start: VolumeBlock,
        unshared: &[Unshared],
    ) -> (Vec<&Holder>, Vec<Option<MapEntry>>) {
        let mut holders: Vec<&Holder> = self.holders.iter().collect();
        holders.sort_by_key(|holder| match holder {
            Holder { id, .. } if *id == home => 0,
            Holder { origin, .. } if *origin == Some(home) => 1,
            _ => 2,
        });
        let mut leaves: Vec<PoolBlock> = Vec::new();
        let mut entries = vec![None; unshared.len()];
        let mut missing: u64 = unshared.iter().map(|one| u64::from(one.count)).sum();
        holders.retain(|holder| {
            if missing == 0 {
                return false;
            }
            // A map that is damaged is found by its readers.
            let Ok(Some(leaf)) = holder.volume.any_leaf(start) else { return false };
            if leaves.contains(&leaf.block) {
                return false;
            }
            leaves.push(leaf.block);
            let mut names_one = false;
            for (one, found) in unshared.iter().zip(&mut entries) {
                let entry = entry_of(&leaf, one.home.block.slot());
                if entry.block() == Some(one.block) {
                    *found = Some(entry);
                    names_one = true;
                    missing = missing.saturating_sub(1);
                }
            }
            names_one
        });
        (holders, entries)
    }

    /// Reads and hashes blocks that leaves name. A block that cannot be read, or is not what was written, is left to its
    /// readers.
    fn hash(&self, unshared: &[Unshared], entries: &[Option<MapEntry>]) -> (Vec<Hashed>, u64) {
        let mut named: Vec<(Unshared, MapEntry)> =
            unshared.iter().zip(entries).filter_map(|(one, entry)| Some((*one, (*entry)?))).collect();
        named.sort_by_key(|(one, _)| one.block);
        let (mut hashed, mut fingerprints) = (Vec::with_capacity(named.len()), Vec::new());
        let mut data = Vec::new();
        for run in named.chunk_by(|a, b| a.0.block.0 + 1 == b.0.block.0) {
            data.resize(run.len() * BLOCK_BYTES, 0);
            if self.engine.read_blocks(run[0].0.block, &mut data).is_err() {
                continue;
            }
            fingerprints.clear();
            chunk::fingerprints(&data, &vec![BLOCK_BYTES as u32; run.len()], &mut fingerprints);
            for (((one, entry), fingerprint), content) in
                run.iter().zip(&fingerprints).zip(data.chunks_exact(BLOCK_BYTES))
            {
                let content_hash = xxh3_64(content);
                if entry.checks(content_hash) {
                    hashed.push(Hashed {
                        block: one.block,
                        slot: one.home.block.slot(),
                        entry: *entry,
                        content_hash,
                        fingerprint: *fingerprint,
                        target: Target::Own,
                    });
                }
            }
        }
        self.counters.add_hashed(named.len() as u64);
        (hashed, named.len() as u64)
    }

    /// Changes maps, counts and fingerprints.
    fn commit(&self, start: VolumeBlock, holders: &[&Holder], hashed: &[Hashed]) -> Result<()> {
        let own = || hashed.iter().filter(|item| matches!(item.target, Target::Own));
        for item in own() {
            // Before the fingerprint store says so: freeing the block removes the entry again.
            self.engine.filter.insert(prefix(&item.fingerprint), item.block);
        }
        let done = self.engine.transact(|t| change(t, start, holders, hashed));
        let identified = done.as_ref().map_or(&[][..], |done| done.identified.as_slice());
        for item in own().filter(|item| !identified.contains(&item.block)) {
            self.engine.filter.remove(prefix(&item.fingerprint), item.block);
        }
        match done {
            Ok(done) => self.counters.add_shared(done.shared),
            // Readers find maps and fingerprint stores that are damaged or cannot be read. A pool that failed is the end.
            Err(_) => self.engine.check_alive()?,
        }
        Ok(())
    }
}

/// What a transaction did.
struct Change {
    /// Blocks that got their fingerprints.
    identified: Vec<PoolBlock>,
    /// Blocks whose slots name others now.
    shared: u64,
}

/// Each slot that still names a block names another one of the same content from now on. Leaves that several maps lead to
/// are changed as well: all of them show the same as before. What was written over meanwhile stays as it is.
fn change(
    t: &mut Transaction<'_>,
    start: VolumeBlock,
    holders: &[&Holder],
    hashed: &[Hashed],
) -> std::result::Result<Change, Need> {
    let mut leaves: Vec<Arc<Page>> = Vec::new();
    for holder in holders {
        if let Some(leaf) = holder.volume.any_leaf_now(t, start)? {
            if leaves.iter().all(|other| other.block != leaf.block) {
                leaves.push(leaf);
            }
        }
    }
    let mut done = Change { identified: Vec::new(), shared: 0 };
    for item in hashed {
        let (entry, _) = t.entry(item.block)?;
        let names_it = |leaf: &&Arc<Page>| entry_of(leaf, item.slot) == item.entry;
        let naming: Vec<&Arc<Page>> = leaves.iter().filter(names_it).collect();
        if !entry.is_unshared() || naming.is_empty() {
            continue;
        }
        let target = match item.target {
            Target::Own => {
                t.identify(item.block, item.fingerprint);
                done.identified.push(item.block);
                continue;
            }
            Target::Twin(first) => Some(hashed[first].block).filter(|block| done.identified.contains(block)),
            Target::Block(block) => {
                let (entry, fingerprint) = t.entry(block)?;
                Some(block).filter(|_| can_share(entry) && fingerprint == item.fingerprint)
            }
        };
        let Some(target) = target else { continue };
        for leaf in &naming {
            t.set_map(leaf, item.slot, &[MapEntry::data(target, item.content_hash)]);
        }
        t.refer(target, naming.len() as i64);
        t.refer(item.block, -(naming.len() as i64));
        done.shared += 1;
    }
    Ok(done)
}
