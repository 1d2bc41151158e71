//! Checks containers, each once: table, list of dead chunks, data object.

mod groups;

use crate::base::error::{fault, Named, Result, VaultError};
use crate::base::progress::Progress;
use crate::base::threads::{cores, Failure};
use crate::container::dead::read_dead;
use crate::container::group_reader::extent;
use crate::container::tables::Tables;
use crate::container::versions::generations;
use crate::manifest::folder::Folder;
use crate::verify::findings::containers::{CheckCounts, ContainerFindings};
use crate::verify::findings::others::{lock, OtherFindings, ThreadFindings};
use crossbeam_channel::{bounded, Sender};
use format::{
    names, Codec, ContainerEntry, ContainerId, DataFooter, DataHeader, GroupNo, Kind, RunSet, Table,
    DATA_FOOTER_BYTES, DATA_HEADER_BYTES,
};
use groups::GroupRead;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Looks at containers.
pub(crate) struct ContainerCheck<'a> {
    pub tables: &'a Tables,
    /// Whether the chunks of a container are read.
    pub reads: &'a (dyn Fn(ContainerId) -> bool + Sync),
    pub progress: &'a Progress,
    /// What snapshots reference in a container, for those of which it is not known which chunks are dead;
    /// `None` where it cannot be told.
    pub live: &'a (dyn Fn(ContainerId) -> Result<Option<RunSet>> + Sync),
}

impl ContainerCheck<'_> {
    /// Looks at those of the containers that have not been looked at yet. Returns how many it came by: not all where there is
    /// no room for more findings, but at least one where there is.
    pub fn run(
        &self,
        ids: &[ContainerId],
        own: &mut ContainerFindings,
        others: &mut OtherFindings,
    ) -> Result<(CheckCounts, usize)> {
        let room = others.room.clone();
        let found =
            Mutex::new(ThreadFindings { tables: self.tables, own, others, counts: CheckCounts::default() });
        let failure = Failure::default();
        let next = AtomicUsize::new(0);
        // Reads come from one thread, so that they are sequential.
        let (inspectors, readers) =
            if ids.iter().any(|id| (self.reads)(*id)) { (1, cores()) } else { (cores().min(ids.len()), 0) };
        let (tx, rx) = bounded::<GroupRead>(readers * 4);
        std::thread::scope(|scope| {
            let (failure, found, next, room) = (&failure, &found, &next, &room);
            for _ in 0..readers {
                let rx = rx.clone();
                failure.spawn(scope, "check", move || {
                    failure.guard(|| groups::work(self.tables, &rx, found, self.progress))
                });
            }
            drop(rx);
            for _ in 0..inspectors {
                let tx = tx.clone();
                failure.spawn(scope, "inspect", move || {
                    failure.guard(|| loop {
                        if room.is_full() {
                            return Ok(());
                        }
                        let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(()) };
                        self.progress.check()?;
                        if failure.is_set() {
                            return Ok(());
                        }
                        self.inspect(*id, found, &tx)?;
                    })
                });
            }
            drop(tx);
        });
        failure.into_result()?;
        let counts = found.into_inner().counts;
        Ok((counts, next.into_inner().min(ids.len())))
    }

    /// Looks at one container; its groups go to the threads that read them.
    fn inspect(
        &self,
        id: ContainerId,
        found: &Mutex<ThreadFindings<'_>>,
        out: &Sender<GroupRead>,
    ) -> Result<()> {
        let entry = match self.tables.entry(id) {
            Ok(entry) => entry,
            Err(e) => {
                let (object, why) = fault(e)?;
                lock(found).lost(id, &object, &why);
                return Ok(());
            }
        };
        {
            let mut found = lock(found);
            if !found.of(id).begin(&entry) {
                return Ok(());
            }
            found.counts.containers += 1;
            // Table and data.
            found.counts.objects += 2;
        }
        let folder = &self.tables.folder_of(id);
        let reads_chunks = (self.reads)(id);
        let known_dead = self.dead_log(folder, &entry, found)?;
        let table = match self.tables.load(&entry) {
            Ok(table) => table,
            Err(e) => {
                let (object, why) = fault(e)?;
                lock(found).of(id).ruin(&entry, &object, &why);
                self.progress.add(entry.stored_bytes);
                return Ok(());
            }
        };
        check_entry(folder, &entry, &table, found);
        let groups = self.data_object(folder, &entry, &table, reads_chunks, found)?;
        if !reads_chunks {
            self.progress.add(entry.stored_bytes);
            return Ok(());
        }
        lock(found).of(id).reads(id);
        let dead = match known_dead {
            Some(dead) => dead,
            // What nothing references may have been punched.
            None => (self.live)(id)?.map_or_else(RunSet::default, |live| table.numbers.minus(&live)),
        };
        groups::reads(folder, &table, entry.table, &groups, &dead, self.progress, out)
    }

    /// The chunks that are dead; `None` where that is not known: their list is damaged, or does not have all.
    fn dead_log(
        &self,
        folder: &Folder,
        entry: &ContainerEntry,
        found: &Mutex<ThreadFindings<'_>>,
    ) -> Result<Option<RunSet>> {
        match read_dead(folder, entry) {
            Ok(dead) => {
                lock(found).counts.objects += u64::from(!dead.is_empty());
                Ok(Some(dead).filter(|_| !entry.is_rebuilt()))
            }
            Err(e) => {
                let (object, why) = fault(e)?;
                let why = format!("{why}; restores do not need it, dead space of its container is not known");
                lock(found).of(entry.id).unlist(entry.id, &object, &why);
                Ok(None)
            }
        }
    }

    /// Length, header, footer and directory of a data object. Returns the indices of the groups that it has.
    fn data_object(
        &self,
        folder: &Folder,
        entry: &ContainerEntry,
        table: &Table,
        reads_chunks: bool,
        found: &Mutex<ThreadFindings<'_>>,
    ) -> Result<Vec<GroupNo>> {
        let object = names::data(&folder.path, table.data);
        let len = match folder.store.len(&object).named() {
            Ok(len) => len,
            Err(e) => {
                let (object, why) = fault(e)?;
                lock(found).of(entry.id).ruin(entry, &object, &why);
                return Ok(Vec::new());
            }
        };
        if let Err(e) = check_header(folder, table, &object) {
            let (_, why) = fault(e)?;
            let mut found = lock(found);
            // Where the groups are read, they tell what is lost.
            if reads_chunks {
                found.of(entry.id).damage(entry.id, generations(entry), &object, [&why], None)
            } else {
                found.of(entry.id).ruin(entry, &object, &why)
            }
        }
        let groups_end = match check_end(folder, entry, table, &object, len) {
            Ok(end) => end,
            Err(e) => {
                let (_, why) = fault(e)?;
                lock(found).of(entry.id).damage(entry.id, generations(entry), &object, [&why], None);
                len
            }
        };
        let mut there = Vec::with_capacity(table.groups.len());
        let (mut whys, mut chunks) = (Vec::new(), Vec::new());
        for (n, g) in (0..).map(GroupNo).zip(&table.groups) {
            if g.offset >= DATA_HEADER_BYTES as u64 && g.offset + u64::from(g.stored_len) <= groups_end {
                there.push(n);
                continue;
            }
            let why = format!("the group at offset {} is not within its {len} bytes", g.offset);
            let mut lost = g.indices();
            if g.codec == Codec::Raw && g.offset >= DATA_HEADER_BYTES as u64 {
                // Chunks that stand before the end can be read.
                while !lost.is_empty() && extent(table, g, lost.start.range(1)).end <= groups_end {
                    lost.start = lost.start.next();
                }
                there.push(n);
            }
            whys.push(why);
            chunks.extend(groups::chunks_of(table, lost));
        }
        if !whys.is_empty() {
            let chunks = RunSet::from_unsorted(chunks);
            lock(found).of(entry.id).damage(entry.id, generations(entry), &object, &whys, Some(&chunks));
        }
        Ok(there)
    }
}

