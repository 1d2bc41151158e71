//! Names: what is in directories.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use export::files::{Name, New, Rename, Stat};
use export::NodeId;
use format::pool::{FileKind, FileRecord, LINK_BYTES_MAX};
use redb::ReadableTable;
use rustix::io::Errno;

use super::error::Answer;
use super::node::{kind_of, now, record, type_of, Node};
use super::table::{key, range, Table, NAMES};
use super::FileSystem;
use crate::error::{PoolError, Result};

/// The longest name in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The most names of a node.
const LINKS_MAX: u32 = 65_000;
/// A directory whose new entries get its group.
const SET_GROUP: u16 = 0o2000;

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    id: u64,
    kind: FileKind,
}

impl Found {
    fn encode(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8] = self.kind.byte();
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let malformed = |why| PoolError::damaged("a name of the file system", why);
        let (Some((id, [kind])), 9) = (bytes.split_first_chunk::<8>(), bytes.len()) else {
            return Err(malformed(format::Malformed::new(format!("{} bytes", bytes.len()))));
        };
        Ok(Found { id: u64::from_le_bytes(*id), kind: FileKind::of_byte(*kind).map_err(malformed)? })
    }
}

impl Table {
    pub(super) fn find(&self, directory: u64, name: &OsStr) -> Result<Option<Found>> {
        let key = key(directory, name.as_bytes());
        let bytes =
            self.with(|open| Ok(open.open_table(NAMES)?.get(&*key)?.map(|found| found.value().to_vec())))?;
        bytes.map(|bytes| Found::decode(&bytes)).transpose()
    }

    fn name(&mut self, directory: u64, name: &OsStr, found: Found) -> Result<()> {
        let key = key(directory, name.as_bytes());
        self.changing(|open| {
            open.open_table(NAMES)?.insert(&*key, &found.encode()[..])?;
            Ok(())
        })
    }

    fn unname(&mut self, directory: u64, name: &OsStr) -> Result<()> {
        let key = key(directory, name.as_bytes());
        self.changing(|open| {
            open.open_table(NAMES)?.remove(&*key)?;
            Ok(())
        })
    }

    /// The names in a directory, at most so many.
    fn names(&self, directory: u64, most: usize) -> Result<Vec<(OsString, Found)>> {
        let range = range(directory);
        let entries = self.with(|open| {
            let table = open.open_table(NAMES)?;
            let mut entries = Vec::new();
            for entry in table.range(&*range.start..&*range.end)?.take(most) {
                let (key, found) = entry?;
                entries.push((key.value()[8..].to_vec(), found.value().to_vec()));
            }
            Ok(entries)
        })?;
        entries
            .into_iter()
            .map(|(name, found)| Ok((OsString::from_vec(name), Found::decode(&found)?)))
            .collect()
    }
}

impl FileSystem {
    pub(super) fn look_up(&self, directory: NodeId, name: &OsStr) -> Answer<Stat> {
        let table = self.table.lock();
        check_length(name)?;
        let found = table.find(directory.0, name)?.ok_or(Errno::NOENT)?;
        let node = self.node_of(&table, found.id)?;
        self.seen(&node)
    }

    pub(super) fn forget_lookups(&self, id: NodeId, lookups: u64) -> Result<()> {
        let mut table = self.table.lock();
        let Some(node) = self.nodes.lock().get(&id.0).cloned() else { return Ok(()) };
        let mut state = node.state.lock();
        state.lookups = state.lookups.saturating_sub(lookups);
        if state.lookups > 0 || id == NodeId::ROOT {
            return Ok(());
        }
        if state.record.links == 0 {
            // The table may not know the volume yet.
            table.put(id.0, &state.record)?;
            table.remove_node(id.0)?;
        } else if self.dirty.lock().contains(&id.0) {
            table.put(id.0, &state.record)?;
        }
        self.dirty.lock().remove(&id.0);
        self.nodes.lock().remove(&id.0);
        Ok(())
    }

