//! Looks for lost chunks: in other containers, of this vault or of another one, and in disks.

use super::wanted::ChunkSearch;
use crate::base::error::{Named, Result, UnlessDamaged};
use crate::base::progress::Progress;
use crate::base::threads::{cores, Failure};
use crate::container::group_reader::{extent, GroupReader};
use crate::container::tables::read_table;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::reader::Reader;
use crate::manifest::vault::Vault;
use crate::recipe::stored::read_root;
use chunk::{ChunkSpec, Piece};
use crossbeam_channel::{bounded, Sender};
use format::{names, Codec, ContainerEntry, SnapshotEntry, Table};
use image::Source;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Looks in all containers of a vault, on all cores. What is damaged there is passed over.
pub(super) fn find_in_vault(vault: &Vault, wanted: &mut ChunkSearch, progress: &Progress) -> Result<()> {
    let mut folders = vault.all_folders()?;
    folders.extend(vault.popular().load_tagged().unless_unreadable()?.flatten().map(|_| vault.popular()));
    for folder in folders {
        // So that nothing goes while it is read.
        let Some(reader) = Reader::open(&folder).unless_unreadable()? else { continue };
        let containers = Containers::new(folder.clone(), &reader.manifest);
        let own = containers.select(None, |entry| !entry.is_foreign()).unless_unreadable()?;
        find_in_containers(&folder, &own.unwrap_or_default(), wanted, progress)?;
        if !wanted.is_missing_any() {
            break;
        }
    }
    Ok(())
}

fn find_in_containers(
    folder: &Folder,
    entries: &[ContainerEntry],
    wanted: &mut ChunkSearch,
    progress: &Progress,
) -> Result<()> {
    let (next, wanted, failure) = (AtomicUsize::new(0), Mutex::new(wanted), Failure::default());
    let search = || -> Result<()> {
        let mut groups = GroupReader::new();
        while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
            progress.check()?;
            if failure.is_set() || !wanted.lock().is_missing_any() {
                break;
            }
            if let Some(table) = read_table(folder, entry.id, entry.table).unless_unreadable()? {
                find_in_container(folder, &table, &wanted, &mut groups)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..cores().min(entries.len()) {
            failure.spawn(scope, "search", || failure.guard(search));
        }
    });
    failure.into_result()
}

fn find_in_container(
    folder: &Folder,
    table: &Table,
    wanted: &Mutex<&mut ChunkSearch>,
    groups: &mut GroupReader,
) -> Result<()> {
    let object = names::data(&folder.path, table.data);
    let mut stored = Vec::new();
    for group in &table.groups {
        let here: Vec<_> = {
            let wanted = wanted.lock();
            group.indices().into_iter().filter(|n| wanted.is_missing(table.fingerprint(*n))).collect()
        };
        let Some((first, last)) = here.first().zip(here.last()) else { continue };
        // Of a group that is stored raw only what is between the first and the last one.
        let from = extent(table, group, first.range(1)).start;
        let to = extent(table, group, last.range(1)).end;
        stored.resize((to - from) as usize, 0);
        let read = folder.store.read_at(&object, from, &mut stored).named();
        if read.unless_unreadable()?.is_none() {
            continue;
        }
        if group.codec != Codec::Raw && groups.open(&object, table, group, &stored).is_err() {
            continue;
        }
        for n in here {
            if group.codec == Codec::Raw {
                let at = extent(table, group, n.range(1));
                let bytes = &stored[(at.start - from) as usize..(at.end - from) as usize];
                if groups.compare_raw(&object, table, group, n.range(1), bytes).is_ok() {
                    wanted.lock().found(table.fingerprint(n), bytes);
                }
            } else if let Ok(bytes) = groups.chunks(&object, table, group, n.range(1)) {
                wanted.lock().found(table.fingerprint(n), bytes);
            }
        }
    }
    Ok(())
}

/// How a disk is cut: the bytes of a segment, and the chunks in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    segment_bytes: u32,
    chunking: ChunkSpec,
}

