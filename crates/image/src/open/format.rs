//! The formats of disks, and what a file's content says of its format.
//!
//! A guest can write any of these signatures into its raw disk, and so can the author of an image: content says what a
//! file looks like, never what it is. What follows from that is decided in [`crate::open`].

use crate::error::{ImageError, Result};
use crate::file::bytes::{read_full, ReadAt};
use crate::{qcow2, vmdk};

/// How a disk stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The bytes as they are.
    Raw,
    /// QEMU's copy-on-write format, versions 2 and 3.
    Qcow2,
    /// VMware's sparse files, and descriptors that name sparse or flat files.
    Vmdk,
}

impl Format {
    /// `raw`, `qcow2`, `vmdk`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "vmdk",
        }
    }

    /// The format of this name.
    pub fn by_name(name: &str) -> Option<Format> {
        [Format::Raw, Format::Qcow2, Format::Vmdk].into_iter().find(|f| f.name() == name)
    }
}

/// What the bytes of a file look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// A disk in a format that is read; what shows none is raw.
    Disk(Format),
    /// A container of disks that cannot be read.
    Container(&'static str),
}

/// How much of a file's beginning [`Content::of_head`] needs.
pub(crate) const HEAD_BYTES: usize = 512;
const _: () = assert!(HEAD_BYTES >= vmdk::PROBE_BYTES);

/// Containers may be told by a footer, which is their last sector.
const FOOTER_BYTES: usize = 512;

const VHD: &str = "a VHD image (Virtual PC, Hyper-V)";
const PARALLELS: &str = "a Parallels image";

/// Containers by what they begin with: bytes at an offset.
const HEADS: [(usize, &[u8], &str); 8] = [
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image (VirtualBox)"),
    (0, b"conectix", VHD),
    (0, b"vhdxfile", "a VHDX image (Hyper-V)"),
    (0, b"WithoutFreeSpace", PARALLELS),
    (0, b"WithouFreSpacExt", PARALLELS),
    (0, b"QED\0", "a QED image"),
    (0, b"Bochs Virtual HD Image", "a Bochs image"),
    (0, b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop", "a cloop image"),
];

/// Containers by what their last sector begins with. A VHD of fixed size is a raw disk followed by a footer.
const FOOTERS: [(&[u8], &str); 2] =
    [(b"conectix", VHD), (b"koly\0\0\0\x04\0\0\x02\0", "a DMG image (macOS)")];

impl Content {
    /// What `file` looks like; errors call it `name`.
    pub fn of(file: &dyn ReadAt, name: &str) -> Result<Content> {
        let failed = |e| ImageError::read(name, "read", e);
        let mut head = [0; HEAD_BYTES];
        let n = read_full(file, 0, &mut head).map_err(failed)?;
        let content = Content::of_head(&head[..n]);
        if content != Content::Disk(Format::Raw) {
            return Ok(content);
        }
        let mut footer = [0; FOOTER_BYTES];
        let Some(at) = file.len().checked_sub(FOOTER_BYTES as u64) else { return Ok(content) };
        let n = read_full(file, at, &mut footer).map_err(failed)?;
        let found = FOOTERS.iter().find(|(magic, _)| footer[..n].starts_with(magic));
        Ok(found.map_or(content, |(_, what)| Content::Container(what)))
    }

    /// What a file looks like whose first [`HEAD_BYTES`], or all of whose bytes, are `head`.
    pub fn of_head(head: &[u8]) -> Content {
        let has = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|b| b.starts_with(magic));
        if has(0, &qcow2::MAGIC) {
            return Content::Disk(Format::Qcow2);
        }
        if vmdk::is_vmdk(head) {
            return Content::Disk(Format::Vmdk);
        }
        let found = HEADS.iter().find(|(at, magic, _)| has(*at, magic));
        found.map_or(Content::Disk(Format::Raw), |(.., what)| Content::Container(what))
    }
}
