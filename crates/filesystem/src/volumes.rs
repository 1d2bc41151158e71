//! The volumes of a disk: partitions and logical volumes, or the disk as a whole.

mod lvm;
mod partitions;
mod probe;

use crate::disk::{Disk, Part, Piece};
use crate::error::{FsError, Result};
use crate::ext;
use crate::fat::Fat;
use crate::ntfs::Ntfs;
use crate::tree::FileSystem;
use crate::xfs::Xfs;
use std::sync::Arc;

/// The name of a disk that is one volume.
const WHOLE: &str = "disk";

/// A part of a disk that may hold a file system.
pub struct Volume {
    /// `1`, `5`: a partition as Linux counts them; `vg0/root`: a logical volume; `disk`: the disk itself.
    pub name: String,
    /// What it holds, by its content: `ext4`, `xfs`, `ntfs`, `fat32`, `swap`, `lvm`, `luks`, …; empty if that is not known.
    pub kind: &'static str,
    /// Its size in bytes, by the table that describes it.
    pub size: u64,
    /// The type of a partition: `83`, or a GUID; empty for all else.
    pub type_id: String,
    /// The name that a GPT gives it, or empty.
    pub label: String,
    part: std::result::Result<Part, Unreadable>,
    /// What is wrong with the metadata of a physical volume.
    wrong: Option<Unreadable>,
}

/// An error that can be told again and again.
#[derive(Clone, Debug)]
enum Unreadable {
    Corrupt(String, String),
    Unsupported(String, String),
}

impl Unreadable {
    /// Errors of reading are passed on.
    fn of(error: FsError) -> Result<Unreadable> {
        match error {
            FsError::Corrupt { what, why } | FsError::Wrong { what, why } => {
                Ok(Unreadable::Corrupt(what, why))
            }
            FsError::Unsupported { what, feature } => Ok(Unreadable::Unsupported(what, feature)),
            FsError::Read(_) => Err(error),
        }
    }

    fn error(&self) -> FsError {
        match self.clone() {
            Unreadable::Corrupt(what, why) => FsError::corrupt(what, why),
            Unreadable::Unsupported(what, feature) => FsError::unsupported(what, feature),
        }
    }
}

impl Volume {
    /// Where it lies on the disk. An error if it is not known, not supported, or not wholly on this disk.
    pub fn part(&self) -> Result<Part> {
        self.part.clone().map_err(|why| why.error())
    }

    /// Opens its file system.
    pub fn open(&self) -> Result<Box<dyn FileSystem>> {
        let part: Arc<dyn Disk> = Arc::new(self.part()?);
        if let Some(wrong) = &self.wrong {
            return Err(wrong.error());
        }
        let found: Option<Box<dyn FileSystem>> = match self.kind {
            "ext2" | "ext3" | "ext4" => ext::open(part)?.map(|fs| Box::new(fs) as _),
            "xfs" => Xfs::open(part)?.map(|fs| Box::new(fs) as _),
            "ntfs" => Ntfs::open(part)?.map(|fs| Box::new(fs) as _),
            "fat12" | "fat16" | "fat32" => Fat::open(part)?.map(|fs| Box::new(fs) as _),
            "" => {
                return Err(FsError::Wrong {
                    what: self.what(),
                    why: "it holds no file system that is known".into(),
                })
            }
            other => return Err(FsError::unsupported(self.what(), other)),
        };
        found.ok_or_else(|| FsError::corrupt(self.what(), format!("its {} is gone", self.kind)))
    }

    fn what(&self) -> String {
        format!("volume {}", self.name)
    }

    /// A volume at a place that may be beyond the disk's end. What is behind the end is cut off.
    fn new(disk: &Arc<dyn Disk>, name: String, piece: Piece) -> Result<Volume> {
        let here = disk.size().saturating_sub(piece.offset).min(piece.len);
        let part = Part::new(disk.clone(), &[Piece { len: here, ..piece }]).ok_or_else(|| {
            let why = format!("it begins at offset {}, and the disk ends at {}", piece.offset, disk.size());
            Unreadable::Corrupt(format!("volume {name}"), why)
        });
        let kind = part.as_ref().map_or(Ok(""), |part| probe::kind(part))?;
        Ok(Volume {
            name,
            kind,
            size: piece.len,
            type_id: String::new(),
            label: String::new(),
            part,
            wrong: None,
        })
    }
}

/// The volumes of a disk: its partitions, or itself if it has none; then the logical volumes on these.
pub fn volumes(disk: Arc<dyn Disk>) -> Result<Vec<Volume>> {
    let mut found = match partitions::read(&disk)? {
        Some(partitions) => {
            let volume = |p: partitions::Partition| {
                let volume = Volume::new(&disk, p.number.to_string(), p.piece)?;
                Ok(Volume { type_id: p.type_id, label: p.label, ..volume })
            };
            partitions.into_iter().map(volume).collect::<Result<Vec<_>>>()?
        }
        None if disk.size() == 0 => Vec::new(),
        None => vec![Volume::new(&disk, WHOLE.into(), Piece { offset: 0, len: disk.size() })?],
    };
    let logical = logical_volumes(&disk, &mut found)?;
    found.extend(logical);
    Ok(found)
}

/// The logical volumes on physical ones. What is wrong with these is kept with them.
fn logical_volumes(disk: &Arc<dyn Disk>, physical: &mut [Volume]) -> Result<Vec<Volume>> {
    let (mut members, mut left) = (Vec::new(), lvm::TEXTS_BYTES_MAX);
    for volume in physical.iter_mut().filter(|v| v.kind == "lvm") {
        match lvm::Physical::read(volume.part()?, &mut left) {
            Ok(member) => members.push(member),
            Err(why) => volume.wrong = Some(Unreadable::of(why)?),
        }
    }
    let (mut found, mut left) = (Vec::new(), lvm::PIECES_MAX);
    for group in lvm::groups(&members) {
        match group {
            Ok(group) => {
                for volume in &group.volumes {
                    found.push(logical_volume(
                        &group,
                        volume,
                        group.part(volume, disk, &members, &mut left),
                    )?);
                }
            }
            Err(why) => {
                let why = Unreadable::of(why)?;
                physical.iter_mut().filter(|v| v.kind == "lvm").for_each(|v| v.wrong = Some(why.clone()));
            }
        }
    }
    Ok(found)
}

fn logical_volume(group: &lvm::Group, volume: &lvm::LogicalVolume, part: Result<Part>) -> Result<Volume> {
    let part = match part {
        Ok(part) => Ok(part),
        Err(why) => Err(Unreadable::of(why)?),
    };
    Ok(Volume {
        name: format!("{}/{}", group.name, volume.name),
        kind: part.as_ref().map_or(Ok(""), |part| probe::kind(part))?,
        size: group.size(volume),
        type_id: String::new(),
        label: String::new(),
        part,
        wrong: None,
    })
}
