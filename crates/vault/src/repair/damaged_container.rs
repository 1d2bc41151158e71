//! A damaged container as far as it can be read: its table, which may have to be made anew, and its dead chunks.

use super::group_salvage::GroupSalvage;
use super::proof;
use crate::base::error::{fault, Named, Result, UnlessDamaged, VaultError};
use crate::container::dead::read_dead;
use crate::container::tables::read_table;
use crate::manifest::folder::Folder;
use crate::reclaim::dead_list::live_chunks_of_all;
use format::{names, Codec, ContainerEntry, DataFooter, Kind, RunSet, Table, TableIndex, DATA_FOOTER_BYTES};
use std::cell::OnceCell;

/// A damaged container.
pub(super) struct DamagedContainer {
    pub entry: ContainerEntry,
    pub table: Table,
    /// Chunks that are known to be dead.
    dead: RunSet,
    /// Whether the table and the list of dead chunks say what is in it.
    is_described: bool,
    /// Where they do not: the chunks that snapshots reference, found when they are asked for.
    live: OnceCell<RunSet>,
    /// Whether table, list of dead chunks or data object are damaged themselves: then it is worth writing again, even if
    /// no chunk can be healed.
    pub is_broken: bool,
}

impl DamagedContainer {
    /// Reads what describes a container.
    ///
    /// # Errors
    /// Damage, where neither its table nor its data object tell what is in it.
    pub fn read(folder: &Folder, entry: &ContainerEntry) -> Result<DamagedContainer> {
        let table = read_table(folder, entry.id, entry.table).map(|table| (table, true));
        let (table, has_table) =
            table.if_damaged(|e| Ok((rebuild_table(folder, entry).map_err(|_| e)?, false)))?;
        let listed = read_dead(folder, entry).unless_damaged()?;
        let is_listed = listed.is_some();
        let dead = listed.unwrap_or_default();
        let is_whole = is_listed && has_table && has_directory(folder, &table)?;
        let is_described = is_listed && has_table && !entry.is_rebuilt();
        let (entry, live) = (*entry, OnceCell::new());
        Ok(DamagedContainer { entry, table, dead, is_described, live, is_broken: !is_whole })
    }

    /// Whether a chunk has to be kept. Where the table or the list of dead chunks is lost, or was lost, one that is not whole
    /// and that no snapshot references counts as dead: it may have been punched.
    pub fn is_kept(&self, folder: &Folder, n: TableIndex, is_whole: bool) -> Result<bool> {
        let Some(no) = self.table.number_at(n).filter(|no| !self.dead.contains(*no)) else {
            return Ok(false);
        };
        if is_whole || self.is_described {
            return Ok(true);
        }
        let live = match self.live.get() {
            Some(live) => live,
            None => {
                let live = live_chunks_of_all(folder, self.entry.id)
                    .or_else(|e| fault(e).map(|_| self.table.numbers.clone()))?;
                self.live.get_or_init(|| live)
            }
        };
        Ok(live.contains(no))
    }
}

/// Whether a data object's directory can be read, as far as it matters here: without one it is to be written again.
fn has_directory(folder: &Folder, table: &Table) -> Result<bool> {
    match directory(folder, table.data) {
        Ok(_) => Ok(true),
        Err(e) => fault(e).map(|_| false),
    }
}

/// The directory at the end of a data object.
pub(super) fn directory(folder: &Folder, data: format::DataName) -> Result<Table> {
    let object = names::data(&folder.path, data);
    let len = folder.store.len(&object).named()?;
    let mut bytes = [0; DATA_FOOTER_BYTES];
    folder.store.read_at(&object, len.saturating_sub(DATA_FOOTER_BYTES as u64), &mut bytes).named()?;
    let footer = DataFooter::decode(&bytes, len).map_err(VaultError::malformed(&object))?;
    if footer.directory_len > Kind::Directory.frame_max() {
        return Err(VaultError::corrupt(&object, "its directory is too long"));
    }
    let mut bytes = vec![0; footer.directory_len as usize];
    folder.store.read_at(&object, footer.directory_offset, &mut bytes).named()?;
    let place = format!("{object}#{}", footer.directory_offset);
    Table::decode_directory(folder.context(&place), &bytes).map_err(VaultError::malformed(&object))
}

/// Makes a table anew from the directory and the chunks of its data object. Groups that are stored raw may have holes: then
/// they do not match their checksums, and the recipes prove which of their chunks are whole. Other chunks of groups that do
/// not match get a fingerprint of zeros, which no chunk has: they are lost.
fn rebuild_table(folder: &Folder, entry: &ContainerEntry) -> Result<Table> {
    let mut table = directory(folder, entry.data)?;
    let object = names::data(&folder.path, entry.data);
    // A table that was written later than its data object may describe less of it, or more.
    let is_together = table.container == entry.id && entry.table == entry.data.generation;
    if !is_together || table.data != entry.data || table.lengths.len() != entry.chunks as usize {
        return Err(VaultError::corrupt(&object, "its directory is not that of the table"));
    }
    let mut groups = GroupSalvage::new();
    let mut fingerprints = Vec::with_capacity(table.lengths.len());
    let mut doubtful = RunSet::default();
    for group in &table.groups {
        groups.read(folder, &table, group)?;
        let is_known = groups.matches_checksum();
        if !is_known && group.codec == Codec::Raw {
            let numbers = group.indices().into_iter().filter_map(|n| table.number_at(n));
            doubtful = doubtful.union(&RunSet::from_unsorted(numbers.map(|n| (n.0, 1)).collect()));
        }
        let is_candidate = is_known || group.codec == Codec::Raw;
        fingerprints.extend(groups.fingerprints().iter().map(|f| if is_candidate { f.0 } else { [0; 32] }));
    }
    table.fingerprints = fingerprints;
    if !doubtful.is_empty() {
        let proven = proof::whole_chunks(folder, entry.id, &table, &doubtful)?;
        for n in 0..table.lengths.len() {
            let no = table.number_at(TableIndex(n as u32));
            if no.is_some_and(|no| doubtful.contains(no) && !proven.contains(no)) {
                table.fingerprints[n] = [0; 32];
            }
        }
    }
    Ok(table)
}
