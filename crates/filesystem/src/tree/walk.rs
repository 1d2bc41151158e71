//! Going through a tree of files, however deep it is and whatever its directories call each other.

use super::directory::Directory;
use super::node::{Entry, Node, NodeId, NodeKind};
use super::FileSystem;
use crate::error::{FsError, Result};
use std::collections::HashSet;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A node. If it is a directory, what is in it follows.
    Node(NodeId, Node),
    /// All that is in a directory was told.
    Left(NodeId, Node),
}

/// In which order the entries of a directory are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By their names.
    Name,
    /// By the numbers of their nodes: about that of their data on the disk, which is read with fewer jumps.
    Number,
}

/// A directory, to ask for its names later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryNo(usize);

/// Goes through a node and all that is below it.
///
/// Memory is needed for the entries of the directories on the way only, and for the number of each directory: no directory
/// is told twice, so a tree that leads back to itself ends.
pub struct Walk<'a> {
    fs: &'a dyn FileSystem,
    order: Order,
    first: Option<NodeId>,
    path: Vec<u8>,
    way: Vec<Level>,
    /// The directory that was told last and is to be entered.
    entered: Option<(NodeId, Node)>,
    seen: HashSet<NodeId>,
    /// Directories that somebody asked for: what they are in, and their names.
    directories: Vec<(Option<DirectoryNo>, Vec<u8>)>,
}

/// A directory on the way.
struct Level {
    id: NodeId,
    node: Node,
    /// What is wrong with other entries.
    damage: std::vec::IntoIter<FsError>,
    entries: std::vec::IntoIter<Entry>,
    /// How much of the path leads to it.
    path_len: usize,
    no: Option<DirectoryNo>,
}

impl<'a> Walk<'a> {
    /// Begins at a node whose path is `path`.
    pub fn new(fs: &'a dyn FileSystem, path: &[u8], id: NodeId, order: Order) -> Self {
        Walk {
            fs,
            order,
            first: Some(id),
            path: path.to_vec(),
            way: Vec::new(),
            entered: None,
            seen: HashSet::new(),
            directories: Vec::new(),
        }
    }

    /// The path of what was told last, and of what an error is about.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The directory that was told last is not gone into.
    pub fn pass_over(&mut self) {
        self.entered = None;
    }

    /// The directory that the node told last is in; `None` for the first node.
    pub fn directory(&mut self) -> Option<DirectoryNo> {
        let known = self.way.iter().rposition(|level| level.no.is_some());
        let mut above = known.and_then(|n| self.way[n].no);
        for n in known.map_or(0, |n| n + 1)..self.way.len() {
            let from = if n == 0 { 0 } else { self.way[n - 1].path_len + 1 };
            self.directories.push((above, self.path[from..self.way[n].path_len].to_vec()));
            above = Some(DirectoryNo(self.directories.len() - 1));
            self.way[n].no = above;
        }
        above
    }

    /// The names that lead to a directory; the first of them is the path that this began with.
    pub fn names(&self, directory: Option<DirectoryNo>) -> Vec<&[u8]> {
        let mut names = Vec::new();
        let mut next = directory;
        while let Some(DirectoryNo(n)) = next {
            names.push(&self.directories[n].1[..]);
            next = self.directories[n].0;
        }
        names.reverse();
        names
    }

    /// What comes next. Behind an error it goes on with what can be read.
    #[allow(
        clippy::should_implement_trait,
        reason = "its items do not outlive the path that belongs to them"
    )]
    pub fn next(&mut self) -> Option<Result<Step>> {
        if let Some(id) = self.first.take() {
            return Some(self.node(id));
        }
        if let Some((id, node)) = self.entered.take() {
            let Directory { mut entries, damage } = Directory::read(self.fs, id)
                .unwrap_or_else(|error| Directory { entries: Vec::new(), damage: vec![error] });
            match self.order {
                Order::Name => entries.sort_by(|a, b| a.name.cmp(&b.name)),
                Order::Number => entries.sort_by_key(|e| e.id),
            }
            let path_len = self.path.len();
            let (damage, entries) = (damage.into_iter(), entries.into_iter());
            self.way.push(Level { id, node, damage, entries, path_len, no: None });
        }
        let level = self.way.last_mut()?;
        self.path.truncate(level.path_len);
        if let Some(error) = level.damage.next() {
            return Some(Err(error));
        }
        let Some(entry) = level.entries.next() else {
            let Level { id, node, .. } = *level;
            self.way.pop();
            return Some(Ok(Step::Left(id, node)));
        };
        self.path.push(b'/');
        self.path.extend_from_slice(&entry.name);
        Some(self.node(entry.id))
    }

    fn node(&mut self, id: NodeId) -> Result<Step> {
        let node = self.fs.node(id)?;
        if node.kind == NodeKind::Directory {
            if !self.seen.insert(id) {
                let why = format!("directory {} is in itself, or in two others", id.0);
                return Err(FsError::corrupt(self.fs.kind(), why));
            }
            self.entered = Some((id, node));
        }
        Ok(Step::Node(id, node))
    }
}
