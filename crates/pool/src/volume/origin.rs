//! What a volume is filled from: it has the blocks that have not arrived.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use export::{Block, BlockDevice, Extent};
use parking_lot::{Condvar, Mutex};

/// How long a read waits for what a volume is filled from to be opened.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// What a volume is filled from.
#[derive(Default)]
pub(crate) struct Origin {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    /// Nobody has opened it yet.
    #[default]
    Unopened,
    Open(Arc<dyn BlockDevice>),
    /// It cannot be opened, or is closed.
    Closed(String),
}

impl Origin {
    /// Blocks are read from a device from now on.
    pub fn open(&self, device: Arc<dyn BlockDevice>) {
        self.set(State::Open(device));
    }

    /// Reading it fails from now on.
    pub fn close(&self, why: &str) {
        self.set(State::Closed(why.to_owned()));
    }

    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    fn device(&self) -> io::Result<Arc<dyn BlockDevice>> {
        let mut state = self.state.lock();
        let is_unopened = |state: &mut State| matches!(state, State::Unopened);
        self.changed.wait_while_for(&mut state, is_unopened, OPEN_TIME);
        match &*state {
            State::Open(device) => Ok(Arc::clone(device)),
            State::Closed(why) => Err(io::Error::other(why.clone())),
            State::Unopened => Err(io::Error::other("what it is filled from was not opened")),
        }
    }

    /// Fills `buf` from `offset` on. Behind its end are zeros.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let device = self.device()?;
        let there = device.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        let (data, behind) = buf.split_at_mut(there);
        behind.fill(0);
        if data.is_empty() {
            return Ok(());
        }
        device.read_at(offset, data)
    }

    /// Tells what a range holds; returns whether more is wanted. Where that cannot be told, it may be anything.
    pub fn tell(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> bool {
        let mut at = range.start;
        while at < range.end {
            let data = match self.next_data(at) {
                Ok(Some(data)) if data.start < range.end => data.start..data.end.min(range.end),
                Ok(_) => range.end..range.end,
                Err(_) => at..range.end,
            };
            let hole = Extent { range: at..data.start, block: Block::Hole };
            let (start, end) = (data.start, data.end);
            let data = Extent { range: data, block: Block::Data };
            if (at < start && !each(hole)) || (start < end && !each(data)) {
                return false;
            }
            at = end;
        }
        true
    }

    /// The next range at or behind `from` that may hold anything but zeros; `None`: zeros up to the end.
    pub fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let device = self.device()?;
        let mut at = from;
        while at < device.size() {
            let mut found: Option<Extent> = None;
            device.extents(at..device.size(), &mut |extent| {
                found = Some(extent);
                false
            })?;
            match found {
                Some(Extent { range, block: Block::Data }) if range.end > at => {
                    return Ok(Some(range.start.max(from)..range.end))
                }
                Some(Extent { range, .. }) if range.end > at => at = range.end,
                _ => return Err(io::Error::other("it does not tell where its data is")),
            }
        }
        Ok(None)
    }
}
