//! A node that is in use.

use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use export::files::Stat;
use export::NodeId;
use format::pool::{FileKind, FileRecord, FileTime};
use parking_lot::{Mutex, RwLock};
use rustix::fs::FileType;

use crate::pool::Users;
use crate::volume::Volume;

/// The name of the directory of volumes in the root. It is not there if a node of the file system has this name since before.
pub(super) const VOLUMES_NAME: &str = ".volumes";

/// A file, a directory or another node that somebody has looked up.
pub(super) struct Node {
    pub id: u64,
    pub state: Mutex<State>,
    /// The volume with a file's content. Reads and writes have it shared; truncation, and what changes which volume it is
    /// or how far it reaches, have it alone.
    pub volume: RwLock<Option<Arc<Volume>>>,
    /// Whether all that lies behind the file's end in the volume is known to be zeros. Becomes true only for who has the
    /// volume alone.
    pub is_clear: AtomicBool,
}

/// What changes of a node.
pub(super) struct State {
    pub record: FileRecord,
    /// How often it was looked up and not forgotten. Changes with the lock of the table only.
    pub lookups: u64,
    /// Of a file: who has it open, or as a device.
    pub users: Users,
    /// Of a file: its volume has content of another file behind its end, until the program that copies it has closed it.
    pub has_tail: bool,
}

impl Node {
    pub fn new(id: u64, record: FileRecord) -> Self {
        let state = State { record, lookups: 0, users: Users::default(), has_tail: false };
        let (state, volume) = (Mutex::new(state), RwLock::new(None));
        Node { id, state, volume, is_clear: AtomicBool::new(false) }
    }

    pub fn kind(&self) -> FileKind {
        self.state.lock().record.kind
    }

    pub fn size(&self) -> u64 {
        self.state.lock().record.size
    }

    /// What is known of it, but for the space that its content takes.
    pub fn stat(&self) -> Stat {
        let record = &self.state.lock().record;
        Stat {
            id: NodeId(self.id),
            mode: type_of(record.kind).as_raw_mode() | u32::from(record.mode),
            links: record.links,
            user: record.user,
            group: record.group,
            device: record.device,
            size: record.size,
            stored: 0,
            accessed: system_time(record.accessed),
            modified: system_time(record.modified),
            changed: system_time(record.changed),
        }
    }
}

/// A record of something that was made just now.
pub(super) fn record(kind: FileKind, mode: u16, (user, group): (u32, u32)) -> FileRecord {
    let now = now();
    FileRecord {
        kind,
        mode,
        links: 1,
        user,
        group,
        device: 0,
        volume: 0,
        size: 0,
        parent: 0,
        accessed: now,
        modified: now,
        changed: now,
        created: now,
        target: Vec::new(),
    }
}

/// The type that POSIX has for a kind.
pub(super) fn type_of(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Link => FileType::Symlink,
        FileKind::Pipe => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::Characters => FileType::CharacterDevice,
        FileKind::Blocks => FileType::BlockDevice,
    }
}

/// The kind of a type, if there is one.
pub(super) fn kind_of(mode: u32) -> Option<FileKind> {
    Some(match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo => FileKind::Pipe,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::Characters,
        FileType::BlockDevice => FileKind::Blocks,
        FileType::Unknown => return None,
    })
}

pub(super) fn now() -> FileTime {
    file_time(SystemTime::now())
}

pub(super) fn file_time(time: SystemTime) -> FileTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => FileTime { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let (seconds, nanoseconds) = (before.as_secs() as i64, before.subsec_nanos());
            match nanoseconds {
                0 => FileTime { seconds: -seconds, nanoseconds: 0 },
                _ => FileTime { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
            }
        }
    }
}

fn system_time(time: FileTime) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let seconds =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    seconds
        .and_then(|t| t.checked_add(Duration::from_nanos(u64::from(time.nanoseconds))))
        .unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for (seconds, nanoseconds) in [(0, 0), (5, 1), (-1, 0), (-1, 999_999_999), (-7, 1), (1 << 40, 3)] {
            let time = FileTime { seconds, nanoseconds };
            assert_eq!(file_time(system_time(time)), time);
        }
    }
}
