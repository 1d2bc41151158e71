//! Writing a volume, with inline sharing (LiveDFS, 2.2).

use std::collections::{HashMap, HashSet};

use chunk::Fingerprint;
use format::pool::{Home, MapEntry, PoolBlock, Sharing, VolumeBlock, BLOCK_BYTES, MAP_SLOTS};
use xxhash_rust::xxh3::xxh3_64;

use super::in_flight::{ByOwnBytes, Claims};
use super::map::{entry_of, Walk};
use super::Volume;
use crate::engine::{Identity, Need, Run, Transaction};
use crate::error::Result;
use crate::filter::prefix;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks that are written together.
const PIECE_BLOCKS: usize = 256;

/// What becomes of a block that is written.
#[derive(Clone, Copy)]
enum Plan {
    /// It is zero: nothing is stored.
    Null,
    /// A block has its content already.
    Share(PoolBlock),
    /// It was written to a new block.
    New(PoolBlock),
    /// Another block of the same write has its content.
    Twin(usize),
    /// Another writer has its content under way.
    Later,
}

/// Blocks to write, all mapped by one leaf.
struct Piece<'a> {
    first: VolumeBlock,
    data: &'a [u8],
    /// None of null blocks, or where nothing is shared now.
    fingerprints: Vec<Option<Fingerprint>>,
    is_null: Vec<bool>,
    /// What the map tells content by; of null blocks without meaning.
    checks: Vec<u64>,
    expected: Expected,
}

/// What a slot of the map must have for a write to take effect.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    /// Anything.
    Any,
    /// The one block is still this one.
    Entry(MapEntry),
    /// Nothing has been written or trimmed there: what arrives gives way to the guest.
    Absent,
}

/// What a transaction could not use.
#[derive(Default)]
struct Unused {
    /// Blocks that could not be shared after all.
    stale: Vec<usize>,
    /// New blocks that nothing names.
    unnamed: Vec<usize>,
}

enum Outcome {
    Done,
    /// The way to the leaf is not the volume's own.
    NotOwn,
    /// The block is not what was expected.
    Changed,
}

