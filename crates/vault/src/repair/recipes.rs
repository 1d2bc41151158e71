//! Makes damaged recipes again: of snapshots of which another vault has a copy, or whose content can be read all the same
//! (where only a summary or a filter is damaged).
//!
//! The newest come first: older ones lead through them.

use crate::backup::again::make_again;
use crate::backup::pipeline::Input;
use crate::base::error::{fault, Result, UnlessDamaged, VaultError};
use crate::base::policy::Policy;
use crate::base::progress::Progress;
use crate::copy::is_cut_alike;
use crate::copy::stored::{CountedDisk, StoredSegments};
use crate::lookup::parent::Parent;
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use crate::manifest::snapshots::whole::Whole;
use crate::manifest::vault::Vault;
use crate::recipe::chain::RecipeReader;
use crate::recipe::filters;
use crate::recipe::stored::{read_page, read_root, read_summary, recipe_of};
use crate::restore::open_snapshot::OpenSnapshot;
use crate::restore::read_cache::ReadCache;
use format::{names, SnapId, SnapshotEntry};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Memory for groups of a copy, in bytes.
const GROUPS_BYTES: u64 = 64 << 20;

/// The disks of another vault that have copies of snapshots.
type Copies = HashMap<SnapId, Arc<str>>;

/// The recipes of one disk, and where copies of its snapshots may be.
pub(super) struct Recipes<'a> {
    pub vault: &'a Vault,
    pub others: &'a [Vault],
    pub progress: &'a Progress,
}

impl Recipes<'_> {
    /// Makes all recipes of the session's disk again that are damaged, as far as possible. Returns how many.
    pub fn make_again(&self, session: &mut Session) -> Result<u64> {
        let mut done = 0;
        let all = session.folder.load()?;
        let mut copies = None;
        for entry in all.live().rev() {
            self.progress.check()?;
            let state = state(&session.folder, entry)?;
            if state == State::Sound {
                continue;
            }
            let copies = match &copies {
                Some(copies) => copies,
                None => copies.insert(self.find_copies(&all)?),
            };
            done += u64::from(self.one(session, entry, state, copies)?);
        }
        Ok(done)
    }

    /// Where the other vaults have copies of the snapshots of a disk. All manifests are read once.
    fn find_copies(&self, all: &Whole) -> Result<Vec<Copies>> {
        let ids: HashSet<SnapId> = all.live().map(|s| s.id).collect();
        self.others.iter().map(|from| find_copies(from, &ids)).collect()
    }

    /// Makes one again. Returns whether there was a copy of its content.
    fn one(
        &self,
        session: &mut Session,
        entry: &SnapshotEntry,
        state: State,
        copies: &[Copies],
    ) -> Result<bool> {
        let own = (state == State::Readable).then_some(self.vault);
        let others = self.others.iter().zip(copies);
        let others = others.filter_map(|(from, copies)| Some((from, Some(copies.get(&entry.id)?))));
        for (from, disk) in own.map(|from| (from, None)).into_iter().chain(others) {
            self.progress.check()?;
            let is_own = disk.is_none();
            let disk = match disk {
                Some(disk) => disk.to_string(),
                None => session.folder.load_root()?.name,
            };
            let Some(open) = open_copy(from, &disk, entry)? else { continue };
            // What an attempt writes has its names for itself.
            session.renew()?;
            let m = session.folder.load()?;
            let (policy, like) = how(session, &m, entry, is_own)?;
            let is_alike = is_cut_alike(&open, &policy);
            let copy = Arc::new(CountedDisk::new(open));
            let input = if is_alike {
                Input::Fingerprinted(Box::new(StoredSegments::new(copy.clone())))
            } else {
                Input::Disk(copy.source())
            };
            match make_again(self.vault, session, entry, policy, like, input, self.progress) {
                Ok(()) => return Ok(true),
                // The copy is damaged, too.
                Err(e) => drop(fault(copy.failure().unwrap_or(e))?),
            }
        }
        Ok(false)
    }
}

/// What is left of a recipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// All, or a newer program has written it.
    Sound,
    /// A summary or its filter is damaged; by itself it says what the disk held.
    Readable,
    /// Its root or a page is damaged: the vault itself has no copy of the content.
    Lost,
}