/// What the container table says of a table must be so.
fn check_entry(folder: &Folder, entry: &ContainerEntry, table: &Table, found: &Mutex<ThreadFindings<'_>>) {
    let chunks = table.lengths.len();
    if table.data == entry.data && chunks == entry.chunks as usize {
        return;
    }
    let object = names::table(&folder.path, entry.id, entry.table);
    let why = format!(
        "has {chunks} chunks in data {}.{}, but its entry says {} in {}.{}",
        table.data.container,
        table.data.generation.0,
        entry.chunks,
        entry.data.container,
        entry.data.generation.0
    );
    lock(found).of(entry.id).damage(entry.id, generations(entry), &object, [&why], None);
}

fn check_header(folder: &Folder, table: &Table, object: &str) -> Result<()> {
    let mut bytes = [0; DATA_HEADER_BYTES];
    folder.store.read_at(object, 0, &mut bytes).named()?;
    let header = DataHeader::decode(&bytes).map_err(VaultError::malformed(object))?;
    let right = DataHeader { vault: folder.vault, disk: folder.disk, name: table.data };
    if header != right {
        let why = format!(
            "its header is that of {}.{} of disk {}",
            header.name.container, header.name.generation.0, header.disk
        );
        return Err(VaultError::corrupt(object, why));
    }
    Ok(())
}

/// Checks footer and directory. Returns where the groups end.
fn check_end(folder: &Folder, entry: &ContainerEntry, table: &Table, object: &str, len: u64) -> Result<u64> {
    let mut bytes = [0; DATA_FOOTER_BYTES];
    let footer_at = len.saturating_sub(DATA_FOOTER_BYTES as u64);
    folder.store.read_at(object, footer_at, &mut bytes).named()?;
    let footer = DataFooter::decode(&bytes, len).map_err(VaultError::malformed(object))?;
    if footer.directory_len > Kind::Directory.frame_max() {
        let why = format!("a directory of {} bytes is not plausible", footer.directory_len);
        return Err(VaultError::corrupt(object, why));
    }
    let mut bytes = vec![0; footer.directory_len as usize];
    folder.store.read_at(object, footer.directory_offset, &mut bytes).named()?;
    let place = format!("{object}#{}", footer.directory_offset);
    let directory = Table::decode_directory(folder.context(&place), &bytes)
        .map_err(VaultError::malformed(object))
        .map_err(|e| within("its directory", e))?;
    // A table that was written later may hold less of the object, or chunks of other objects.
    let together = table.container.local() == table.data.container && entry.table == table.data.generation;
    let equal = directory.numbers == table.numbers
        && directory.groups == table.groups
        && directory.lengths == table.lengths
        && directory.data == table.data;
    if together && !equal {
        return Err(VaultError::corrupt(object, "its directory differs from its table"));
    }
    Ok(footer.directory_offset)
}

fn within(part: &str, e: VaultError) -> VaultError {
    match e {
        VaultError::Corrupt { object, why } => VaultError::Corrupt { object, why: format!("{part}: {why}") },
        e => e,
    }
}