impl Cut {
    /// Whether both give the same chunks. Fixed chunks are the same in segments of any length.
    fn is_like(&self, other: &Cut) -> bool {
        let is_fixed = matches!(self.chunking, ChunkSpec::Fixed { .. });
        self.chunking == other.chunking && (is_fixed || self.segment_bytes == other.segment_bytes)
    }
}

/// How the disks of a vault are cut, each way once: as the newest snapshot of each policy of each disk.
pub(super) fn cuts(vault: &Vault) -> Result<Vec<Cut>> {
    let mut cuts: Vec<Cut> = Vec::new();
    for folder in vault.all_folders()? {
        let Some(m) = folder.load().unless_unreadable()? else { continue };
        let newest: BTreeMap<&str, &SnapshotEntry> =
            m.snapshots.iter().map(|s| (s.policy.as_str(), s)).collect();
        for snapshot in newest.into_values() {
            let Some(root) = read_root(&folder, snapshot).unless_unreadable()? else { continue };
            let Ok(chunking) = root.chunking.parse::<ChunkSpec>() else { continue };
            let cut = Cut { segment_bytes: root.segment_bytes, chunking };
            if chunking.check().is_ok() && !cuts.iter().any(|c| c.is_like(&cut)) {
                cuts.push(cut);
            }
        }
    }
    Ok(cuts)
}

/// Looks in a disk, which is cut as the disks of the vault are. It is read in order, and looked through on all cores.
pub(super) fn find_in_disk(
    disk: &mut dyn Source,
    cuts: &[Cut],
    wanted: &mut ChunkSearch,
    progress: &Progress,
) -> Result<()> {
    let wanted = Mutex::new(wanted);
    for cut in cuts {
        if !wanted.lock().is_missing_any() {
            break;
        }
        let failure = Failure::default();
        let (segments_tx, segments) = bounded::<Vec<u8>>(cores());
        std::thread::scope(|scope| {
            for _ in 0..cores() {
                let (segments, wanted, chunking) = (segments.clone(), &wanted, cut.chunking);
                failure.spawn(scope, "search", move || {
                    segments.iter().for_each(|data| find_in_segment(&data, chunking, wanted));
                });
            }
            drop(segments);
            let mut read_all = || read(disk, u64::from(cut.segment_bytes), &segments_tx, &wanted, progress);
            failure.guard(&mut read_all);
            drop(segments_tx);
        });
        failure.into_result()?;
    }
    Ok(())
}

/// Reads a disk in segments, as long as something is missing.
fn read(
    disk: &mut dyn Source,
    segment_bytes: u64,
    out: &Sender<Vec<u8>>,
    wanted: &Mutex<&mut ChunkSearch>,
    progress: &Progress,
) -> Result<()> {
    let mut at = 0;
    while let Some(range) = disk.next_data(at)? {
        progress.check()?;
        if !wanted.lock().is_missing_any() {
            break;
        }
        let from = range.start / segment_bytes * segment_bytes;
        let mut data = vec![0; segment_bytes as usize];
        let read = disk.read_at(from, &mut data)?;
        data.truncate(read);
        // No thread takes it where none could be started.
        if read == 0 || out.send(data).is_err() {
            break;
        }
        at = from + segment_bytes;
    }
    Ok(())
}

fn find_in_segment(data: &[u8], chunking: ChunkSpec, wanted: &Mutex<&mut ChunkSearch>) {
    let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
    chunk::cut(data, chunking, &mut pieces);
    chunk::fingerprint_pieces(data, &pieces, &mut fingerprints);
    let (mut at, mut fingerprints) = (0, fingerprints.iter());
    let mut wanted = wanted.lock();
    for piece in &pieces {
        let bytes = &data[at..at + piece.bytes() as usize];
        at += bytes.len();
        if let Piece::Data { .. } = piece {
            let Some(f) = fingerprints.next() else { return };
            if wanted.is_missing(&f.0) {
                wanted.found(&f.0, bytes);
            }
        }
    }
}
