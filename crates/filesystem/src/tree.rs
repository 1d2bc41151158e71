//! Trees of files, whatever file system they are in: what each must offer, and what is done with all of them alike.

mod attributes;
mod compare;
mod content;
mod directory;
pub(crate) mod extents;
pub(crate) mod listing;
mod node;
mod path;
mod walk;

pub use attributes::{Attributes, Unread};
pub use compare::{Change, Comparison, Difference};
pub use content::Content;
pub use directory::Directory;
pub use extents::{Extent, Place};
pub use node::{Entry, Node, NodeId, NodeKind, Time};
pub use path::resolve;
pub use walk::{DirectoryNo, Order, Step, Walk};

use crate::error::Result;

/// A tree of files on a volume.
///
/// Names and symbolic links are bytes as the file system has them (those of NTFS and FAT as UTF-8, lone surrogates as WTF-8).
pub trait FileSystem: Send + Sync {
    /// `ext4`, `ext3`, `ext2`, `xfs`, `ntfs`, `fat32`, `fat16`, `fat12`, `exfat`.
    fn kind(&self) -> &'static str;

    /// Its label, empty where it has none.
    fn label(&self) -> Vec<u8>;

    /// What a reader should know: `its journal was not replayed`, say. Shown to the user.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The topmost directory.
    fn root(&self) -> NodeId;

    /// What a node is.
    fn node(&self, id: NodeId) -> Result<Node>;

    /// The entries of a directory, without its own `.` and `..`, in the order in which they are stored. Their names are
    /// not checked: [`Directory::read`] does that.
    fn entries(&self, id: NodeId) -> Result<Vec<Entry>>;

    /// The entry of a directory with this name. File systems that do not tell cases apart compare as they do.
    fn lookup(&self, id: NodeId, name: &[u8]) -> Result<Option<Entry>> {
        Ok(self.entries(id)?.into_iter().find(|e| e.name == name))
    }

    /// Where a symbolic link leads.
    fn link(&self, id: NodeId) -> Result<Vec<u8>>;

    /// Where the data of a file is, in the order of the file and without overlaps. What is in no extent is a hole;
    /// nothing lies behind the file's size.
    fn extents(&self, id: NodeId) -> Result<Vec<Extent>>;

    /// Reads a file. Returns less than `buf.len()` only at its end. Holes read as zeros.
    fn read_at(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// The extended attributes of a node.
    fn attributes(&self, id: NodeId) -> Result<Attributes>;

    /// The content of one of the attributes in [`Attributes::unread`], as it is stored: what is encrypted stays so. `None`
    /// if it has no content that can be read apart.
    fn long_attribute(&self, _id: NodeId, _name: &[u8]) -> Result<Option<Content<'_>>> {
        Ok(None)
    }
}
