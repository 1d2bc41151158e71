//! Puts recipes into the reference index, and takes damaged parts of it away.

use super::{open_sound, Part};
use crate::base::error::{Result, UnlessDamaged};
use crate::manifest::folder::{release_object, Folder};
use crate::manifest::session::Session;
use crate::manifest::snapshots::known::is_to_be_indexed;
use crate::recipe::stored::{read_root, recipe_of, summary_of};
use format::{
    names, BlockAt, ContainerId, IndexRef, Indexed, Manifest, RecipeName, ReferenceBlock, ReferenceEntry,
    ReferenceFooter, RunSet, SnapshotEntry, Summary,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter::Peekable;
use std::sync::Arc;
use store::ObjectWriter;

/// A part is joined with what is added unless it has more than so many times as many recipes.
const GROWTH: usize = 16;
/// Memory for what is added at once, in bytes. A recipe that alone takes more is left out for good.
const ADDED_BYTES: usize = 16 << 20;
/// Most runs of an entry: every other chunk of the largest container.
const RUNS_MAX: usize = 1 << 18;
/// Bytes of a block before compression, about.
const BLOCK_BYTES: usize = 64 << 10;

/// Puts the reversed recipes of a disk that are not in the index into a new part of it, if there are at least `at_least`.
/// Parts that are not much longer are joined with it, so that there are O(log n) parts.
///
/// A recipe never changes under its name, so the entries of a part stay correct.
///
/// `known` is a manifest that the session has left, where one is known. Backups may have committed since: they change no part, and
/// none of what waits, and the swap finds recipes by their names.
pub(crate) fn extend(session: &Session, at_least: usize, known: Option<Manifest>) -> Result<()> {
    let folder = &session.folder;
    let m = known.map_or_else(|| folder.load_root(), Ok)?;
    if !may_extend(&m, at_least) {
        return Ok(());
    }
    // Pages of snapshots may be replaced meanwhile.
    let m = if m.older.is_empty() { folder.whole(Arc::new(m))? } else { folder.load()? };
    let waiting: Vec<&SnapshotEntry> = m.snapshots.iter().filter(|s| is_to_be_indexed(s)).collect();
    if waiting.len() < at_least.max(1) {
        return Ok(());
    }
    // Parts that cannot be opened cannot be joined: their number would only grow.
    let parts = open_sound(folder, &m)?;
    if parts.len() < m.references.len() && forget_damaged(session)? > 0 {
        drop(parts);
        return extend(session, at_least, None);
    }
    let added = Added::collect(folder, &waiting)?;
    let stays: HashSet<RecipeName> = m.snapshots.iter().map(recipe_of).collect();
    let joined = to_join(parts, &stays, added.recipes.len());
    let gone: Vec<IndexRef> = joined.iter().map(|p| p.at).collect();
    let put = put(session, m.sequence.0 as u32, &added, &joined, &stays);
    let Some(fresh) = put.unless_damaged()? else {
        // The recipes of a damaged part wait for the next time.
        return forget(session, &joined);
    };
    let looked_at: HashMap<RecipeName, Indexed> = added.looked_at.into_iter().collect();
    session.swap(|m| {
        m.references.retain(|r| !gone.contains(r));
        m.references.extend(fresh);
        m.change_snapshots(|_, all| {
            for s in all.iter_mut() {
                s.indexed = looked_at.get(&recipe_of(s)).copied().unwrap_or(s.indexed);
            }
            Ok(())
        })?;
        for part in &joined {
            release_object(m, part.name.clone());
        }
        Ok(())
    })?;
    Ok(())
}

/// Whether so many recipes may wait, as far as a manifest tells without its pages.
fn may_extend(m: &Manifest, at_least: usize) -> bool {
    let told = m.changed.iter().chain(&m.recent).filter(|s| is_to_be_indexed(s)).count();
    told >= at_least.max(1) || m.older.iter().any(|at| at.has_unindexed)
}

/// Takes the parts of the index away that cannot be opened. Returns how many there were.
pub(crate) fn forget_damaged(session: &Session) -> Result<u64> {
    let m = session.folder.load_root()?;
    let mut damaged = Vec::new();
    for at in &m.references {
        if Part::open(&session.folder, at).unless_damaged()?.is_none() {
            damaged.push(*at);
        }
    }
    if !damaged.is_empty() {
        forget_parts(session, &damaged)?;
    }
    Ok(damaged.len() as u64)
}

/// Takes the whole index away.
pub(crate) fn forget_all(session: &Session) -> Result<()> {
    let all = session.folder.load_root()?.references;
    if all.is_empty() {
        return Ok(());
    }
    forget_parts(session, &all)
}

fn forget(session: &Session, parts: &[Part]) -> Result<()> {
    forget_parts(session, &parts.iter().map(|p| p.at).collect::<Vec<_>>())
}

/// What was in these parts waits to be put into others.
fn forget_parts(session: &Session, gone: &[IndexRef]) -> Result<()> {
    let folder = &session.folder;
    let mut m = folder.load_root()?;
    m.references.retain(|r| !gone.contains(r));
    let sound = open_sound(folder, &m)?;
    let covered: HashSet<RecipeName> = sound.iter().flat_map(|p| p.footer.recipes.iter().copied()).collect();
    session.swap(|m| {
        m.references.retain(|r| !gone.contains(r));
        m.change_snapshots(|_, all| {
            for s in all.iter_mut().filter(|s| !covered.contains(&recipe_of(s))) {
                s.indexed = Indexed::No;
            }
            Ok(())
        })?;
        for r in gone {
            release_object(m, names::references(&folder.path, r.writer, r.number));
        }
        Ok(())
    })?;
    Ok(())
}

/// Recipes that are added, and what they reference.
#[derive(Default)]
struct Added {
    recipes: Vec<RecipeName>,
    entries: BTreeMap<(ContainerId, u32), RunSet>,
    /// What is to be said of recipes, also of those that are left out for good.
    looked_at: Vec<(RecipeName, Indexed)>,
}

impl Added {
    /// Reads recipes as far as there is memory for what they reference.
    fn collect(folder: &Folder, waiting: &[&SnapshotEntry]) -> Result<Added> {
        let mut added = Added::default();
        let mut bytes = 0;
        for s in waiting {
            if bytes >= ADDED_BYTES || added.recipes.len() >= ReferenceFooter::RECIPES_MAX / 2 {
                break;
            }
            let name = recipe_of(s);
            let Some(summary) = summary_of_recipe(folder, s)? else {
                added.looked_at.push((name, Indexed::LeftOut));
                continue;
            };
            added.looked_at.push((name, Indexed::Yes));
            bytes += summary.memory_bytes();
            let number = added.recipes.len() as u32;
            added.recipes.push(name);
            added.entries.extend(summary.containers.into_iter().map(|(id, chunks)| ((id, number), chunks)));
        }
        Ok(added)
    }
}

/// All that a recipe references directly; `None` where that is too much, or cannot be read.
pub(crate) fn summary_of_recipe(folder: &Folder, s: &SnapshotEntry) -> Result<Option<Summary>> {
    let mut all = Summary::default();
    let Some(root) = read_root(folder, s).unless_damaged()? else { return Ok(None) };
    for page in root.pages.iter().filter_map(|p| p.page()) {
        let Some(summary) = summary_of(folder, &page).unless_damaged()? else { return Ok(None) };
        all.merge(&summary);
        let has_long = all.containers.values().any(|chunks| chunks.runs().len() > RUNS_MAX);
        if has_long || all.memory_bytes() > ADDED_BYTES {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// The parts that are joined with so many recipes: shorter ones, and those most of whose recipes are no more.
fn to_join(parts: Vec<Part>, stays: &HashSet<RecipeName>, added: usize) -> Vec<Part> {
    let living = |p: &Part| p.footer.recipes.iter().filter(|r| stays.contains(r)).count();
    let mut parts: Vec<(usize, Part)> = parts.into_iter().map(|p| (living(&p), p)).collect();
    parts.sort_by_key(|(living, _)| *living);
    let mut recipes = added;
    let mut joined = Vec::new();
    for (living, part) in parts {
        let is_sparse = 2 * living < part.footer.recipes.len();
        let fits = recipes + living <= ReferenceFooter::RECIPES_MAX;
        if fits && (living <= GROWTH * recipes || is_sparse) {
            recipes += living;
            joined.push(part);
        }
    }
    joined
}

type Entries<'a> = Peekable<Box<dyn Iterator<Item = Result<ReferenceEntry>> + 'a>>;

/// Writes a part with what is added and with what other parts say of recipes that stay. `None` where that is nothing.
fn put(
    session: &Session,
    number: u32,
    added: &Added,
    joined: &[Part],
    stays: &HashSet<RecipeName>,
) -> Result<Option<IndexRef>> {
    let mut recipes = added.recipes.clone();
    let mut sources: Vec<Entries<'_>> = Vec::new();
    let of_added = added.entries.iter().map(|((container, recipe), chunks)| {
        Ok(ReferenceEntry { container: *container, recipe: *recipe, chunks: chunks.clone() })
    });
    sources.push((Box::new(of_added) as Box<dyn Iterator<Item = _>>).peekable());
    for part in joined {
        // A part that was joined before may have a recipe that another one has too.
        let numbers: Vec<Option<u32>> = part
            .footer
            .recipes
            .iter()
            .map(|r| {
                let is_new = stays.contains(r) && !recipes.contains(r);
                is_new.then(|| {
                    recipes.push(*r);
                    recipes.len() as u32 - 1
                })
            })
            .collect();
        sources.push((Box::new(entries_of(part, numbers)) as Box<dyn Iterator<Item = _>>).peekable());
    }
    if recipes.is_empty() {
        return Ok(None);
    }
    let mut out = Writer::new(session, number)?;
    loop {
        let mut least: Option<(ContainerId, usize)> = None;
        for (n, source) in sources.iter_mut().enumerate() {
            if let Some(Err(_)) = source.peek() {
                source.next().transpose()?;
            }
            if let Some(Ok(e)) = source.peek() {
                // Recipes of later sources have higher numbers.
                if least.is_none_or(|(container, _)| e.container < container) {
                    least = Some((e.container, n));
                }
            }
        }
        let Some((_, n)) = least else { break };
        if let Some(entry) = sources[n].next().transpose()? {
            out.push(entry)?;
        }
    }
    out.finish(recipes).map(Some)
}

/// The entries of a part, with the new numbers of its recipes. Those without one are left out.
fn entries_of(part: &Part, numbers: Vec<Option<u32>>) -> impl Iterator<Item = Result<ReferenceEntry>> + '_ {
    part.blocks(0..part.footer.blocks.len()).flat_map(move |block| {
        let entries: Vec<Result<ReferenceEntry>> = match block {
            Err(e) => vec![Err(e)],
            Ok(block) => {
                let renumbered = block.entries.into_iter().filter_map(|e| {
                    let recipe = numbers[e.recipe as usize]?;
                    Some(Ok(ReferenceEntry { recipe, ..e }))
                });
                renumbered.collect()
            }
        };
        entries
    })
}

/// Writes a part block by block.
struct Writer<'a> {
    session: &'a Session,
    number: u32,
    name: String,
    out: Box<dyn ObjectWriter>,
    offset: u64,
    blocks: Vec<BlockAt>,
    block: ReferenceBlock,
    /// Bytes of the entries of the block, about.
    bytes: usize,
}

impl Writer<'_> {
    fn new(session: &Session, number: u32) -> Result<Writer<'_>> {
        let folder = &session.folder;
        let name = names::references(&folder.path, session.writer, number);
        session.wrote(name.clone());
        let out = folder.store.writer(&name)?;
        let (blocks, block) = (Vec::new(), ReferenceBlock::default());
        Ok(Writer { session, number, name, out, offset: 0, blocks, block, bytes: 0 })
    }

    fn push(&mut self, entry: ReferenceEntry) -> Result<()> {
        self.bytes += 12 + entry.chunks.runs().len() * 4;
        self.block.entries.push(entry);
        if self.bytes >= BLOCK_BYTES {
            self.finish_block()?;
        }
        Ok(())
    }

    fn finish_block(&mut self) -> Result<()> {
        let block = std::mem::take(&mut self.block);
        self.bytes = 0;
        let Some(first) = block.entries.first().map(|e| e.container) else { return Ok(()) };
        let place = format!("{}#{}", self.name, self.offset);
        let frame = block.encode(self.session.folder.context(&place));
        self.out.append(&frame)?;
        self.blocks.push(BlockAt { first, offset: self.offset, len: frame.len() as u32 });
        self.offset += frame.len() as u64;
        Ok(())
    }

    /// Makes it durable.
    fn finish(mut self, recipes: Vec<RecipeName>) -> Result<IndexRef> {
        self.finish_block()?;
        let footer = ReferenceFooter { recipes, blocks: self.blocks };
        let place = format!("{}#{}", self.name, self.offset);
        let frame = footer.encode(self.session.folder.context(&place));
        self.out.append(&frame)?;
        self.out.finish()?;
        let (writer, blocks_len) = (self.session.writer, self.offset);
        Ok(IndexRef { writer, number: self.number, blocks_len, footer_len: frame.len() as u32 })
    }
}
