//! Looks for lost chunks: in other containers, of this vault or of another one, and in disks.

use super::wanted::Wanted;
use crate::base::error::{Named, Result, UnlessDamaged};
use crate::base::progress::Progress;
use crate::container::group_reader::{extent, GroupReader};
use crate::container::tables::read_table;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::reader::Reader;
use crate::manifest::vault::Vault;
use crate::recipe::stored::read_root;
use chunk::{ChunkSpec, Piece};
use format::{names, Codec, SnapshotEntry, Table};
use image::Source;
use std::collections::BTreeMap;

/// Looks in all containers of a vault. What is damaged there is passed over.
pub(super) fn find_in_vault(vault: &Vault, wanted: &mut Wanted, progress: &Progress) -> Result<()> {
    let mut groups = GroupReader::new();
    let mut folders = vault.all_folders()?;
    folders.extend(vault.popular().load_tagged().unless_damaged()?.flatten().map(|_| vault.popular()));
    for folder in folders {
        // So that nothing goes while it is read.
        let Some(reader) = Reader::open(&folder).unless_damaged()? else { continue };
        let containers = Containers::new(folder.clone(), &reader.manifest);
        let looked = containers.each(|entry| {
            progress.check()?;
            if entry.is_foreign() || !wanted.is_missing_any() {
                return Ok(());
            }
            match read_table(&folder, entry.id, entry.table).unless_damaged()? {
                Some(table) => find_in_container(&folder, &table, wanted, &mut groups),
                None => Ok(()),
            }
        });
        looked.unless_damaged()?;
        if !wanted.is_missing_any() {
            break;
        }
    }
    Ok(())
}

fn find_in_container(
    folder: &Folder,
    table: &Table,
    wanted: &mut Wanted,
    groups: &mut GroupReader,
) -> Result<()> {
    let object = names::data(&folder.path, table.data);
    let mut stored = Vec::new();
    for group in &table.groups {
        let is_wanted = |n| wanted.is_missing(table.fingerprint(n));
        let here: Vec<_> = group.indices().into_iter().filter(|n| is_wanted(*n)).collect();
        let Some((first, last)) = here.first().zip(here.last()) else { continue };
        // Of a group that is stored raw only what is between the first and the last one.
        let from = extent(table, group, first.range(1)).start;
        let to = extent(table, group, last.range(1)).end;
        stored.resize((to - from) as usize, 0);
        let read = folder.store.read_at(&object, from, &mut stored).named();
        if read.unless_damaged()?.is_none() {
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
                    wanted.found(table.fingerprint(n), bytes);
                }
            } else if let Ok(bytes) = groups.chunks(&object, table, group, n.range(1)) {
                wanted.found(table.fingerprint(n), bytes);
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
        let Some(m) = folder.load().unless_damaged()? else { continue };
        let newest: BTreeMap<&str, &SnapshotEntry> =
            m.snapshots.iter().map(|s| (s.policy.as_str(), s)).collect();
        for snapshot in newest.into_values() {
            let Some(root) = read_root(&folder, snapshot).unless_damaged()? else { continue };
            let Ok(chunking) = root.chunking.parse::<ChunkSpec>() else { continue };
            let cut = Cut { segment_bytes: root.segment_bytes, chunking };
            if chunking.check().is_ok() && !cuts.iter().any(|c| c.is_like(&cut)) {
                cuts.push(cut);
            }
        }
    }
    Ok(cuts)
}

/// Looks in a disk, which is cut as the disks of the vault are.
pub(super) fn find_in_disk(
    disk: &mut dyn Source,
    cuts: &[Cut],
    wanted: &mut Wanted,
    progress: &Progress,
) -> Result<()> {
    for cut in cuts {
        let segment_bytes = u64::from(cut.segment_bytes);
        let (mut at, mut data, mut pieces) = (0, Vec::new(), Vec::new());
        while let Some(range) = disk.next_data(at)? {
            progress.check()?;
            if !wanted.is_missing_any() {
                return Ok(());
            }
            let from = range.start / segment_bytes * segment_bytes;
            data.resize(segment_bytes as usize, 0);
            let read = disk.read_at(from, &mut data)?;
            if read == 0 {
                break;
            }
            pieces.clear();
            chunk::cut(&data[..read], cut.chunking, &mut pieces);
            find_in_segment(&data[..read], &pieces, wanted);
            at = from + segment_bytes;
        }
    }
    Ok(())
}

fn find_in_segment(data: &[u8], pieces: &[Piece], wanted: &mut Wanted) {
    let mut fingerprints = Vec::new();
    chunk::fingerprint_pieces(data, pieces, &mut fingerprints);
    let (mut at, mut fingerprints) = (0, fingerprints.iter());
    for piece in pieces {
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
