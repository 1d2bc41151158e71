//! NTFS 3.x, as Windows and ntfs-3g write it. Documented in the Linux-NTFS project's "NTFS Documentation", and for
//! compression and reparse points in [MS-XCA] and [MS-FSCC].
//!
//! Read are directories, files (resident, sparse, compressed by LZNT1), hard links, symbolic links, junctions, and the
//! links and devices of WSL, Interix and ntfs-3g. Names that stand only for DOS, and the files of the file system itself
//! (`$MFT`, …), are left out.
//!
//! - Modes are `0o755` for directories, `0o777` for links, else `0o644`; owner and group are 0. Access control lists
//!   and object ids are not read.
//! - Alternate data streams of up to 64 KiB are extended attributes `user.stream.NAME`, 16 MiB of them for a file. Extended
//!   attributes (`$EA`) are `user.ea.NAME`. What is larger, encrypted or damaged is listed as unread.
//! - Links give their target as it is printed; `\` becomes `/` in relative ones only.
//! - Not supported are files that are encrypted (EFS), compressed by the system (WOF), deduplicated, or elsewhere
//!   (OneDrive): they are listed, and reading them fails.
//! - The journal is not replayed; [`FileSystem::warnings`] says where it should be.

mod attributes;
mod boot;
mod error;
mod index;
mod log;
mod lznt1;
mod mft;
mod record;
mod reparse;
mod runs;
mod stream;
mod volume;

use crate::bytes::{le16, le32, le64};
use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::Result;
use crate::tree::extents::Extent;
use crate::tree::listing::Listings;
use crate::tree::{Attributes, Content, Entry, FileSystem, Node, NodeId, NodeKind, Time};
use crate::wtf8;
use boot::{Geometry, BOOT_BYTES};
use error::{damaged, wrong, NAME};
use mft::{File, Mft};
use record::{kind, Body, Reference, LOG, ROOT, VOLUME};
use reparse::Meaning;
use std::sync::Arc;
use stream::Stream;
use volume::Volume;

const IS_DIRTY: u16 = 1;

/// Maps of files that were read last.
const STREAMS_KEPT_BYTES: usize = 16 << 20;

/// 1601 to 1970 in seconds, from where Windows and Unix count.
const EPOCH_SECONDS: i64 = 11_644_473_600;
const TICKS_PER_SECOND: u64 = 10_000_000;

/// A volume of NTFS.
pub struct Ntfs {
    mft: Mft,
    root: NodeId,
    label: Vec<u8>,
    warnings: Vec<String>,
    streams: Cache<NodeId, Arc<Stream>>,
    listings: Listings,
}

/// What the standard information of a file says.
struct Standard {
    modified: Time,
    changed: Time,
    attributes: u32,
}

impl Ntfs {
    /// Opens a volume; `None` if it is no NTFS.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Option<Ntfs>> {
        let mut boot = [0; BOOT_BYTES];
        if disk.size() < BOOT_BYTES as u64 {
            return Ok(None);
        }
        disk.read_at(0, &mut boot)?;
        if !boot::is_ntfs(&boot) {
            return Ok(None);
        }
        let geometry = Geometry::parse(&boot)?;
        let mft = Mft::open(Volume { disk, geometry })?;
        let root = mft.file(Reference::new(ROOT, 0))?;
        if !root.is_directory {
            return Err(damaged(ROOT, "the root is not a directory"));
        }
        let mut ntfs = Ntfs {
            mft,
            root: NodeId(root.reference.0),
            label: Vec::new(),
            warnings: Vec::new(),
            streams: Cache::new(STREAMS_KEPT_BYTES),
            listings: Listings::new(),
        };
        ntfs.inspect();
        Ok(Some(ntfs))
    }

    /// Finds the label, and what a reader should know. What is damaged here does not keep files from being read.
    fn inspect(&mut self) {
        let (claimed, size) = (self.mft.volume.geometry.size, self.mft.volume.disk.size());
        if claimed > size {
            self.warnings.push(format!("it should have {claimed} bytes, and {size} are there"));
        }
        if self.mft.from_mirror {
            self.warnings
                .push("the first record of its master file table is damaged; the copy was used".into());
        }
        match self.mft.file(Reference::new(VOLUME, 0)) {
            Ok(volume) => {
                self.label = volume.resident(kind::VOLUME_NAME).map(wtf8::from_le_bytes).unwrap_or_default();
                let flags = volume.resident(kind::VOLUME_INFORMATION).and_then(|info| le16(info, 10));
                if flags.is_some_and(|flags| flags & IS_DIRTY != 0) {
                    self.warnings.push("it is marked dirty: Windows would check it first".into());
                }
            }
            Err(why) => self.warnings.push(format!("its label and state cannot be read: {why}")),
        }
        let log = self.mft.file(Reference::new(LOG, 0));
        match log.and_then(|log| log::is_pending(&self.mft, &log)) {
            Ok(false) => {}
            Ok(true) => self.warnings.push("it was in use, and its journal was not replayed".into()),
            Err(why) => self.warnings.push(format!("its journal cannot be read: {why}")),
        }
        if self.is_hibernated().unwrap_or(false) {
            self.warnings.push("Windows hibernates on it: what was not yet written is missing".into());
        }
    }

    /// Whether the file that memory is written to holds some.
    fn is_hibernated(&self) -> Result<bool> {
        let Some(entry) = self.lookup(self.root, b"hiberfil.sys")? else { return Ok(false) };
        let mut magic = [0; 4];
        self.read_at(entry.id, 0, &mut magic)?;
        Ok(magic.eq_ignore_ascii_case(b"hibr"))
    }

    fn file(&self, id: NodeId) -> Result<File> {
        self.mft.file(Reference(id.0))
    }

    /// The data of a file; `None` if it has none.
    fn data(&self, id: NodeId) -> Result<Option<Arc<Stream>>> {
        if let Some(held) = self.streams.get(id) {
            return Ok(Some(held));
        }
        let file = self.file(id)?;
        let meaning = reparse::meaning(&self.mft, &file, standard(&file)?.attributes)?;
        reparse::check_open(&meaning, file.number)?;
        if file.is_directory || meaning != Meaning::Plain {
            return Err(wrong(file.number, "it is not a file"));
        }
        let data = file.stream(&self.mft.volume, kind::DATA, &[])?.map(Arc::new);
        if let Some(data) = &data {
            self.streams.put(id, data.clone(), data.weight());
        }
        Ok(data)
    }
}

