//! Builds a popular set: copies the chosen chunks to popular containers.
//!
//! This is maintenance of the shared set: one run at a time, beside backups and restores. Containers are durable before
//! the manifest names them, and named before the index is published. A crash leaves containers that no snapshot
//! references and no index lists: `gc` removes them.

use crate::base::error::{Named, Result, VaultError};
use crate::base::policy::{CodecChoice, POPULAR_GROUP_BYTES};
use crate::container::codec::Packer;
use crate::container::dead::read_dead;
use crate::container::group_reader::{extent, GroupReader};
use crate::container::room::check_room;
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::container::writer::{ContainerWriter, GroupJob};
use crate::lookup::popular::{check_len, publish, sets};
use crate::manifest::container_table::{Containers, Edits};
use crate::manifest::session::{fence_dead, Session};
use crate::manifest::vault::Vault;
use crate::popular::census::{is_popular, Census};
use crate::popular::report::PopularReport;
use crate::popular::spill::Occurrence;
use format::{names, ChunkNo, ContainerId, OwnerNo, PopularSet, Table, TableIndex, TableRange, WriterKind};
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
    let (chosen, least_disks) = census.top(&classes, most)?;
    check_len(chosen.len())?;
    let mut report = PopularReport { least_disks, damaged: census.damaged.clone(), ..Default::default() };

    let mut index: Vec<(u64, ContainerId, ChunkNo)> = Vec::with_capacity(chosen.len());
    let mut copier = Copier::new(&session);
    let (kept, chosen): (Vec<Occurrence>, Vec<Occurrence>) =
        chosen.into_iter().partition(|o| is_popular(o.place.container));
    report.kept_chunks = kept.len() as u64;
    report.bytes = kept.iter().map(|o| u64::from(o.bytes)).sum();
    index.extend(kept.iter().map(|o| (prefix_of(o), o.place.container.local(), o.place.chunk)));
    for of_disk in chosen.chunk_by(|a, b| a.disk == b.disk) {
        let folder = &census.disks[of_disk[0].disk as usize];
        let view = match vault.view(folder, TABLE_CACHE_BYTES) {
            // Collection has taken the disk away with its last snapshot since it was counted.
            Err(VaultError::Missing { .. }) if !folder.has_content()? => continue,
            view => view?,
        };
        for of_container in of_disk.chunk_by(|a, b| a.place.container == b.place.container) {
            // Its disk may have given it up since it was counted.
            let listed =
                Containers::new(view.folder.clone(), &view.manifest).get(of_container[0].place.container)?;
            if listed.is_none() {
                continue;
            }
            match copier.copy(&view.tables, of_container) {
                Err(e) if e.is_damage() => report.damaged.push(e.to_string()),
                other => other?,
            }
        }
        view.check()?;
    }
    let Copied { made, bytes, stored_bytes, entries } = copier.finish()?;
    report.bytes += bytes;
    report.stored_bytes = stored_bytes;
    index.extend(entries);
    report.chunks = index.len() as u64;
    session.swap(|m| m.edit_containers(&made))?;
    let old = sets(&popular)?;
    publish(&session, &PopularSet::new(index))?;
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
    out: Copied,
}

#[derive(Default)]
struct Copied {
    made: Edits,
    bytes: u64,
    stored_bytes: u64,
    entries: Vec<(u64, ContainerId, ChunkNo)>,
}

impl<'a> Copier<'a> {
    fn new(session: &'a Session) -> Self {
        let job = empty_job(ContainerId::new(OwnerNo::OWN, session.writer, 0));
        Copier {
            session,
            packer: Packer::new(),
            groups: GroupReader::new(),
            open: None,
            filled: (0, 0),
            job,
            stored: Vec::new(),
            out: Copied::default(),
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
            self.out.entries.push((
                PopularSet::prefix(&fingerprint),
                self.job.container,
                ChunkNo(self.filled.1),
            ));
            self.out.bytes += chunk.len() as u64;
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
        check_room(self.session, self.out.made.len(), stored.len() as u64)?;
        let numbers = [(job.first.0, job.lengths.len() as u32)];
        open.append(&numbers, &job.lengths, &job.fingerprints, codec, &stored)?;
        self.open = Some(open);
        Ok(())
    }

    fn end_container(&mut self) -> Result<()> {
        self.end_group()?;
        let Some(open) = self.open.take() else { return Ok(()) };
        let (entry, stored) = open.finish(self.session)?;
        self.out.made.insert(entry.id, Some(entry));
        self.out.stored_bytes += stored;
        self.filled = (0, 0);
        self.job = empty_job(ContainerId::new(OwnerNo::OWN, self.session.writer, self.out.made.len() as u32));
        Ok(())
    }

    fn finish(mut self) -> Result<Copied> {
        self.end_container()?;
        Ok(self.out)
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
