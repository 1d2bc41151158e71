//! Builds a popular set: copies the chosen chunks to popular containers.
//!
//! This is maintenance of the popular set: one run at a time, beside backups and restores. Containers are durable before
//! the manifest names them, and named before the index is published. A crash leaves containers that no snapshot
//! references and no index lists: `gc` removes them.

use crate::base::error::{Named, Result, UnlessDamaged, VaultError};
use crate::base::policy::{CodecChoice, POPULAR_GROUP_BYTES};
use crate::container::codec::Packer;
use crate::container::dead::read_dead;
use crate::container::group_reader::{extent, GroupReader};
use crate::container::room::check_room;
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::container::view::View;
use crate::container::writer::{ContainerWriter, GroupJob};
use crate::lookup::popular::{check_len, publish, sets, PopularChunks};
use crate::manifest::container_table::Edits;
use crate::manifest::folder::Folder;
use crate::manifest::session::{fence_dead, Session};
use crate::manifest::vault::Vault;
use crate::popular::census::{is_popular, Census};
use crate::popular::report::PopularReport;
use crate::popular::sorter::{Sorted, Sorter};
use crate::popular::spill::{Occurrence, RECORD_BYTES};
use format::{
    names, ChunkNo, ContainerId, OwnerNo, PopularChunk, PopularLayout, PopularSet, Table, TableIndex,
    TableRange, WriterKind,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

const CONTAINER_BYTES: u64 = 64 << 20;
const CODEC: CodecChoice = CodecChoice::Zstd(3);

pub(super) fn build(vault: &Vault, fraction: f64, scratch: &Path) -> Result<PopularReport> {
    let popular = vault.popular_or_new()?;
    let session = Session::begin(&popular, WriterKind::Maintenance)?;
    fence_dead(&session)?;
    let census = Census::take(vault, scratch)?;
    let classes = census.classes()?;
    let most = (classes.iter().map(|c| c.chunks).sum::<u64>() as f64 * fraction).ceil() as u64;
    let mut chosen = Sorter::new(scratch);
    let least_disks = census.top(&classes, most, &mut chosen)?;
    check_len(chosen.len())?;
    let (disks, mut damaged) = census.into_disks();
    let mut report = PopularReport { least_disks, ..Default::default() };

    let mut copier = Copier::new(&session, scratch);
    let mut chosen = ByContainer { sorted: chosen.sorted()?, next: None };
    let mut open: Option<OpenDisk> = None;
    while let Some(chunks) = chosen.next()? {
        let Occurrence { disk, place, .. } = chunks[0];
        if is_popular(place.container) {
            report.kept_chunks += chunks.len() as u64;
            report.bytes += chunks.iter().map(|o| u64::from(o.bytes)).sum::<u64>();
            for o in &chunks {
                copier.index.add(prefix_of(o), o.place.container.local(), o.place.chunk)?;
            }
            continue;
        }
        if open.as_ref().is_none_or(|o| o.no != disk) {
            open.take().map_or(Ok(()), OpenDisk::close)?;
            open = Some(OpenDisk::open(vault, &disks[disk as usize], disk)?);
        }
        let copied = open.as_ref().map_or(Ok(()), |disk| disk.copy(&mut copier, &chunks));
        copied.if_damaged(|e| damaged.note(e))?;
    }
    open.map_or(Ok(()), OpenDisk::close)?;
    let Copied { made, bytes, stored_bytes, mut index } = copier.finish()?;
    report.bytes += bytes;
    report.stored_bytes = stored_bytes;
    report.chunks = index.chunks.len();
    report.damaged = damaged.into_lines();
    let (m, ()) = session.swap(|m| m.edit_containers(&made))?;
    // From the publication on backups of all disks rely on these containers.
    session.record_now(&m)?;
    let old = sets(&popular)?;
    publish(&session, &PopularLayout::new(std::mem::take(&mut index.containers), report.chunks), &mut index)?;
    for writer in old {
        popular.store.delete(&names::popular(writer))?;
    }
    session.end()?;
    Ok(report)
}

/// What a set is sorted by.
fn prefix_of(o: &Occurrence) -> u64 {
    let mut whole = [0; 32];
    whole[..16].copy_from_slice(&o.half);
    PopularSet::prefix(&whole)
}

/// Chosen chunks, those of one container of a disk at a time.
struct ByContainer<'a> {
    sorted: Sorted<'a, RECORD_BYTES>,
    next: Option<Occurrence>,
}