    pub(super) fn make_node(&self, directory: NodeId, name: &OsStr, new: &New<'_>) -> Answer<Stat> {
        let kind = kind_of(new.mode).ok_or(Errno::INVAL)?;
        self.check_room_for_names()?;
        let mut table = self.table.lock();
        let above = self.directory(&table, directory.0)?;
        check_length(name)?;
        if new.target.len() > LINK_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        if table.find(directory.0, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let (above_mode, above_group, above_links) = {
            let state = above.state.lock();
            (state.record.mode, state.record.group, state.record.links)
        };
        if kind == FileKind::Directory && above_links >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let mut mode = (new.mode & 0o7777) as u16;
        let mut group = new.group;
        if above_mode & SET_GROUP != 0 {
            group = above_group;
            if kind == FileKind::Directory {
                mode |= SET_GROUP;
            }
        }
        let id = table.new_number()?;
        let record = FileRecord {
            links: if kind == FileKind::Directory { 2 } else { 1 },
            device: new.device,
            size: new.target.len() as u64,
            parent: if kind == FileKind::Directory { directory.0 } else { 0 },
            target: new.target.to_vec(),
            ..record(kind, mode, (new.user, group))
        };
        table.put(id, &record)?;
        table.name(directory.0, name, Found { id, kind })?;
        table.add(name.len() + new.target.len());
        self.changed_names(&above, if kind == FileKind::Directory { 1 } else { 0 });
        let node = self.node_of(&table, id)?;
        self.seen(&node)
    }

    pub(super) fn unlink_name(&self, directory: NodeId, name: &OsStr) -> Answer<()> {
        let mut table = self.table.lock();
        let above = self.directory(&table, directory.0)?;
        let found = table.find(directory.0, name)?.ok_or(Errno::NOENT)?;
        if found.kind == FileKind::Directory {
            return Err(Errno::ISDIR.into());
        }
        let node = self.node_of(&table, found.id)?;
        table.unname(directory.0, name)?;
        self.lose_name(&mut table, &node)?;
        self.changed_names(&above, 0);
        Ok(())
    }

    pub(super) fn remove_empty(&self, directory: NodeId, name: &OsStr) -> Answer<()> {
        let mut table = self.table.lock();
        let above = self.directory(&table, directory.0)?;
        let found = table.find(directory.0, name)?.ok_or(Errno::NOENT)?;
        if found.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let node = self.node_of(&table, found.id)?;
        if !table.names(found.id, 1)?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        table.unname(directory.0, name)?;
        self.lose_name(&mut table, &node)?;
        self.changed_names(&above, -1);
        Ok(())
    }

    pub(super) fn rename_node(
        &self,
        (from, name): (NodeId, &OsStr),
        (to, new_name): (NodeId, &OsStr),
        how: Rename,
    ) -> Answer<()> {
        self.check_room_for_names()?;
        let mut table = self.table.lock();
        let (above, new_above) = (self.directory(&table, from.0)?, self.directory(&table, to.0)?);
        check_length(new_name)?;
        let found = table.find(from.0, name)?.ok_or(Errno::NOENT)?;
        let there = table.find(to.0, new_name)?;
        let node = self.node_of(&table, found.id)?;
        let replaced = match (there, how) {
            (Some(_), Rename::Keep) => return Err(Errno::EXIST.into()),
            (None, Rename::Exchange) => return Err(Errno::NOENT.into()),
            // Two names of one node: POSIX leaves both.
            (Some(there), _) if there == found => return Ok(()),
            (Some(there), _) => Some((there, self.node_of(&table, there.id)?)),
            (None, _) => None,
        };
        if found.kind == FileKind::Directory {
            self.check_not_below(&table, to.0, found.id)?;
            let is_full = new_above.state.lock().record.links >= LINKS_MAX;
            if is_full && from != to {
                return Err(Errno::MLINK.into());
            }
        }
        if how == Rename::Exchange {
            if let Some((there, other)) = replaced {
                if there.kind == FileKind::Directory {
                    self.check_not_below(&table, from.0, there.id)?;
                }
                table.name(to.0, new_name, found)?;
                table.name(from.0, name, there)?;
                self.moved(&node, found.kind, (&above, &new_above));
                self.moved(&other, there.kind, (&new_above, &above));
            }
            return Ok(());
        }
        let mut lost_directories = 0;
        if let Some((there, other)) = &replaced {
            match (found.kind == FileKind::Directory, there.kind == FileKind::Directory) {
                (true, false) => return Err(Errno::NOTDIR.into()),
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, true) if !table.names(there.id, 1)?.is_empty() => return Err(Errno::NOTEMPTY.into()),
                (is_directory, _) => lost_directories = i32::from(is_directory),
            }
            self.lose_name(&mut table, other)?;
        }
        table.unname(from.0, name)?;
        table.name(to.0, new_name, found)?;
        table.add(new_name.len());
        self.moved(&node, found.kind, (&above, &new_above));
        self.changed_names(&new_above, -lost_directories);
        Ok(())
    }