impl FileSystem for Ntfs {
    fn kind(&self) -> &'static str {
        NAME
    }

    fn label(&self) -> Vec<u8> {
        self.label.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn root(&self) -> NodeId {
        self.root
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        let file = self.file(id)?;
        let standard = standard(&file)?;
        let (kind, mode, size) = match reparse::meaning(&self.mft, &file, standard.attributes)? {
            Meaning::Link(target) => (NodeKind::Link, 0o777, target.len() as u64),
            Meaning::Special(kind) => (kind, 0o644, 0),
            _ if file.is_directory => (NodeKind::Directory, 0o755, 0),
            Meaning::Plain | Meaning::Closed(_) => (NodeKind::File, 0o644, size(&file)),
        };
        let links = file
            .all(kind::FILE_NAME)
            .filter(|a| matches!(&a.body, Body::Resident(name) if index::is_own_name(name)));
        let links = links.count() as u32;
        let Standard { modified, changed, .. } = standard;
        Ok(Node { kind, mode, uid: 0, gid: 0, size, links, modified, changed })
    }

    fn entries(&self, id: NodeId) -> Result<Vec<Entry>> {
        let file = self.file(id)?;
        if !file.is_directory {
            return Err(wrong(file.number, "it is not a directory"));
        }
        index::entries(&self.mft, &file)
    }

    fn lookup(&self, id: NodeId, name: &[u8]) -> Result<Option<Entry>> {
        self.listings.lookup(id, name, || self.entries(id))
    }

    fn link(&self, id: NodeId) -> Result<Vec<u8>> {
        let file = self.file(id)?;
        match reparse::meaning(&self.mft, &file, standard(&file)?.attributes)? {
            Meaning::Link(target) => Ok(target),
            _ => Err(wrong(file.number, "it is not a link")),
        }
    }

    fn extents(&self, id: NodeId) -> Result<Vec<Extent>> {
        Ok(self.data(id)?.map(|data| data.extents.clone()).unwrap_or_default())
    }

    fn read_at(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.data(id)?.map_or(Ok(0), |data| data.read_at(&self.mft.volume, offset, buf))
    }

    fn attributes(&self, id: NodeId) -> Result<Attributes> {
        attributes::read(&self.mft, &self.file(id)?)
    }

    fn long_attribute(&self, id: NodeId, name: &[u8]) -> Result<Option<Content<'_>>> {
        attributes::long(&self.mft, &self.file(id)?, name)
    }
}

fn standard(file: &File) -> Result<Standard> {
    let info = file.resident(kind::STANDARD_INFORMATION).unwrap_or_default();
    let found = || {
        let (modified, changed) = (time(le64(info, 8)?), time(le64(info, 0x10)?));
        Some(Standard { modified, changed, attributes: le32(info, 0x20)? })
    };
    found().ok_or_else(|| damaged(file.number, format!("standard information of {} bytes", info.len())))
}

/// The bytes of a file, also of one whose data cannot be given.
fn size(file: &File) -> u64 {
    let parts = file.all(kind::DATA).filter(|a| a.name.is_empty());
    let sizes = parts.filter_map(|a| match &a.body {
        Body::Resident(bytes) => Some(bytes.len() as u64),
        Body::Mapped(part) if part.first.0 == 0 => Some(part.size),
        Body::Mapped(_) => None,
    });
    sizes.fold(0, u64::max)
}

fn time(ticks: u64) -> Time {
    // As many as 2^64 ticks are fewer than 2^41 seconds.
    let seconds = (ticks / TICKS_PER_SECOND) as i64 - EPOCH_SECONDS;
    Time { seconds, nanos: (ticks % TICKS_PER_SECOND) as u32 * 100 }
}