impl ByContainer<'_> {
    fn next(&mut self) -> Result<Option<Vec<Occurrence>>> {
        let key = |o: &Occurrence| (o.disk, o.place.container);
        let mut chunks: Vec<Occurrence> = self.next.take().into_iter().collect();
        while let Some(record) = self.sorted.next()? {
            let chunk = Occurrence::decode(&record)?;
            if chunks.first().is_some_and(|first| key(first) != key(&chunk)) {
                self.next = Some(chunk);
                break;
            }
            chunks.push(chunk);
        }
        Ok((!chunks.is_empty()).then_some(chunks))
    }
}

/// A disk whose chunks are copied.
struct OpenDisk {
    /// Its number in the census.
    no: u32,
    /// `None`: collection has taken the disk away with its last snapshot since it was counted.
    view: Option<View>,
}

impl OpenDisk {
    fn open(vault: &Vault, folder: &Folder, no: u32) -> Result<Self> {
        match vault.view(folder, TABLE_CACHE_BYTES) {
            Err(VaultError::Missing { .. }) if !folder.has_content()? => Ok(OpenDisk { no, view: None }),
            view => Ok(OpenDisk { no, view: Some(view?) }),
        }
    }

    /// Copies chunks of one container, unless the disk has given it up since it was counted.
    fn copy(&self, copier: &mut Copier<'_>, chunks: &[Occurrence]) -> Result<()> {
        let Some(view) = &self.view else { return Ok(()) };
        match view.tables.own().get(chunks[0].place.container)? {
            None => Ok(()),
            Some(_) => copier.copy(&view.tables, chunks),
        }
    }

    fn close(self) -> Result<()> {
        self.view.map_or(Ok(()), |view| view.check())
    }
}

/// What of an entry the index is sorted by: all of it.
const ENTRY_BYTES: usize = 20;

/// The index of the new set.
struct Index {
    chunks: Sorter<ENTRY_BYTES>,
    containers: BTreeSet<ContainerId>,
}

impl Index {
    fn add(&mut self, prefix: u64, container: ContainerId, chunk: ChunkNo) -> Result<()> {
        self.containers.insert(container);
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&prefix.to_be_bytes());
        entry[8..16].copy_from_slice(&container.raw().to_be_bytes());
        entry[16..].copy_from_slice(&chunk.0.to_be_bytes());
        self.chunks.add(entry)
    }
}

impl PopularChunks for Index {
    fn each(&mut self, each: &mut dyn FnMut(&PopularChunk) -> Result<()>) -> Result<()> {
        let mut sorted = self.chunks.sorted()?;
        while let Some(entry) = sorted.next()? {
            let number = |at: Range<usize>| entry[at].iter().fold(0, |n, b| n << 8 | u64::from(*b));
            let container = ContainerId::from_raw(number(8..16));
            let container = container.map_err(VaultError::malformed("a file of popular chunks"))?;
            each(&(number(0..8), container, ChunkNo(number(16..20) as u32)))?;
        }
        Ok(())
    }
}

/// Copies chunks to new popular containers.
struct Copier<'a> {
    session: &'a Session,
    packer: Packer,
    groups: GroupReader,
    open: Option<ContainerWriter>,
    /// Bytes and chunks of the open container.
    filled: (u64, u32),
    job: GroupJob,
    stored: Vec<u8>,
    made: Edits,
    bytes: u64,
    stored_bytes: u64,
    index: Index,
}

struct Copied {
    made: Edits,
    bytes: u64,
    stored_bytes: u64,
    index: Index,
}

impl<'a> Copier<'a> {
    fn new(session: &'a Session, scratch: &Path) -> Self {
        let job = empty_job(ContainerId::new(OwnerNo::OWN, session.writer, 0));
        Copier {
            session,
            packer: Packer::new(),
            groups: GroupReader::new(),
            open: None,
            filled: (0, 0),
            job,
            stored: Vec::new(),
            made: Edits::new(),
            bytes: 0,
            stored_bytes: 0,
            index: Index { chunks: Sorter::new(scratch), containers: BTreeSet::new() },
        }
    }

