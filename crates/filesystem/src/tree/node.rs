//! What a tree of files is made of.

/// The number by which a file system knows a node (inode number, record number, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A character device.
    CharDevice {
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// A point in time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970 (UTC), rounded down.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// A file, a directory, or whatever else has attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Permissions and the bits above them (set-uid, set-gid, sticky): `0o7777` at most.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of a file or of a link's target; 0 for all else.
    pub size: u64,
    /// Names that lead to it.
    pub links: u32,
    /// When its data was last changed.
    pub modified: Time,
    /// When its attributes were last changed.
    pub changed: Time,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name as it is stored. From [`Directory`](crate::Directory): any bytes but `/` and 0, never empty, never `.` or
    /// `..`.
    pub name: Vec<u8>,
    /// What it leads to.
    pub id: NodeId,
}
