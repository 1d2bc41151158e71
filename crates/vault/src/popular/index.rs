//! The index of the popular set: an object that never changes, and what backups find in it.
//!
//! A hit is a hint: its container is claimed, and the whole fingerprint is compared with the container's table.

use crate::claims::Claims;
use crate::error::{Named, Result, VaultError};
use crate::folder::Folder;
use crate::place::Found;
use crate::session::Session;
use crate::tables::Tables;
use chunk::Fingerprint;
use format::{decode_frame, encode_frame, names, ChunkNo, ContainerId, Kind, RunSet, WriterNo};
use std::collections::{BTreeMap, BTreeSet};

/// No index is longer.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// As many as an index takes with the list of their containers.
const CHUNKS_MAX: u64 = 60_000_000;
/// Fingerprint prefix, container's place in the list, chunk.
const ENTRY_BYTES: usize = 16;

/// A published set: its containers, then its chunks in order of their fingerprints.
pub(crate) struct PopularSet {
    body: Vec<u8>,
    containers: Vec<ContainerId>,
    first_entry: usize,
}

impl PopularSet {
    /// Whether an index takes so many chunks.
    pub fn check_len(chunks: usize) -> Result<()> {
        if chunks as u64 > CHUNKS_MAX {
            return Err(VaultError::Refused(format!(
                "{chunks} chunks are too many for the popular set, {CHUNKS_MAX} are the most; choose a smaller fraction"
            )));
        }
        Ok(())
    }

    /// Writes down a set, of [`CHUNKS_MAX`] chunks at most.
    pub fn publish(session: &Session, mut chunks: Vec<(u64, ContainerId, ChunkNo)>) -> Result<()> {
        chunks.sort_unstable();
        let containers: Vec<ContainerId> =
            chunks.iter().map(|c| c.1).collect::<BTreeSet<_>>().into_iter().collect();
        let bytes = 4 + containers.len() * 8 + chunks.len() * ENTRY_BYTES;
        let mut body = Vec::with_capacity(bytes);
        body.extend_from_slice(&(containers.len() as u32).to_le_bytes());
        containers.iter().for_each(|c| body.extend_from_slice(&c.raw().to_le_bytes()));
        for (prefix, container, chunk) in &chunks {
            let at = containers.partition_point(|c| c < container) as u32;
            body.extend_from_slice(&prefix.to_be_bytes());
            body.extend_from_slice(&at.to_le_bytes());
            body.extend_from_slice(&chunk.0.to_le_bytes());
        }
        let folder = &session.folder;
        let name = names::popular(session.writer);
        folder.store.put(&name, &[&encode_frame(Kind::Popular, folder.context(&name), &body)])?;
        Ok(())
    }

    fn decode(name: &str, body: Vec<u8>) -> Result<Self> {
        let wrong = |why: &str| VaultError::corrupt(name, why);
        let count = body.first_chunk::<4>().ok_or_else(|| wrong("is cut short"))?;
        let first_entry = 4 + u32::from_le_bytes(*count) as usize * 8;
        let list = body.get(4..first_entry).ok_or_else(|| wrong("is cut short"))?;
        if (body.len() - first_entry) % ENTRY_BYTES != 0 {
            return Err(wrong("has half an entry"));
        }
        let mut containers = Vec::new();
        for raw in list.chunks_exact(8) {
            let raw = raw.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            containers.push(ContainerId::from_raw(raw).map_err(VaultError::malformed(name))?);
        }
        Ok(PopularSet { body, containers, first_entry })
    }

    /// Chunks in it.
    pub fn len(&self) -> usize {
        (self.body.len() - self.first_entry) / ENTRY_BYTES
    }

    /// Chunks by container: what a sweep leaves alone.
    pub fn chunks(&self) -> BTreeMap<ContainerId, RunSet> {
        let mut runs: BTreeMap<ContainerId, Vec<(u32, u32)>> = BTreeMap::new();
        for (container, chunk) in (0..self.len()).filter_map(|n| self.place(n)) {
            runs.entry(container).or_default().push((chunk.0, 1));
        }
        runs.into_iter().map(|(id, runs)| (id, RunSet::from_unsorted(runs))).collect()
    }

