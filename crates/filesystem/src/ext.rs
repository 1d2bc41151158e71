//! ext2, ext3 and ext4.
//!
//! Read are: blocks of 1 to 64 KiB, all forms of group descriptors (64-bit, flexible and meta groups, bigalloc), extent
//! trees and indirect blocks, inline files and directories, extended attributes in inodes, in blocks and in inodes of
//! their own, access control lists in the form in which the kernel shows them, checksums of all that is read, and the
//! journal: its transactions are laid over the volume in memory.
//!
//! Not read are: encrypted names and data (an error of the node), external journals and fast commits (warnings), the
//! old checksums over whole transactions. Directories that do not tell cases apart are searched as if they did.
//!
//! The format is documented in the kernel's `Documentation/filesystems/ext4/`.

mod acl;
mod attributes;
mod blocks;
mod checksum;
mod directory;
mod error;
mod extent_list;
mod extent_tree;
mod groups;
mod indirect;
mod inode;
mod journal;
mod mapping;
mod superblock;

use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::{FsError, Result};
use crate::tree::extents::{self, Extent, Place};
use crate::tree::{Attributes, Entry, FileSystem, Node, NodeId, NodeKind};
use blocks::Blocks;
use error::{corrupt, unsupported};
use inode::{Inode, InodeNo, MAP_BYTES};
use std::ops::ControlFlow;
use std::sync::Arc;
use superblock::{Journal, Superblock};

/// The inode of the topmost directory.
const ROOT: InodeNo = InodeNo(2);
/// What is kept of the extents of files.
const EXTENTS_KEPT_BYTES: usize = 8 << 20;
/// The longest target of a symbolic link, which the kernel keeps in one block.
const LINK_BYTES_MAX: u64 = 64 << 10;

/// An ext2, ext3 or ext4 file system.
pub struct Ext {
    sb: Superblock,
    blocks: Blocks,
    warnings: Vec<String>,
    extents: Cache<InodeNo, Arc<[Extent]>>,
}

/// Opens the file system of a volume; `None` if it has none of this kind.
pub fn open(volume: Arc<dyn Disk>) -> Result<Option<Ext>> {
    let mut bytes = [0; superblock::BYTES];
    if volume.size() < superblock::OFFSET + superblock::BYTES as u64 {
        return Ok(None);
    }
    volume.read_at(superblock::OFFSET, &mut bytes)?;
    let Some(oldest) = Superblock::decode(&bytes)? else { return Ok(None) };
    let mut blocks = Blocks::new(volume, oldest.block_bits, oldest.first_block, oldest.blocks);
    let mut warnings = Vec::new();
    let replay = match oldest.journal {
        Journal::Clean => Ok(journal::Replay::default()),
        Journal::External => Err(unsupported("a journal on another disk")),
        Journal::Inode(no) => replay(&blocks, &oldest, InodeNo(no)),
    };
    match replay {
        Ok(replay) => {
            blocks.lay_over(replay.blocks);
            warnings.extend(replay.warnings);
        }
        Err(FsError::Read(why)) => return Err(why.into()),
        Err(why) => warnings.push(format!("its journal was not replayed: {why}")),
    }
    // It may be among what was replayed, and have grown.
    blocks.read_at(superblock::OFFSET, &mut bytes)?;
    let Some(sb) = Superblock::decode(&bytes)? else {
        return Err(corrupt("the journal's superblock has no magic number"));
    };
    if (sb.block_bits, sb.first_block) != (oldest.block_bits, oldest.first_block) {
        return Err(corrupt("the journal's superblock has another size of blocks"));
    }
    blocks.set_end(sb.blocks);
    if blocks.end() < sb.blocks {
        warnings.push(format!("it has {} blocks, and only {} are there", sb.blocks, blocks.end()));
    }
    let extents = Cache::new(EXTENTS_KEPT_BYTES);
    Ok(Some(Ext { sb, blocks, warnings, extents }))
}

/// `ext2`, `ext3` or `ext4` for a volume that begins with these bytes and has its magic number.
pub(crate) fn kind(head: &[u8]) -> Option<&'static str> {
    let bytes = head.get(superblock::OFFSET as usize..)?.first_chunk()?;
    match Superblock::decode(bytes) {
        Ok(sb) => sb.map(|sb| sb.kind),
        Err(_) => Some("ext4"),
    }
}

fn replay(blocks: &Blocks, sb: &Superblock, no: InodeNo) -> Result<journal::Replay> {
    let inode = Inode::read(blocks, sb, no)?;
    if inode.is_inline() || inode.kind != NodeKind::File {
        return Err(corrupt(format!("inode {} is said to be the journal, and is not a file", no.0)));
    }
    journal::replay(blocks, &mapping::extents(blocks, &inode)?)
}