    pub(super) fn link_node(&self, id: NodeId, directory: NodeId, name: &OsStr) -> Answer<Stat> {
        self.check_room_for_names()?;
        let mut table = self.table.lock();
        let (node, above) = (self.node_of(&table, id.0)?, self.directory(&table, directory.0)?);
        check_length(name)?;
        let (kind, links) = {
            let state = node.state.lock();
            (state.record.kind, state.record.links)
        };
        if kind == FileKind::Directory {
            return Err(Errno::PERM.into());
        }
        if table.find(directory.0, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        if links == 0 {
            return Err(Errno::NOENT.into());
        }
        if links >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        table.name(directory.0, name, Found { id: id.0, kind })?;
        table.add(name.len());
        self.touch(&node, |record| record.links += 1);
        self.changed_names(&above, 0);
        self.seen(&node)
    }

    pub(super) fn list_names(&self, directory: NodeId) -> Answer<(Vec<Name>, NodeId)> {
        let table = self.table.lock();
        let node = self.node_of(&table, directory.0)?;
        let above = node.state.lock().record.parent;
        let names = table.names(directory.0, usize::MAX)?;
        let name = |(name, found): (OsString, Found)| Name {
            name,
            id: NodeId(found.id),
            mode: type_of(found.kind).as_raw_mode(),
        };
        Ok((names.into_iter().map(name).collect(), NodeId(above)))
    }

    /// Counts a lookup.
    pub(super) fn seen(&self, node: &Node) -> Answer<Stat> {
        let stat = self.stat_node(node)?;
        node.state.lock().lookups += 1;
        Ok(stat)
    }

    /// A directory that has a name, so that something can be put into it.
    fn directory(&self, table: &Table, id: u64) -> Answer<Arc<Node>> {
        let node = self.node_of(table, id)?;
        let state = node.state.lock();
        if state.record.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        if state.record.links == 0 {
            return Err(Errno::NOENT.into());
        }
        drop(state);
        Ok(node)
    }

    /// The node of a path from the root. Links are not followed.
    pub(super) fn find_path(&self, table: &Table, path: &OsStr) -> Answer<Arc<Node>> {
        let mut node = self.node_of(table, NodeId::ROOT.0)?;
        for part in path.as_bytes().split(|b| *b == b'/').filter(|part| !part.is_empty()) {
            if part == b"." || part == b".." {
                return Err(Errno::INVAL.into());
            }
            self.directory(table, node.id)?;
            let found = table.find(node.id, OsStr::from_bytes(part))?.ok_or(Errno::NOENT)?;
            node = self.node_of(table, found.id)?;
        }
        Ok(node)
    }

    /// Fails if a directory is another one, or below it.
    fn check_not_below(&self, table: &Table, mut directory: u64, other: u64) -> Answer<()> {
        loop {
            if directory == other {
                return Err(Errno::INVAL.into());
            }
            if directory == NodeId::ROOT.0 {
                return Ok(());
            }
            directory = self.node_of(table, directory)?.state.lock().record.parent;
        }
    }

    /// A node loses one of its names; a directory its only one.
    fn lose_name(&self, table: &mut Table, node: &Node) -> Result<()> {
        let links = self.touch(node, |record| {
            record.links =
                if record.kind == FileKind::Directory { 0 } else { record.links.saturating_sub(1) };
            record.links
        });
        if links > 0 {
            return Ok(());
        }
        let lookups = node.state.lock().lookups;
        if lookups > 0 {
            return table.set_orphan(node.id, true);
        }
        table.put(node.id, &node.state.lock().record)?;
        table.remove_node(node.id)?;
        self.dirty.lock().remove(&node.id);
        self.nodes.lock().remove(&node.id);
        Ok(())
    }

    /// The names in a directory have changed; it has so many directories more.
    fn changed_names(&self, directory: &Node, directories: i32) {
        self.touch(directory, |record| {
            record.modified = now();
            record.links = record.links.saturating_add_signed(directories);
        });
    }

    /// A node was moved from one directory to another.
    fn moved(&self, node: &Node, kind: FileKind, (from, to): (&Arc<Node>, &Arc<Node>)) {
        let crosses = kind == FileKind::Directory && !Arc::ptr_eq(from, to);
        self.touch(node, |record| {
            if kind == FileKind::Directory {
                record.parent = to.id;
            }
        });
        self.changed_names(from, if crosses { -1 } else { 0 });
        self.changed_names(to, if crosses { 1 } else { 0 });
    }
}

fn check_length(name: &OsStr) -> std::result::Result<(), Errno> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    Ok(())
}