    fn prefix(&self, n: usize) -> u64 {
        let at = self.first_entry + n * ENTRY_BYTES;
        self.body[at..at + 8].iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    fn place(&self, n: usize) -> Option<(ContainerId, ChunkNo)> {
        let at = self.first_entry + n * ENTRY_BYTES + 8;
        let number = |at: usize| self.body[at..at + 4].iter().rev().fold(0, |n, b| n << 8 | u32::from(*b));
        Some((*self.containers.get(number(at) as usize)?, ChunkNo(number(at + 4))))
    }

    /// Where a chunk may be. Prefixes are spread evenly: the first guess is where it would stand then, and the range
    /// around it is halved.
    fn find(&self, f: &Fingerprint) -> Option<(ContainerId, ChunkNo)> {
        let wanted = u64::from_be_bytes([f.0[0], f.0[1], f.0[2], f.0[3], f.0[4], f.0[5], f.0[6], f.0[7]]);
        let len = self.len();
        if len == 0 {
            return None;
        }
        let guess = ((u128::from(wanted) * len as u128) >> 64) as usize;
        let (mut low, mut high, mut step) = (guess, guess, 8);
        while low > 0 && self.prefix(low - 1) >= wanted {
            low = low.saturating_sub(step);
            step *= 4;
        }
        step = 8;
        while high < len && self.prefix(high) < wanted {
            high = (high + step).min(len);
            step *= 4;
        }
        // The first that is not smaller lies in low..=high.
        while low < high {
            let middle = low + (high - low) / 2;
            match self.prefix(middle) < wanted {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        (low < len && self.prefix(low) == wanted).then(|| self.place(low)).flatten()
    }
}

/// The prefix of a fingerprint, by which a set is sorted.
pub(super) fn prefix(fingerprint: &[u8]) -> u64 {
    fingerprint[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// The writers that have published a set, oldest first.
pub(crate) fn sets(folder: &Folder) -> Result<Vec<WriterNo>> {
    let mut writers = Vec::new();
    folder.store.list(names::POPULAR, &mut |e| {
        writers.extend(e.name.strip_prefix(names::POPULAR).and_then(|n| n.parse().ok()).map(WriterNo));
        Ok(())
    })?;
    writers.sort_unstable();
    Ok(writers)
}

/// The set that a writer published.
fn read_set(shared: &Folder, writer: WriterNo) -> Result<PopularSet> {
    let name = names::popular(writer);
    let frame = shared.store.read(&name, INDEX_BYTES_MAX + 4096).named()?;
    let body = decode_frame(Kind::Popular, shared.context(&name), &frame);
    PopularSet::decode(&name, body.map_err(VaultError::malformed(&name))?)
}

/// The set that was published last; `None` where there is none.
pub(crate) fn newest_set(shared: &Folder) -> Result<Option<PopularSet>> {
    // Whoever publishes a new one removes the old one.
    for _ in 0..3 {
        let Some(newest) = sets(shared)?.pop() else { return Ok(None) };
        match read_set(shared, newest) {
            Err(VaultError::Missing { .. }) => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}

/// The same; `None` also where it is damaged: that costs space only.
pub(crate) fn published(shared: &Folder) -> Result<Option<PopularSet>> {
    match newest_set(shared) {
        Err(e) if e.is_damage() => Ok(None),
        other => other,
    }
}

/// The popular set as a backup uses it.
pub(crate) struct PopularIndex {
    set: PopularSet,
    claims: Claims,
    matched: BTreeSet<ContainerId>,
}

impl PopularIndex {
    /// The set that was published last. Whatever keeps it from being read costs space only.
    pub fn load(shared: &Folder, session: &Session) -> Option<Self> {
        let set = published(shared).ok().flatten().filter(|set| set.len() > 0)?;
        Some(PopularIndex {
            set,
            claims: Claims::new(shared.clone(), session.token),
            matched: BTreeSet::new(),
        })
    }

    /// Looks up what has not been found. Hits count only in runs of `shortest` chunks that stand one behind the other in
    /// the set: shorter ones save less than reading them elsewhere costs.
    pub fn fill(
        &mut self,
        tables: &Tables,
        fingerprints: &[Fingerprint],
        lengths: &[u32],
        shortest: usize,
        found: &mut [Found],
    ) -> Result<()> {
        let hints: Vec<Found> = fingerprints
            .iter()
            .zip(&*found)
            .map(|(f, at)| if at.is_none() { self.set.find(f) } else { None })
            .collect();
        let mut from = 0;
        while from < hints.len() {
            let Some((container, first)) = hints[from] else {
                from += 1;
                continue;
            };
            let follows = |n: &usize| hints[from + n] == Some((container, ChunkNo(first.0 + *n as u32)));
            let count = (1..hints.len() - from).take_while(follows).count() + 1;
            if count >= shortest {
                self.take(tables, container, from..from + count, &hints, fingerprints, lengths, found)?;
            }
            from += count;
        }
        Ok(())
    }

    /// Takes the chunks of a run that are what the hints say.
    #[allow(clippy::too_many_arguments)]
    fn take(
        &mut self,
        tables: &Tables,
        container: ContainerId,
        run: std::ops::Range<usize>,
        hints: &[Found],
        fingerprints: &[Fingerprint],
        lengths: &[u32],
        found: &mut [Found],
    ) -> Result<()> {
        // Where the set cannot be reached, what is new is written.
        let claimed = match self.claims.claim(container) {
            Ok(Some(claimed)) => claimed,
            Ok(None) => return Ok(()),
            Err(e) if e.is_damage() => return Ok(()),
            Err(e) => return Err(e),
        };
        let table = match tables.load(&claimed.entry) {
            Err(e) if e.is_damage() => return Ok(()),
            other => other?,
        };
        for n in run {
            let Some((_, chunk)) = hints[n] else { continue };
            let Some(at) = table.index_of(chunk).filter(|_| !claimed.dead.contains(chunk.0)) else {
                continue;
            };
            if table.fingerprints[at] == fingerprints[n].0 && table.lengths[at] == lengths[n] {
                found[n] = hints[n];
                self.matched.insert(container);
            }
        }
        Ok(())
    }

    /// The popular containers that may be referenced by now.
    pub fn matched(&self) -> impl Iterator<Item = ContainerId> + '_ {
        self.matched.iter().copied()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use format::Owner;

    fn set(fingerprints: &[Fingerprint]) -> PopularSet {
        let container = ContainerId::new(Owner::Popular, WriterNo(3), 1);
        let mut entries: Vec<(u64, u32)> =
            fingerprints.iter().enumerate().map(|(n, f)| (prefix(&f.0), n as u32)).collect();
        entries.sort_unstable();
        let mut body = 1u32.to_le_bytes().to_vec();
        body.extend(container.raw().to_le_bytes());
        for (prefix, chunk) in entries {
            body.extend(prefix.to_be_bytes());
            body.extend(0u32.to_le_bytes());
            body.extend(chunk.to_le_bytes());
        }
        PopularSet::decode("set", body).unwrap()
    }

    #[test]
    fn every_chunk_of_a_set_is_found_and_no_other() {
        for count in [0, 1, 2, 3, 100, 5000] {
            let all: Vec<Fingerprint> =
                (0..count as u64).map(|n| Fingerprint::of(&n.to_le_bytes())).collect();
            let set = set(&all);
            assert_eq!(set.len(), count);
            for (n, f) in all.iter().enumerate() {
                assert_eq!(set.find(f).unwrap().1, ChunkNo(n as u32));
            }
            for n in 0..500u64 {
                assert_eq!(set.find(&Fingerprint::of(&(n + 1_000_000).to_le_bytes())), None);
            }
            for byte in [0, 255] {
                assert_eq!(set.find(&Fingerprint([byte; 32])), None);
            }
            assert_eq!(set.chunks().values().map(RunSet::len).sum::<u64>(), count as u64);
        }
    }

    #[test]
    fn what_is_no_index_is_refused() {
        for body in [vec![], vec![1, 0], vec![1, 0, 0, 0, 7], vec![0, 0, 0, 0, 1], vec![255; 4]] {
            assert!(PopularSet::decode("set", body).is_err());
        }
        let mut bad = 1u32.to_le_bytes().to_vec();
        bad.extend([255; 8]);
        assert!(PopularSet::decode("set", bad).is_err());
    }
}
