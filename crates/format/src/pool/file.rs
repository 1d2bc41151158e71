//! What is kept of a file, a directory or a link in the table of nodes.

use crate::bytes::{In, Malformed, Out, Result};

/// The longest target of a symbolic link in bytes.
pub const LINK_BYTES_MAX: usize = 4095;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A character device.
    Characters,
    /// A block device.
    Blocks,
}

impl FileKind {
    const ALL: [FileKind; 7] = [
        FileKind::File,
        FileKind::Directory,
        FileKind::Link,
        FileKind::Pipe,
        FileKind::Socket,
        FileKind::Characters,
        FileKind::Blocks,
    ];

    /// The byte that stands for it: 1 to 7.
    pub fn byte(self) -> u8 {
        Self::ALL.iter().zip(1..).find(|(kind, _)| **kind == self).map_or(0, |(_, byte)| byte)
    }

    /// What a byte stands for.
    pub fn of_byte(byte: u8) -> Result<Self> {
        let index = usize::from(byte).checked_sub(1);
        index
            .and_then(|index| Self::ALL.get(index))
            .copied()
            .ok_or_else(|| Malformed::new(format!("a node of kind {byte}")))
    }
}

/// A moment: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// Seconds since 1970, or before.
    pub seconds: i64,
    /// Nanoseconds behind that, below 10^9.
    pub nanoseconds: u32,
}

/// What is known of a node, apart from its names and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// What it is.
    pub kind: FileKind,
    /// Permissions, with set-user-id, set-group-id and sticky.
    pub mode: u16,
    /// Names that lead to it; of a directory: 2 and one for each directory in it.
    pub links: u32,
    /// The owner.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// Of a device: major and minor number, as the kernel encodes them.
    pub device: u32,
    /// Of a file: id of the volume with its content; 0: nothing was written yet.
    pub volume: u32,
    /// Of a file: its length in bytes. Of a link: that of its target.
    pub size: u64,
    /// Of a directory: the one above.
    pub parent: u64,
    /// When it was read last.
    pub accessed: FileTime,
    /// When its content changed last.
    pub modified: FileTime,
    /// When anything of it changed last.
    pub changed: FileTime,
    /// When it was made.
    pub created: FileTime,
    /// Of a symbolic link: where it leads.
    pub target: Vec<u8>,
}

impl FileRecord {
    /// The bytes of the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(92 + self.target.len()));
        out.u8(self.kind.byte());
        out.u8(0);
        out.u16(self.mode);
        out.u32(self.links);
        out.u32(self.user);
        out.u32(self.group);
        out.u32(self.device);
        out.u32(self.volume);
        out.u64(self.size);
        out.u64(self.parent);
        for time in [self.accessed, self.modified, self.changed, self.created] {
            out.u64(time.seconds as u64);
            out.u32(time.nanoseconds);
        }
        out.bytes(&self.target);
        out.0
    }

    /// What [`FileRecord::encode`] wrote.
    ///
    /// # Errors
    /// Bytes that it would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut fields = In::within(bytes, LINK_BYTES_MAX);
        let kind = FileKind::of_byte(fields.u8()?)?;
        if fields.u8()? != 0 {
            return Err(Malformed::new("a node with a byte that should be zero"));
        }
        let mode = fields.u16()?;
        let (links, user, group) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (device, volume) = (fields.u32()?, fields.u32()?);
        let (size, parent) = (fields.u64()?, fields.u64()?);
        let mut times = [FileTime::default(); 4];
        for time in &mut times {
            *time = FileTime { seconds: fields.u64()? as i64, nanoseconds: fields.u32()? };
            if time.nanoseconds >= 1_000_000_000 {
                return Err(Malformed::new(format!("{} nanoseconds", time.nanoseconds)));
            }
        }
        let target = fields.bytes(fields.remaining())?.to_vec();
        if mode > 0o7777 || (kind != FileKind::Link && !target.is_empty()) || target.len() > LINK_BYTES_MAX {
            return Err(Malformed::new(format!("mode {mode:o}, {} bytes of target", target.len())));
        }
        let [accessed, modified, changed, created] = times;
        Ok(FileRecord {
            kind,
            mode,
            links,
            user,
            group,
            device,
            volume,
            size,
            parent,
            accessed,
            modified,
            changed,
            created,
            target,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_byte() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::of_byte(kind.byte()), Ok(kind));
        }
        assert!(FileKind::of_byte(0).is_err() && FileKind::of_byte(8).is_err());
    }
}
