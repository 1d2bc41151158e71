//! Writes the list of dead chunks beside a container.

use crate::base::error::{Result, UnlessDamaged};
use crate::container::dead::read_dead;
use crate::container::tables::read_table;
use crate::lookup::popular::published_chunks;
use crate::lookup::referrers;
use crate::manifest::folder::Folder;
use crate::manifest::reader::Reader;
use crate::manifest::session::Session;
use crate::manifest::snapshots::whole::Whole;
use crate::recipe::stored::{read_root, summary_of};
use format::{names, ContainerEntry, ContainerId, DeadLog, Release, RunSet};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Logs chunks of a container as dead. Returns its new entry, `None` where no live chunk is left. `all`: no other chunk is
/// dead that the list does not have; otherwise only the disk itself references the container.
///
/// With a smaller share of dead chunks than `punch_below` the container is punched; others wait for compaction
/// (RevDedup 3.2.4).
pub(crate) fn mark_dead(
    session: &Session,
    entry: &ContainerEntry,
    chunks: &RunSet,
    all: bool,
    punch_below: f64,
    released: &mut Vec<Release>,
) -> Result<Option<ContainerEntry>> {
    let dead = dead_with(session, entry, chunks, all)?;
    put_list(session, entry, dead, punch_below, released)
}

/// All dead chunks of a container, with more of them. `all` as in [`mark_dead`].
pub(crate) fn dead_with(
    session: &Session,
    entry: &ContainerEntry,
    chunks: &RunSet,
    all: bool,
) -> Result<RunSet> {
    let folder = &session.folder;
    let old = match read_dead(folder, entry).unless_damaged()? {
        Some(old) => old,
        None if all => RunSet::default(),
        // A log that cannot be read is written anew from the truth.
        None => {
            let live = live_chunks(folder, &folder.load()?, entry.id)?;
            read_table(folder, entry.id, entry.table)?.numbers.minus(&live)
        }
    };
    Ok(old.union(chunks))
}

/// Puts a list of all dead chunks of a container. Returns and releases what [`mark_dead`] does.
pub(crate) fn put_list(
    session: &Session,
    entry: &ContainerEntry,
    dead: RunSet,
    punch_below: f64,
    released: &mut Vec<Release>,
) -> Result<Option<ContainerEntry>> {
    let folder = &session.folder;
    let old_list = entry.dead.map(|generation| names::dead(&folder.path, entry.id, generation));
    released.extend(old_list.map(Release::Object));
    let dead_chunks = dead.len().min(u64::from(u32::MAX)) as u32;
    if dead_chunks >= entry.chunks {
        released.push(Release::Object(names::table(&folder.path, entry.id, entry.table)));
        return Ok(None);
    }
    let name = names::dead(&folder.path, entry.id, session.writer);
    let frame = DeadLog { container: entry.id, dead }.encode(folder.context(&name));
    match folder.store.put(&name, &[&frame]) {
        // From an attempt of this session that found the manifest changed.
        Err(store::StoreError::AlreadyExists { .. }) => {
            folder.store.delete(&name)?;
            folder.store.put(&name, &[&frame])?;
        }
        other => other?,
    }
    session.wrote(name);
    if f64::from(dead_chunks) < punch_below * f64::from(entry.chunks) {
        released.push(Release::Punch { container: entry.id, dead: session.writer });
    }
    Ok(Some(ContainerEntry { dead: Some(session.writer), dead_chunks, ..*entry }))
}

/// Chunks of containers that the snapshots of a disk reference.
type Live = BTreeMap<ContainerId, RunSet>;

/// Adds the chunks of some containers that the snapshots of a disk reference, under the name that `named` gives them.
fn add_live(
    folder: &Folder,
    m: &Whole,
    named: impl Fn(ContainerId) -> Option<ContainerId>,
    live: &mut Live,
) -> Result<()> {
    let mut seen = HashSet::new();
    for s in &m.snapshots {
        for page in read_root(folder, s)?.pages.iter().filter_map(|p| p.page()).filter(|p| seen.insert(*p)) {
            for (id, chunks) in &summary_of(folder, &page)?.containers {
                if let Some(id) = named(*id) {
                    let known = live.entry(id).or_default();
                    *known = known.union(chunks);
                }
            }
        }
    }
    Ok(())
}

/// Chunks of a container that the snapshots of a disk reference. Used where a list of dead chunks is damaged.
fn live_chunks(folder: &Folder, m: &Whole, id: ContainerId) -> Result<RunSet> {
    let mut live = Live::new();
    add_live(folder, m, |other| (other == id).then_some(id), &mut live)?;
    Ok(live.remove(&id).unwrap_or_default())
}

/// Chunks of some containers, as their owner names them, that the snapshots of the owner and of its referrers reference; of the
/// popular set also those that backups may match.
pub(crate) fn live_chunks_of_each(owner: &Folder, ids: &BTreeSet<ContainerId>) -> Result<Live> {
    let mut live = Live::new();
    if ids.is_empty() {
        return Ok(live);
    }
    if owner.is_popular() {
        live = published_chunks(owner, |id| ids.contains(&id))?;
    }
    let mut disks = BTreeSet::new();
    for writer in ids.iter().map(|id| id.writer()).collect::<BTreeSet<_>>() {
        disks.extend(referrers::of_writer(owner, writer)?);
    }
    disks.extend((!owner.is_popular()).then_some(owner.disk));
    for disk in disks {
        let folder = owner.of(disk);
        let Some(reader) = Some(Reader::open(&folder)).filter(|_| folder.has_content().unwrap_or(true))
        else {
            continue;
        };
        let reader = reader?;
        if let Some(no) = reader.manifest.owner_no(owner.disk) {
            let named =
                |id: ContainerId| Some(id.local()).filter(|own| id == own.of(no) && ids.contains(own));
            add_live(&folder, &folder.whole(reader.manifest.clone())?, named, &mut live)?;
        }
    }
    Ok(live)
}

/// The same of one container.
pub(crate) fn live_chunks_of_all(owner: &Folder, id: ContainerId) -> Result<RunSet> {
    Ok(live_chunks_of_each(owner, &BTreeSet::from([id]))?.remove(&id).unwrap_or_default())
}
