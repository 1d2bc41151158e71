//! XFS, versions 4 and 5: all metadata that leads to files, verified by its checksums where it has them.
//!
//! What only the log holds is read too: it is replayed in memory when a volume is opened. Not replayed are logs on
//! another device and those of big-endian machines; a warning says so, and also where changes of extents or attributes
//! were promised in the log and not finished, which only writing could do.
//!
//! The format: *XFS Algorithms & Data Structures* (kernel.org, xfs-documentation). Numbers are big-endian, but for the
//! log and the checksums. Volumes of other kinds are refused by name: version 1 of directories (before 2004), zoned
//! realtime devices. So are files on the realtime device. The trees that only writing needs (free space, inodes,
//! reverse mappings, reference counts, quotas) are not read, nor are the hashes of directories.

mod attribute;
mod directory;
mod error;
mod inode;
mod log;
mod runs;
mod superblock;
mod symlink;
mod volume;

use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::{FsError, Result};
use crate::tree::extents::{self, Extent};
use crate::tree::{Attributes, Entry, FileSystem, Node, NodeId, NodeKind};
use error::{corrupt, wrong};
use inode::Inode;
use log::Log;
use std::sync::Arc;
use superblock::Superblock;
use volume::{Volume, SECTOR};

/// What is kept of the extents of files.
const FILES_KEPT_BYTES: usize = 8 << 20;

/// A volume with XFS.
pub struct Xfs {
    volume: Volume,
    warnings: Vec<String>,
    was_replayed: bool,
    files: Cache<NodeId, Arc<FileMap>>,
}

/// Where a file's data is.
struct FileMap {
    size: u64,
    extents: Vec<Extent>,
}

impl Xfs {
    /// Opens a volume; `None` where its magic is not there.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Option<Xfs>> {
        Xfs::open_with(disk, true)
    }

    /// Opens a volume and takes metadata whose checksum is wrong, to see what else stands the damage.
    #[doc(hidden)]
    pub fn open_without_checksums(disk: Arc<dyn Disk>) -> Result<Option<Xfs>> {
        Xfs::open_with(disk, false)
    }

    fn open_with(disk: Arc<dyn Disk>, check_crc: bool) -> Result<Option<Xfs>> {
        let mut sector = vec![0; SECTOR];
        if disk.size() < SECTOR as u64 {
            return Ok(None);
        }
        disk.read_at(0, &mut sector)?;
        if !sector.starts_with(&superblock::MAGIC) {
            return Ok(None);
        }
        sector.resize(Superblock::sector_bytes(&sector)? as usize, 0);
        if disk.size() < sector.len() as u64 {
            return Err(corrupt(format!("a volume of {} bytes", disk.size())));
        }
        disk.read_at(0, &mut sector)?;
        let mut volume = Volume::new(disk, Superblock::parse(&sector, check_crc)?, check_crc);
        let mut warnings = warnings(&volume);
        let (was_replayed, warning) = replay(&mut volume, sector.len())?;
        warnings.extend(warning);
        Ok(Some(Xfs { volume, warnings, was_replayed, files: Cache::new(FILES_KEPT_BYTES) }))
    }

    /// Whether the volume was in use, and what follows from its log is read too.
    pub fn was_replayed(&self) -> bool {
        self.was_replayed
    }

    fn inode(&self, id: NodeId) -> Result<Inode> {
        Inode::read(&self.volume, id.0)
    }

    /// The extents of a file, as they were read last or anew.
    fn file(&self, id: NodeId) -> Result<Arc<FileMap>> {
        if let Some(file) = self.files.get(id) {
            return Ok(file);
        }
        let inode = self.inode(id)?;
        if inode.node.kind != NodeKind::File {
            return Err(wrong(id, "not a file"));
        }
        if inode.is_realtime && inode.data.extents > 0 {
            return Err(FsError::unsupported(
                format!("xfs: inode {}", id.0),
                "a file on the realtime device",
            ));
        }
        let runs = runs::read(&self.volume, &inode, &inode.data)?;
        let extents = runs::extents(&runs, self.volume.superblock.block_log, inode.size);
        let file = Arc::new(FileMap { size: inode.size, extents });
        self.files.put(id, file.clone(), (file.extents.len() + 2) * size_of::<Extent>());
        Ok(file)
    }
}

impl FileSystem for Xfs {
    fn kind(&self) -> &'static str {
        "xfs"
    }

    fn label(&self) -> Vec<u8> {
        self.volume.superblock.label.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn root(&self) -> NodeId {
        NodeId(self.volume.superblock.root)
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        Ok(self.inode(id)?.node)
    }

    fn entries(&self, id: NodeId) -> Result<Vec<Entry>> {
        let inode = self.inode(id)?;
        match inode.node.kind {
            NodeKind::Directory => directory::entries(&self.volume, &inode),
            _ => Err(wrong(id, "not a directory")),
        }
    }

    fn link(&self, id: NodeId) -> Result<Vec<u8>> {
        let inode = self.inode(id)?;
        match inode.node.kind {
            NodeKind::Link => symlink::read(&self.volume, &inode),
            _ => Err(wrong(id, "not a symbolic link")),
        }
    }

    fn extents(&self, id: NodeId) -> Result<Vec<Extent>> {
        Ok(self.file(id)?.extents.clone())
    }

    fn read_at(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.file(id)?;
        extents::read(self.volume.disk(), &file.extents, file.size, offset, buf)
    }

    fn attributes(&self, id: NodeId) -> Result<Attributes> {
        attribute::read(&self.volume, &self.inode(id)?).map(Attributes::complete)
    }
}

fn warnings(volume: &Volume) -> Vec<String> {
    let mut warnings = Vec::new();
    let (bytes, disk) = (volume.superblock.bytes(), volume.disk().size());
    if bytes > disk {
        warnings.push(format!("the file system has {bytes} bytes, and its volume only {disk}"));
    }
    if volume.superblock.needs_repair {
        warnings.push("the file system is marked as in need of repair (xfs_repair)".into());
    }
    warnings
}

/// Replays the log: whether it had something, and what a user should know of it.
fn replay(volume: &mut Volume, superblock_bytes: usize) -> Result<(bool, Option<String>)> {
    let Some(start) = volume.superblock.log_start else {
        let why = "its log is on another device: the newest changes may be missing";
        return Ok((false, Some(why.into())));
    };
    match log::replay(volume, start)? {
        Log::Clean => Ok((false, None)),
        Log::Lost(why) => {
            let what = "its log could not be replayed, and the newest changes may be missing";
            Ok((false, Some(format!("{what}: {why}"))))
        }
        Log::Replayed { unfinished } => {
            // It may have grown.
            let block = volume.read(0, superblock_bytes)?;
            volume.superblock = Superblock::parse(&block.bytes, volume.check_crc && !block.replayed)?;
            let why = "changes to files were not finished: their newest data or attributes may be missing";
            Ok((true, (unfinished > 0).then(|| format!("{unfinished} {why}"))))
        }
    }
}
