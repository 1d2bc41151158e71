//! How many use a volume or a file, and how.
//!
//! Of the two ways to write it, as a device and as a file, only one is in use at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use format::pool::VolumeId;
use parking_lot::Mutex;

use crate::volume::Volume;

/// The kernel says a moment later that a file was closed.
pub(crate) const CLOSE_TIME: Duration = Duration::from_secs(1);
pub(crate) const CLOSE_PAUSE: Duration = Duration::from_millis(10);

/// How many use something, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Users {
    /// Clients of servers that have it as a device.
    devices: u32,
    /// Those who have it open as a file for reading only.
    readers: u32,
    /// Those who have it open as a file for writing.
    writers: u32,
}

impl Users {
    /// One more has it as a device. Returns whether that may be: not while it is written as a file.
    pub fn attach(&mut self) -> bool {
        let may = self.writers == 0;
        self.devices += u32::from(may);
        may
    }

    /// The same, for what may be in the memory of those who have it open: nobody may have.
    pub fn attach_alone(&mut self) -> bool {
        self.readers == 0 && self.attach()
    }

    pub fn detach(&mut self) {
        self.devices = self.devices.saturating_sub(1);
    }

    /// One more opens it as a file. Returns whether that may be: not for writing while it is a device.
    pub fn open(&mut self, write: bool) -> bool {
        let may = !write || self.devices == 0;
        let count = if write { &mut self.writers } else { &mut self.readers };
        *count += u32::from(may);
        may
    }

    pub fn close(&mut self, write: bool) {
        let count = if write { &mut self.writers } else { &mut self.readers };
        *count = count.saturating_sub(1);
    }

    pub fn is_device(&self) -> bool {
        self.devices > 0
    }

    /// Whether anybody has it open as a file.
    pub fn is_file(&self) -> bool {
        self.readers + self.writers > 0
    }

    pub fn is_written_as_file(&self) -> bool {
        self.writers > 0
    }

    fn is_used(&self) -> bool {
        self.devices + self.readers + self.writers > 0
    }
}

/// The volumes in use. Each stays open as long as anybody uses it.
pub(crate) type InUse = Arc<Mutex<HashMap<VolumeId, (Users, Arc<Volume>)>>>;

/// One of those who use a volume does so no more.
pub(crate) fn leave(in_use: &InUse, id: VolumeId, how: impl FnOnce(&mut Users)) {
    let mut all = in_use.lock();
    if let Some((users, _)) = all.get_mut(&id) {
        how(users);
        if !users.is_used() {
            all.remove(&id);
        }
    }
}