    /// Copies chunks of one container. A group that is damaged ends it; what was copied before stays.
    fn copy(&mut self, tables: &Tables, chunks: &[Occurrence]) -> Result<()> {
        let id = chunks[0].place.container;
        let entry = tables.entry(id)?;
        let table = tables.load(&entry)?;
        let folder = tables.folder_of(id);
        let object = names::data(&folder.path, table.data);
        // What has died since it was counted may be a hole by now.
        let dead = read_dead(&folder, &entry)?;
        let live = chunks.iter().map(|o| o.place.chunk).filter(|chunk| !dead.contains(*chunk));
        let indices: Vec<TableIndex> = live.filter_map(|chunk| table.index_of(chunk)).collect();
        for of_group in indices.chunk_by(|a, b| table.group_of(*a) == table.group_of(*b)) {
            let Some(group) = table.group_of(of_group[0]).map(|g| table.group(g)) else {
                return Err(VaultError::corrupt(&object, "has a chunk in no group"));
            };
            // Chunks that follow one another; of a group that is compressed all of it is read once.
            let mut opened = false;
            for run in of_group.chunk_by(|a, b| a.next() == *b) {
                let range = run[0].range(run.len() as u32);
                let is_raw = group.codec == format::Codec::Raw;
                if is_raw || !opened {
                    let place = extent(&table, group, range);
                    self.stored.resize((place.end - place.start) as usize, 0);
                    folder.store.read_at(&object, place.start, &mut self.stored).named()?;
                }
                if is_raw {
                    self.groups.compare_raw(&object, &table, group, range, &self.stored)?;
                    let bytes = std::mem::take(&mut self.stored);
                    self.append(&table, range, &bytes)?;
                    self.stored = bytes;
                    continue;
                }
                if !std::mem::replace(&mut opened, true) {
                    self.groups.open(&object, &table, group, &self.stored)?;
                }
                let bytes = self.groups.chunks(&object, &table, group, range)?.to_vec();
                self.append(&table, range, &bytes)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, table: &Table, indices: TableRange, mut bytes: &[u8]) -> Result<()> {
        for n in indices {
            let (chunk, rest) = bytes.split_at(table.length(n) as usize);
            bytes = rest;
            if self.filled.0 + chunk.len() as u64 > CONTAINER_BYTES {
                self.end_container()?;
            }
            if !self.job.raw.is_empty() && self.job.raw.len() + chunk.len() > POPULAR_GROUP_BYTES {
                self.end_group()?;
            }
            let fingerprint = *table.fingerprint(n);
            if self.job.raw.is_empty() {
                self.job.first = ChunkNo(self.filled.1);
            }
            self.index.add(PopularSet::prefix(&fingerprint), self.job.container, ChunkNo(self.filled.1))?;
            self.bytes += chunk.len() as u64;
            self.filled = (self.filled.0 + chunk.len() as u64, self.filled.1 + 1);
            self.job.lengths.push(chunk.len() as u32);
            self.job.fingerprints.push(fingerprint);
            self.job.raw.extend_from_slice(chunk);
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        if self.job.raw.is_empty() {
            return Ok(());
        }
        let container = self.job.container;
        let job = std::mem::replace(&mut self.job, empty_job(container));
        let mut stored = Vec::new();
        let codec = self.packer.pack(CODEC, false, &job.raw, &mut stored);
        let mut open = match self.open.take() {
            Some(open) => open,
            None => ContainerWriter::create(&self.session.folder, self.session, container)?,
        };
        check_room(self.session, self.made.len(), stored.len() as u64)?;
        let numbers = [(job.first.0, job.lengths.len() as u32)];
        open.append(&numbers, &job.lengths, &job.fingerprints, codec, &stored)?;
        self.open = Some(open);
        Ok(())
    }

    fn end_container(&mut self) -> Result<()> {
        self.end_group()?;
        let Some(open) = self.open.take() else { return Ok(()) };
        let (entry, stored) = open.finish(self.session)?;
        self.made.insert(entry.id, Some(entry));
        self.stored_bytes += stored;
        self.filled = (0, 0);
        self.job = empty_job(ContainerId::new(OwnerNo::OWN, self.session.writer, self.made.len() as u32));
        Ok(())
    }

    fn finish(mut self) -> Result<Copied> {
        self.end_container()?;
        let Copier { made, bytes, stored_bytes, index, .. } = self;
        Ok(Copied { made, bytes, stored_bytes, index })
    }
}

fn empty_job(container: ContainerId) -> GroupJob {
    GroupJob {
        seq: 0,
        container,
        first: ChunkNo(0),
        lengths: Vec::new(),
        fingerprints: Vec::new(),
        raw: Vec::new(),
        last: false,
    }
}