impl Ext {
    fn inode(&self, id: NodeId) -> Result<Inode> {
        let no = u32::try_from(id.0).unwrap_or(0);
        Inode::read(&self.blocks, &self.sb, InodeNo(no))
    }

    fn inode_of_kind(&self, id: NodeId, kind: NodeKind, name: &str) -> Result<Inode> {
        let inode = self.inode(id)?;
        if inode.kind != kind {
            return Err(FsError::Wrong {
                what: "ext4".into(),
                why: format!("inode {} is not a {name}", id.0),
            });
        }
        inode.check_readable()?;
        Ok(inode)
    }

    /// Where the data is that is not inline, before the journal was laid over it.
    fn unsettled(&self, inode: &Inode) -> Result<Arc<[Extent]>> {
        if let Some(extents) = self.extents.get(inode.no) {
            return Ok(extents);
        }
        let extents: Arc<[Extent]> = mapping::extents(&self.blocks, inode)?.into();
        self.extents.put(inode.no, extents.clone(), (extents.len() + 1) * size_of::<Extent>());
        Ok(extents)
    }

    /// Data that is in the inode. A file may be longer: it was extended and has a hole behind them.
    fn inline(&self, inode: &Inode) -> Result<Vec<u8>> {
        let mut data = inode.map().to_vec();
        data.extend(attributes::inline_data(inode)?);
        data.truncate(usize::try_from(inode.size).unwrap_or(usize::MAX));
        Ok(data)
    }
}

impl FileSystem for Ext {
    fn kind(&self) -> &'static str {
        self.sb.kind
    }

    fn label(&self) -> Vec<u8> {
        self.sb.label.iter().copied().take_while(|b| *b != 0).collect()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn root(&self) -> NodeId {
        NodeId(ROOT.0.into())
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        let inode = self.inode(id)?;
        inode.node().ok_or_else(|| corrupt(format!("inode {} is cut off", id.0)))
    }

    fn entries(&self, id: NodeId) -> Result<Vec<Entry>> {
        let dir = self.inode_of_kind(id, NodeKind::Directory, "directory")?;
        let mut entries = Vec::new();
        directory::visit(&self.blocks, &self.sb, &dir, &mut |name, no| {
            entries.push(Entry { name: name.to_vec(), id: NodeId(no.0.into()) });
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    fn lookup(&self, id: NodeId, name: &[u8]) -> Result<Option<Entry>> {
        let dir = self.inode_of_kind(id, NodeKind::Directory, "directory")?;
        let mut found = None;
        directory::visit(&self.blocks, &self.sb, &dir, &mut |other, no| {
            if other != name {
                return ControlFlow::Continue(());
            }
            found = Some(Entry { name: name.to_vec(), id: NodeId(no.0.into()) });
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    fn link(&self, id: NodeId) -> Result<Vec<u8>> {
        let inode = self.inode_of_kind(id, NodeKind::Link, "symbolic link")?;
        if inode.is_inline() {
            let target = self.inline(&inode)?;
            let (size, there) = (inode.size, target.len());
            if size != there as u64 {
                let why = format!("the link of inode {} has {size} bytes, and {there} are in it", id.0);
                return Err(corrupt(why));
            }
            return Ok(target);
        }
        if inode.size < MAP_BYTES as u64 && !inode.has_extents() {
            return Ok(inode.map()[..inode.size as usize].to_vec());
        }
        if inode.size > LINK_BYTES_MAX {
            return Err(corrupt(format!("the symbolic link of inode {} has {} bytes", id.0, inode.size)));
        }
        let mut target = vec![0; inode.size as usize];
        extents::read(&self.blocks, &self.unsettled(&inode)?, inode.size, 0, &mut target)?;
        Ok(target)
    }

    fn extents(&self, id: NodeId) -> Result<Vec<Extent>> {
        let inode = self.inode_of_kind(id, NodeKind::File, "file")?;
        if !inode.is_inline() {
            return Ok(self.blocks.settle(&self.unsettled(&inode)?));
        }
        let data = Extent { offset: 0, len: self.inline(&inode)?.len() as u64, place: Place::Encoded };
        Ok(if data.len == 0 { Vec::new() } else { vec![data] })
    }

    fn read_at(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let inode = self.inode_of_kind(id, NodeKind::File, "file")?;
        if !inode.is_inline() {
            return extents::read(&self.blocks, &self.unsettled(&inode)?, inode.size, offset, buf);
        }
        let data = self.inline(&inode)?;
        let rest = usize::try_from(offset).ok().and_then(|at| data.get(at..)).unwrap_or_default();
        let len = inode.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let copied = rest.len().min(len);
        buf[..copied].copy_from_slice(&rest[..copied]);
        buf[copied..len].fill(0);
        Ok(len)
    }

    fn attributes(&self, id: NodeId) -> Result<Attributes> {
        attributes::list(&self.blocks, &self.sb, &self.inode(id)?).map(Attributes::complete)
    }
}
