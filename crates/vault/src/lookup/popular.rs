//! The index of the popular set, an immutable object, and the search in it.
//!
//! A hit is a hint: the backup claims its container and compares the whole fingerprint with the container's table.

use crate::base::error::UnlessDamaged;
use crate::base::error::{Named, Result, VaultError};
use crate::container::tables::ChunkPlace;
use crate::lookup::champions::ChunkSearch;
use crate::lookup::claims::{Claim, Claimed, Claims};
use crate::manifest::folder::Folder;
use crate::manifest::listing::parse_names;
use crate::manifest::rollback::load_checked;
use crate::manifest::session::Session;
use format::{
    names, ChunkNo, ChunksByContainer, ContainerEntry, ContainerId, DiskId, Kind, PopularChunk,
    PopularLayout, PopularSet, RunSet, WriterNo,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What is written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Whether an index takes so many chunks.
pub(crate) fn check_len(chunks: u64) -> Result<()> {
    let most = PopularSet::CHUNKS_MAX as u64;
    if chunks > most {
        return Err(VaultError::Refused(format!(
            "{chunks} chunks are too many for the popular set, {most} are the most; choose a smaller fraction"
        )));
    }
    Ok(())
}

/// The chunks of a set that need not fit into memory.
pub(crate) trait PopularChunks {
    /// Calls `each` with all of them, in order.
    fn each(&mut self, each: &mut dyn FnMut(&PopularChunk) -> Result<()>) -> Result<()>;
}

/// Makes a set the one that backups use.
pub(crate) fn publish(
    session: &Session,
    layout: &PopularLayout,
    chunks: &mut dyn PopularChunks,
) -> Result<()> {
    let folder = &session.folder;
    let name = names::popular(session.writer);
    let mut header = layout.header(folder.context(&name));
    chunks.each(&mut |chunk| {
        header.feed(&layout.entry(chunk));
        Ok(())
    })?;
    let mut object = folder.store.writer(&name)?;
    object.append(&header.finish())?;
    object.append(layout.list())?;
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    chunks.each(&mut |chunk| {
        piece.extend_from_slice(&layout.entry(chunk));
        if piece.len() >= PIECE_BYTES {
            object.append(&piece)?;
            piece.clear();
        }
        Ok(())
    })?;
    object.append(&piece)?;
    Ok(object.finish()?)
}

/// The writers that have published a set, oldest first.
pub(crate) fn sets(folder: &Folder) -> Result<Vec<WriterNo>> {
    let parse = |no: &str| no.parse().ok().map(WriterNo);
    let mut writers: Vec<WriterNo> = parse_names(&*folder.store, names::POPULAR, parse)?;
    writers.sort_unstable();
    Ok(writers)
}

/// Reads the set that a writer published from end to end, and checks it.
fn scan(popular: &Folder, writer: WriterNo, each: &mut dyn FnMut(ContainerId, ChunkNo)) -> Result<()> {
    let name = names::popular(writer);
    let (len, most) = (popular.store.len(&name).named()?, Kind::Popular.frame_max());
    if len > most {
        return Err(VaultError::corrupt(&name, format!("{len} bytes long, at most {most} are plausible")));
    }
    let mut read = |at: u64, buf: &mut [u8]| popular.store.read_at(&name, at, buf).named();
    PopularSet::scan(popular.context(&name), len, &mut read, each)?.map_err(VaultError::malformed(&name))
}

/// The set that a writer published.
fn read_set(popular: &Folder, writer: WriterNo) -> Result<PopularSet> {
    // Checked before it is mapped: a mapping that is read from end to end counts as memory.
    scan(popular, writer, &mut |_, _| {})?;
    let name = names::popular(writer);
    let frame = popular.store.map(&name, Kind::Popular.frame_max()).named()?;
    PopularSet::over_checked(frame).map_err(VaultError::malformed(&name))
}

/// What `read` makes of the set that was published last; `None` where there is none.
fn newest<T>(popular: &Folder, read: impl Fn(WriterNo) -> Result<T>) -> Result<Option<T>> {
    // A new set replaces the old one.
    for _ in 0..3 {
        let Some(newest) = sets(popular)?.pop() else { return Ok(None) };
        match read(newest) {
            Err(VaultError::Missing { .. }) => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}

/// The set that was published last; `None` where there is none.
pub(crate) fn newest_set(popular: &Folder) -> Result<Option<PopularSet>> {
    newest(popular, |writer| read_set(popular, writer))
}

/// The same; `None` also where it is damaged: that costs space only.
pub(crate) fn published(popular: &Folder) -> Result<Option<PopularSet>> {
    Ok(newest_set(popular).unless_damaged()?.flatten())
}

/// The chunks of the set that was published last in the containers that are `wanted`; none where it is damaged, or there is
/// none.
pub(crate) fn published_chunks(
    popular: &Folder,
    wanted: impl Fn(ContainerId) -> bool,
) -> Result<BTreeMap<ContainerId, RunSet>> {
    let found = newest(popular, |writer| {
        let mut chunks = ChunksByContainer::default();
        scan(popular, writer, &mut |id, chunk| {
            if wanted(id) {
                chunks.add(id, chunk);
            }
        })?;
        Ok(chunks.finish())
    });
    Ok(found.unless_damaged()?.flatten().unwrap_or_default())
}

/// The popular set as a backup uses it.
pub(crate) struct PopularIndex {
    set: PopularSet,
    claims: Claims,
    /// Containers of the set that were asked for; `None` of those that may not be referenced.
    claimed: HashMap<ContainerId, Option<Arc<Claimed>>>,
    /// Containers, as the popular set names them.
    matched: BTreeSet<ContainerId>,
}

impl PopularIndex {
    /// The set that was published last. Whatever keeps it from being read costs space only.
    pub fn load(popular: &Folder, session: &Session) -> Option<Self> {
        // What an older manifest lists may have been given up since.
        load_checked(popular).ok()?;
        let set = published(popular).ok().flatten().filter(|set| !set.is_empty())?;
        Some(PopularIndex {
            set,
            claims: Claims::new(session),
            claimed: HashMap::new(),
            matched: BTreeSet::new(),
        })
    }

    /// Looks up what has not been found. Hits count only in runs of `shortest` chunks that stand one behind the other in
    /// the set: shorter ones save less than reading them elsewhere costs.
    pub fn fill(&mut self, shortest: usize, search: &mut ChunkSearch<'_>) -> Result<()> {
        let hints: Vec<Option<ChunkPlace>> = search
            .fingerprints
            .iter()
            .zip(&*search.found)
            .map(|(f, at)| if at.is_none() { self.set.find(&f.0) } else { None })
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
                self.take((container, first), &mut search.part(from..from + count))?;
            }
            from += count;
        }
        Ok(())
    }

    /// Takes the chunks of a run that stand where they are said to, from `first` on.
    fn take(&mut self, (container, first): (ContainerId, ChunkNo), run: &mut ChunkSearch<'_>) -> Result<()> {
        let ChunkSearch { tables, fingerprints, lengths, found, .. } = run;
        // Where the set cannot be reached, what is new is written.
        let (Some(claimed), Some(owner)) = (self.claim(container)?, tables.count_owner(DiskId::POPULAR))
        else {
            return Ok(());
        };
        let id = container.of(owner);
        let entry = ContainerEntry { id, ..claimed.entry };
        let Some(table) = tables.load(&entry).unless_damaged()? else { return Ok(()) };
        for (n, slot) in found.iter_mut().enumerate() {
            let chunk = ChunkNo(first.0 + n as u32);
            let at = table.index_of(chunk).filter(|_| !claimed.dead.contains(chunk));
            if at.is_some_and(|at| {
                *table.fingerprint(at) == fingerprints[n].0 && table.length(at) == lengths[n]
            }) {
                *slot = Some((id, chunk));
                self.matched.insert(container);
            }
        }
        Ok(())
    }

    /// Claims a container of the set, once.
    fn claim(&mut self, container: ContainerId) -> Result<Option<Arc<Claimed>>> {
        if let Some(known) = self.claimed.get(&container) {
            return Ok(known.clone());
        }
        let claimed = match self.claims.claim(DiskId::POPULAR, container)? {
            Claim::Later => return Ok(None),
            Claim::Gone => None,
            Claim::Held(claimed) => Some(Arc::new(claimed)),
        };
        self.claimed.insert(container, claimed.clone());
        Ok(claimed)
    }

    /// The popular containers that may be referenced by now.
    pub fn matched(&self) -> impl Iterator<Item = ContainerId> + '_ {
        self.matched.iter().copied()
    }
}