fn state(folder: &Folder, entry: &SnapshotEntry) -> Result<State> {
    let mut damage = State::Lost;
    match check(folder, entry, &mut damage) {
        Err(VaultError::Newer { .. }) => Ok(State::Sound),
        checked => Ok(checked.unless_damaged()?.map_or(damage, |()| State::Sound)),
    }
}

/// Reads a recipe. `damage` is what it means if what is read next is damaged.
fn check(folder: &Folder, entry: &SnapshotEntry, damage: &mut State) -> Result<()> {
    let root = read_root(folder, entry)?;
    let mut seen = HashSet::new();
    for page in root.pages.iter().filter_map(|p| p.page()).filter(|p| seen.insert(*p)) {
        *damage = State::Lost;
        read_page(folder, &page)?;
        *damage = State::Readable;
        read_summary(folder, &page)?;
    }
    *damage = State::Readable;
    if filters::has_filter(entry) {
        filters::read(folder, entry)?;
    }
    Ok(())
}

/// The copy of a snapshot that a vault has, if its recipe can be read to the end.
fn open_copy(from: &Vault, disk: &str, entry: &SnapshotEntry) -> Result<Option<OpenSnapshot>> {
    let spec = entry.id.to_string();
    let open = match from.open_snapshot(disk, &spec, &ReadCache::new(GROUPS_BYTES)) {
        Err(VaultError::NotFound { .. }) => None,
        open => open.unless_unreadable()?,
    };
    let Some(open) = open.filter(|o| o.size() == entry.size) else { return Ok(None) };
    Ok(open.check_recipe().unless_unreadable()?.map(|()| open))
}

/// The names of the disks in another vault that have snapshots of these ids: copies keep them.
fn find_copies(from: &Vault, ids: &HashSet<SnapId>) -> Result<Copies> {
    let mut copies = Copies::new();
    for at in disks::all(from)?.0 {
        let Some(m) = at.folder.load_unless_empty().unless_unreadable()?.flatten() else { continue };
        let name: Arc<str> = at.name.into();
        for s in m.live().filter(|s| ids.contains(&s.id)) {
            copies.entry(s.id).or_insert_with(|| name.clone());
        }
    }
    Ok(copies)
}

/// How a snapshot was cut, and a recipe most of whose segments are the same.
fn how(
    session: &Session,
    m: &Whole,
    entry: &SnapshotEntry,
    is_own: bool,
) -> Result<(Policy, Option<Parent>)> {
    let folder = &session.folder;
    let mut policy = Policy::by_name(&entry.policy)?;
    if entry.isolated {
        policy = policy.isolated();
    }
    let mut neighbours = Vec::new();
    let place = m.snapshots.iter().position(|s| s.id == entry.id).unwrap_or(0);
    let mut by_distance: Vec<usize> = (0..m.snapshots.len()).filter(|n| *n != place).collect();
    by_distance.sort_by_key(|n| n.abs_diff(place));
    let own = read_root(folder, entry).unless_unreadable()?;
    for n in by_distance {
        let s = &m.snapshots[n];
        let Some(reader) = RecipeReader::open(folder, &m.snapshots, s).unless_unreadable()? else { continue };
        let is_same = |cut: (u32, &str)| cut == (reader.root.segment_bytes, reader.root.chunking.as_str());
        let is_like = match &own {
            Some(root) => is_same((root.segment_bytes, &root.chunking)),
            None => s.policy == entry.policy,
        };
        if is_like {
            neighbours.push(reader);
            break;
        }
    }
    let cut = own.as_ref().or(neighbours.first().map(|n| &n.root));
    if let Some(root) = cut {
        let chunking = root.chunking.parse().map_err(|e| {
            let object = names::recipe_root(&folder.path, recipe_of(entry));
            VaultError::corrupt(&object, format!("{e}"))
        })?;
        policy = Policy { segment_bytes: root.segment_bytes, chunking, ..policy };
    }
    // What is read through this recipe itself is where it says, damaged or not.
    let (reader, damaged) = if is_own {
        (Some(RecipeReader::open(folder, &m.snapshots, entry)?), HashSet::new())
    } else {
        (neighbours.pop(), m.damaged.iter().copied().collect())
    };
    Ok((policy, reader.map(|r| Parent::new(r, damaged))))
}
