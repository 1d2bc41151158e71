//! What differs between two file systems, directory by directory.

use super::content::Content;
use super::directory::Directory;
use super::node::{Entry, Node, NodeId, NodeKind};
use super::FileSystem;
use crate::error::Result;
use std::cmp::Ordering;
use std::collections::HashSet;

/// What became of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its content is another: bytes of a file, the target of a link, or what kind of node it is.
    Content,
    /// Its attributes are others: mode, owner, times, extended attributes. The content is the same.
    Attributes,
}

/// Two file systems to be compared.
pub struct Comparison<'a> {
    /// The older one.
    pub old: &'a dyn FileSystem,
    /// The newer one.
    pub new: &'a dyn FileSystem,
    /// Whether a file that has the same extents in both can have other data in them: something of them was written.
    pub may_differ: &'a dyn Fn(NodeId) -> Result<bool>,
}

/// A change, and the node it is of: the new one where there is one. Or why it cannot be told.
pub type Difference<'a> = Result<(Change, &'a Node)>;

impl Comparison<'_> {
    /// Calls `each` for every path that differs, parents before what is in them, in the order of their bytes. What is in
    /// a directory that is new or gone is told too. Behind damage it goes on with what can be read, until `each` fails.
    pub fn run<E>(
        &self,
        mut each: impl FnMut(&[u8], Difference) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        // Directories of both, and paths of what only one has; a damaged tree may lead to a directory twice.
        let mut seen = HashSet::new();
        let mut ahead = vec![(Vec::new(), Some(self.old.root()), Some(self.new.root()))];
        while let Some((path, old, new)) = ahead.pop() {
            if !seen.insert((old, new)) {
                continue;
            }
            let first = ahead.len();
            let (olds, news) = match (sorted(self.old, old), sorted(self.new, new)) {
                (Ok(olds), Ok(news)) => {
                    for damage in olds.damage.into_iter().chain(news.damage) {
                        each(&path, Err(damage))?;
                    }
                    (olds.entries, news.entries)
                }
                (Err(e), _) | (_, Err(e)) => {
                    each(&path, Err(e))?;
                    continue;
                }
            };
            let (mut olds, mut news) = (olds.into_iter().peekable(), news.into_iter().peekable());
            loop {
                let order = match (olds.peek(), news.peek()) {
                    (None, None) => break,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some(o), Some(n)) => o.name.cmp(&n.name),
                };
                let o = if order == Ordering::Greater { None } else { olds.next() };
                let n = if order == Ordering::Less { None } else { news.next() };
                let Some(name) = o.as_ref().or(n.as_ref()).map(|e| e.name.clone()) else { break };
                let below = [&path[..], b"/", &name].concat();
                let both = match self.both(o, n) {
                    Ok(both) => both,
                    Err(e) => {
                        each(&below, Err(e))?;
                        continue;
                    }
                };
                if let Some(difference) = both.difference(self).transpose() {
                    each(&below, difference)?;
                }
                let directories = both.directories();
                if directories != (None, None) {
                    ahead.push((below, directories.0, directories.1));
                }
            }
            ahead[first..].reverse();
        }
        Ok(())
    }

    /// What a name leads to in both.
    fn both(&self, old: Option<Entry>, new: Option<Entry>) -> Result<Both> {
        let node = |fs: &dyn FileSystem, e: Option<Entry>| {
            e.map(|e| fs.node(e.id).map(|node| (e.id, node))).transpose()
        };
        Ok(Both { old: node(self.old, old)?, new: node(self.new, new)? })
    }

    fn attributes_differ(&self, o: NodeId, n: NodeId, was: &Node, is: &Node) -> Result<bool> {
        let told = |n: &Node| (n.mode, n.uid, n.gid, n.modified);
        let links = was.kind != NodeKind::Directory && was.links != is.links;
        if told(was) != told(is) || links {
            return Ok(true);
        }
        let (olds, news) = (self.old.attributes(o)?, self.new.attributes(n)?);
        if olds != news {
            return Ok(true);
        }
        // Two that are too long to be read, and equally long, may still have other content.
        for name in news.unread.iter().map(|unread| &unread.name) {
            let both = (self.old.long_attribute(o, name)?, self.new.long_attribute(n, name)?);
            if let (Some(old), Some(new)) = both {
                if old.differs(&new)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn content_differs(&self, o: NodeId, n: NodeId, was: &Node, is: &Node) -> Result<bool> {
        match is.kind {
            NodeKind::Link => Ok(self.old.link(o)? != self.new.link(n)?),
            NodeKind::File if was.size != is.size => Ok(true),
            NodeKind::File => {
                let same_place = self.old.extents(o)? == self.new.extents(n)?;
                if same_place && !(self.may_differ)(n)? {
                    return Ok(false);
                }
                data(self.old, o, is.size)?.differs(&data(self.new, n, is.size)?)
            }
            _ => Ok(false),
        }
    }
}

/// What a name leads to: in the old file system, and in the new one.
struct Both {
    old: Option<(NodeId, Node)>,
    new: Option<(NodeId, Node)>,
}

impl Both {
    fn difference(&self, of: &Comparison) -> Result<Option<(Change, &Node)>> {
        Ok(match (&self.old, &self.new) {
            (Some((o, was)), Some((n, is))) => {
                if was.kind != is.kind || of.content_differs(*o, *n, was, is)? {
                    Some((Change::Content, is))
                } else if of.attributes_differ(*o, *n, was, is)? {
                    Some((Change::Attributes, is))
                } else {
                    None
                }
            }
            (Some((_, was)), None) => Some((Change::Removed, was)),
            (None, Some((_, is))) => Some((Change::Added, is)),
            (None, None) => None,
        })
    }

    /// The directories that are to be looked into.
    fn directories(&self) -> (Option<NodeId>, Option<NodeId>) {
        let directory = |of: &Option<(NodeId, Node)>| {
            of.as_ref().filter(|(_, node)| node.kind == NodeKind::Directory).map(|(id, _)| *id)
        };
        (directory(&self.old), directory(&self.new))
    }
}

/// The bytes of a file of this size.
fn data(fs: &dyn FileSystem, id: NodeId, size: u64) -> Result<Content<'_>> {
    Ok(Content::new(size, fs.extents(id)?, move |offset, buf| fs.read_at(id, offset, buf)))
}

fn sorted(fs: &dyn FileSystem, directory: Option<NodeId>) -> Result<Directory> {
    let mut directory = directory.map_or(Ok(Directory::default()), |id| Directory::read(fs, id))?;
    directory.entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(directory)
}
