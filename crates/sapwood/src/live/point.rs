//! A point in time of disks of a running machine: the interface to QEMU and libvirt.

use anyhow::Result;
use image::Format;
use std::path::PathBuf;
use vault::SnapId;

/// A disk of which a point in time is wanted.
#[derive(Clone, Debug)]
pub struct DiskRequest {
    /// As [`super::LiveSourceName::disks`] names it.
    pub node: String,
    /// The newest snapshot of the disk.
    pub newest: Option<SnapId>,
    /// Its tags.
    pub tags: Vec<(String, String)>,
    /// The snapshot that will be.
    pub snapshot: SnapId,
}

/// What a machine says of the format of a disk's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFormat {
    /// `None` where it says nothing, or one that Sapwood does not know.
    pub format: Option<Format>,
    /// Whether that is what the machine's definition says.
    pub is_defined: bool,
}

/// A point in time of disks of a running machine, exported over NBD. Dropped, it is taken down, and nothing that was
/// recorded since the newest snapshots is lost.
pub trait Point: Send {
    /// The export of a disk, as a source.
    fn uri(&self, disk: usize) -> String;

    /// The bitmap of the export that tells the changes since the newest snapshot, or why there is none.
    fn changes(&self, disk: usize) -> std::result::Result<&str, &str>;

    /// Whether the point in time of a disk was kept until now.
    fn check(&mut self, disk: usize) -> Result<()>;

    /// Gives the point in time up before writes of the guest fail because the scratch space is full. Returns whether it
    /// still holds.
    fn check_scratch(&mut self) -> bool;

    /// Ends it for a disk whose snapshot is committed: the next backup goes by what is recorded since.
    fn commit(&mut self, disk: usize) -> Result<()>;

    /// Whether the guest's file systems were frozen.
    fn frozen(&self) -> bool;

    /// Why they were not, although there is an agent.
    fn not_frozen(&self) -> Option<&str>;

    /// The format of a disk's image, as the machine says it.
    fn format(&self, disk: usize) -> DiskFormat;

    /// Tags that the snapshot of a disk must have.
    fn tags(&self, disk: usize) -> Vec<(String, String)>;
}

/// Options of a live backup.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Where the guest's old data is kept while the backup runs.
    pub scratch: PathBuf,
    /// The guest agent's socket.
    pub agent: Option<PathBuf>,
}