impl Volume {
    /// Writes `data` at `offset`. It is durable after the next flush.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable(offset, data.len() as u64)?;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (block, within) = (VolumeBlock::at(at), (at % BLOCK) as usize);
            let length = if within != 0 || rest.len() < BLOCK_BYTES {
                let length = rest.len().min(BLOCK_BYTES - within);
                self.engine.with_room(|| self.write_part(block, within, &rest[..length]))?;
                length
            } else {
                let in_leaf = MAP_SLOTS - block.slot();
                let blocks = (rest.len() / BLOCK_BYTES).min(in_leaf).min(PIECE_BLOCKS);
                let data = &rest[..blocks * BLOCK_BYTES];
                self.engine.with_room(|| self.write_blocks(block, data, Expected::Any))?;
                blocks * BLOCK_BYTES
            };
            at += length as u64;
            rest = &rest[length..];
        }
        Ok(())
    }

    /// Writes a part of a block: what stands around it is read, and must not change until it is written.
    pub(super) fn write_part(&self, block: VolumeBlock, within: usize, data: &[u8]) -> Result<()> {
        let mut whole = vec![0; BLOCK_BYTES];
        loop {
            let root = self.root();
            // No block that was looked up is used again while this goes on: an entry that is equal means an equal block.
            let guard = self.engine.read_guard();
            let expected = self.entries(block, block + 1)?[0];
            if Self::is_absent(&root, block, expected) {
                drop(guard);
                self.bring(block, block + 1)?;
                continue;
            }
            let size = self.size();
            let here = (size - block.offset()).min(BLOCK) as usize;
            self.read_at(block.offset(), &mut whole[..here])?;
            whole[within..within + data.len()].copy_from_slice(data);
            if self.write_blocks(block, &whole, Expected::Entry(expected))? {
                return Ok(());
            }
        }
    }

    /// Writes whole blocks. Returns whether the block was what was expected; of several, those count that are.
    pub(super) fn write_blocks(&self, first: VolumeBlock, data: &[u8], expected: Expected) -> Result<bool> {
        let clocks = &self.engine.clocks;
        let mut piece = clocks.hash.time(|| self.piece(first, data, expected));
        let mut todo: Vec<usize> = (0..piece.is_null.len()).collect();
        loop {
            let mut claims = self.in_flight.claims();
            let (mut plans, fresh) = clocks.find.time(|| self.plan(&mut piece, &todo, &mut claims));
            let runs = clocks.data.time(|| self.write_new(&piece, &fresh, &mut plans))?;
            match clocks.map.time(|| self.commit(&piece, &todo, &plans)) {
                Ok((Outcome::Changed, _)) => {
                    self.undo(&piece, &plans, runs);
                    return Ok(false);
                }
                Ok((_, Unused { stale, unnamed })) => {
                    self.undo_unnamed(&piece, &plans, &unnamed);
                    todo.retain(|n| matches!(plans[*n], Plan::Later) || stale.contains(n));
                }
                Err(error) => {
                    self.undo(&piece, &plans, runs);
                    return Err(error);
                }
            }
            drop(claims);
            if todo.is_empty() {
                return Ok(true);
            }
            for &n in &todo {
                if let (Plan::Later, Some(fingerprint)) = (plans[n], &piece.fingerprints[n]) {
                    self.in_flight.wait_for(fingerprint);
                }
            }
        }
    }

    fn piece<'a>(&self, first: VolumeBlock, data: &'a [u8], expected: Expected) -> Piece<'a> {
        let is_null: Vec<bool> = data.chunks_exact(BLOCK_BYTES).map(chunk::is_null).collect();
        let mut fingerprints = vec![None; is_null.len()];
        if self.sharing() == Sharing::Inline {
            let mut found = Vec::with_capacity(is_null.len());
            let mut at = 0;
            // Runs of blocks that are not null, so that they are hashed side by side.
            for run in is_null.chunk_by(|a, b| a == b) {
                if !run[0] {
                    let bytes = &data[at * BLOCK_BYTES..(at + run.len()) * BLOCK_BYTES];
                    found.clear();
                    chunk::fingerprints(bytes, &vec![BLOCK_BYTES as u32; run.len()], &mut found);
                    found.iter().enumerate().for_each(|(n, f)| fingerprints[at + n] = Some(*f));
                }
                at += run.len();
            }
        }
        // Here, not when the map is changed: that happens with the commit lock.
        let check = |(block, is_null): (&[u8], &bool)| if *is_null { 0 } else { xxh3_64(block) };
        let checks = data.chunks_exact(BLOCK_BYTES).zip(&is_null).map(check).collect();
        Piece { first, fingerprints, is_null, checks, data, expected }
    }

    /// What becomes of each block of `todo`, and those whose content nothing has.
    fn plan(
        &self,
        piece: &mut Piece<'_>,
        todo: &[usize],
        claims: &mut Claims<'_>,
    ) -> (Vec<Plan>, Vec<usize>) {
        let mut plans = vec![Plan::Later; piece.is_null.len()];
        let mut fresh = Vec::new();
        let mut twins: HashMap<Fingerprint, usize, ByOwnBytes> = HashMap::default();
        let mut search = self.engine.search();
        for &n in todo {
            plans[n] = match piece.fingerprints[n] {
                _ if piece.is_null[n] => Plan::Null,
                None => Plan::Twin(n),
                Some(fingerprint) => match twins.get(&fingerprint) {
                    Some(other) => Plan::Twin(*other),
                    None => match search.find(&fingerprint) {
                        Some(block) => Plan::Share(block),
                        // There may be one that the filter does not have yet. A block with a fingerprint would never be
                        // compared with it; one without is, in the background.
                        None if !self.engine.filter.is_complete() => {
                            piece.fingerprints[n] = None;
                            Plan::Twin(n)
                        }
                        None if claims.claim(fingerprint) => {
                            twins.insert(fingerprint, n);
                            Plan::Twin(n)
                        }
                        None => Plan::Later,
                    },
                },
            };
            if matches!(plans[n], Plan::Twin(own) if own == n) {
                fresh.push(n);
            }
        }
        (plans, fresh)
    }

    /// Writes blocks that nothing has the content of, in as few runs as the free space allows.
    fn write_new(&self, piece: &Piece<'_>, fresh: &[usize], plans: &mut [Plan]) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut rest = fresh;
        while !rest.is_empty() {
            let written = self.engine.allocate(&self.data, rest.len() as u32, self.urgency).and_then(|run| {
                runs.push(run);
                let (here, behind) = rest.split_at(run.count as usize);
                rest = behind;
                for (n, block) in here.iter().zip(run.first.0..) {
                    plans[*n] = Plan::New(PoolBlock(block));
                }
                self.write_run(piece, here, run.first)
            });
            if let Err(error) = written {
                runs.into_iter().for_each(|run| self.engine.give_back(run));
                return Err(error);
            }
        }
        for n in fresh {
            if let (Plan::New(block), Some(fingerprint)) = (plans[*n], &piece.fingerprints[*n]) {
                // Before the fingerprint store says so: freeing the block removes the entry again.
                self.engine.filter.insert(prefix(fingerprint), block);
            }
        }
        Ok(runs)
    }

    fn write_run(&self, piece: &Piece<'_>, blocks: &[usize], first: PoolBlock) -> Result<()> {
        let is_one_piece = blocks.windows(2).all(|w| w[0] + 1 == w[1]);
        if is_one_piece {
            let start = blocks[0] * BLOCK_BYTES;
            return self.engine.write_data(first, &piece.data[start..start + blocks.len() * BLOCK_BYTES]);
        }
        let mut bytes = Vec::with_capacity(blocks.len() * BLOCK_BYTES);
        for n in blocks {
            bytes.extend_from_slice(&piece.data[n * BLOCK_BYTES..(n + 1) * BLOCK_BYTES]);
        }
        self.engine.write_data(first, &bytes)
    }

    /// What was allocated is given back: nothing names it.
    fn undo(&self, piece: &Piece<'_>, plans: &[Plan], runs: Vec<Run>) {
        for (n, plan) in plans.iter().enumerate() {
            if let (Plan::New(block), Some(fingerprint)) = (plan, &piece.fingerprints[n]) {
                self.engine.filter.remove(prefix(fingerprint), *block);
            }
        }
        runs.into_iter().for_each(|run| self.engine.give_back(run));
    }

    /// The same, of blocks that the map did not come to name.
    fn undo_unnamed(&self, piece: &Piece<'_>, plans: &[Plan], unnamed: &[usize]) {
        for n in unnamed {
            let Plan::New(block) = plans[*n] else { continue };
            if let Some(fingerprint) = &piece.fingerprints[*n] {
                self.engine.filter.remove(prefix(fingerprint), block);
            }
            self.engine.give_back(Run { first: block, count: 1 });
        }
    }

    /// Lets the map name the blocks.
    fn commit(&self, piece: &Piece<'_>, todo: &[usize], plans: &[Plan]) -> Result<(Outcome, Unused)> {
        loop {
            let done = self.engine.transact(|t| self.map_blocks(t, piece, todo, plans))?;
            if !matches!(done.0, Outcome::NotOwn) {
                return Ok(done);
            }
            self.own_leaf(piece.first, self.urgency)?;
        }
    }

    fn map_blocks(
        &self,
        t: &mut Transaction<'_>,
        piece: &Piece<'_>,
        todo: &[usize],
        plans: &[Plan],
    ) -> std::result::Result<(Outcome, Unused), Need> {
        let is_filling = self.root().filled.is_some();
        let nothing = if is_filling { MapEntry::ZEROS } else { MapEntry::NONE };
        let mut unused = Unused::default();
        let leaf = match self.walk(t, piece.first)? {
            Walk::Leaf(leaf) => leaf,
            // Zeros over nothing.
            Walk::Missing(..) if !is_filling && todo.iter().all(|n| piece.is_null[*n]) => {
                return Ok((Outcome::Done, unused))
            }
            _ => return Ok((Outcome::NotOwn, unused)),
        };
        let slot = |n: usize| piece.first.slot() + n;
        match piece.expected {
            Expected::Entry(expected) if entry_of(&leaf, slot(0)) != expected => {
                return Ok((Outcome::Changed, unused));
            }
            Expected::Absent if !is_filling => return Ok((Outcome::Changed, unused)),
            _ => {}
        }
        // New blocks that a slot names by now.
        let (mut named, mut more) = (HashSet::new(), 0);
        for &n in todo {
            if matches!(piece.expected, Expected::Absent) && entry_of(&leaf, slot(n)) != MapEntry::NONE {
                continue;
            }
            let block = match plans[n] {
                Plan::Later => continue,
                Plan::Null => None,
                Plan::New(block) => Some(block),
                Plan::Twin(other) => match plans[other] {
                    Plan::New(block) | Plan::Share(block) => Some(block),
                    _ => continue,
                },
                Plan::Share(block) => {
                    let (entry, found) = t.entry(block)?;
                    if !crate::engine::can_share(entry) || Some(found) != piece.fingerprints[n] {
                        unused.stale.push(n);
                        continue;
                    }
                    Some(block)
                }
            };
            let entry = block.map_or(nothing, |block| MapEntry::data(block, piece.checks[n]));
            let old = entry_of(&leaf, slot(n));
            if old == entry {
                continue;
            }
            old.block().into_iter().for_each(|old| t.refer(old, -1));
            more += i64::from(block.is_some()) - i64::from(old.block().is_some());
            let is_new = match plans[n] {
                Plan::New(_) => true,
                Plan::Twin(other) => matches!(plans[other], Plan::New(_)),
                _ => false,
            };
            match block {
                // A twin is the first where the block that it is a twin of is not expected.
                Some(block) if is_new && named.insert(block) => {
                    let home = Home { volume: self.id, block: piece.first + n as u64 };
                    t.new_data(
                        block,
                        piece.fingerprints[n].map_or(Identity::Home(home), Identity::Fingerprint),
                    );
                }
                Some(block) => t.refer(block, 1),
                None => {}
            }
            t.set_map(&leaf, slot(n), &[entry]);
        }
        self.count(t, more);
        let is_unnamed = |n: &usize| matches!(plans[*n], Plan::New(block) if !named.contains(&block));
        unused.unnamed = todo.iter().copied().filter(is_unnamed).collect();
        Ok((Outcome::Done, unused))
    }
}
