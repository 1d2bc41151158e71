//! A pool's device with the times of a disk with a moving head ([`crate::layout::seek_model`]): the data goes to a file, and
//! what it would take on such a disk is added up.
//!
//! Reads are served at once. Writes wait, as in a page cache, until it is synced or many wait, and are then served in the order
//! of their places; what was written twice is written once.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use format::pool::{Geometry, BLOCK_BYTES};
use parking_lot::Mutex;
use pool::Device;

use super::device::MeteredDevice;
use crate::layout::seek_model::{Service, ST1000DM003};

/// Bytes of writes that wait at most.
const WAITING_BYTES_MAX: u64 = 64 << 20;

/// The disk's state.
#[derive(Default)]
pub struct MovingHead {
    head: Option<u64>,
    /// Blocks that wait to be written, by their places.
    waiting: BTreeSet<u64>,
    service: Service,
}

impl MovingHead {
    /// What was served since this was last asked.
    pub fn take(&mut self) -> Service {
        std::mem::take(&mut self.service)
    }

    fn serve(&mut self, offset: u64, length: u64) {
        ST1000DM003.serve_next(&mut self.head, offset, length, &mut self.service);
    }

    fn drain(&mut self) {
        let block = BLOCK_BYTES as u64;
        let mut places = std::mem::take(&mut self.waiting).into_iter().peekable();
        while let Some(start) = places.next() {
            let mut end = start + block;
            while places.next_if_eq(&end).is_some() {
                end += block;
            }
            self.serve(start, end - start);
        }
    }
}

/// The device.
pub struct MovingHeadDevice {
    inner: MeteredDevice,
    geometry: Geometry,
    /// Fingerprint stores are in front of the blocks that they are of; otherwise all are behind the last group.
    is_local: bool,
    state: Arc<Mutex<MovingHead>>,
}

impl MovingHeadDevice {
    /// A disk on which the pool of this device is.
    pub fn new(inner: MeteredDevice, is_local: bool) -> (Self, Arc<Mutex<MovingHead>>) {
        let state = Arc::new(Mutex::new(MovingHead::default()));
        let geometry = inner.geometry();
        (Self { inner, geometry, is_local, state: Arc::clone(&state) }, state)
    }

    /// Where a block lies on the disk, in bytes.
    fn place(&self, block: u64) -> u64 {
        let g = &self.geometry;
        let group_blocks = u64::from(g.group_blocks);
        let from_groups = block.checked_sub(g.groups_start().0).filter(|_| !self.is_local);
        let place = match from_groups {
            Some(at) if at % group_blocks < u64::from(g.fingerprint_pages()) => {
                let end = g.groups_start().0 + u64::from(g.groups) * group_blocks;
                end + at / group_blocks * u64::from(g.fingerprint_pages()) + at % group_blocks
            }
            _ => block,
        };
        place * BLOCK_BYTES as u64
    }

    /// The places of blocks.
    fn places(&self, offset: u64, bytes: usize) -> impl Iterator<Item = u64> + '_ {
        let block = BLOCK_BYTES as u64;
        (offset / block..(offset + bytes as u64).div_ceil(block)).map(|block| self.place(block))
    }
}

impl Device for MovingHeadDevice {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        for place in self.places(offset, buf.len()) {
            // What waits to be written is in memory.
            if !state.waiting.contains(&place) {
                state.serve(place, BLOCK_BYTES as u64);
            }
        }
        drop(state);
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        for place in self.places(offset, data.len()) {
            state.waiting.insert(place);
        }
        if state.waiting.len() as u64 * BLOCK_BYTES as u64 > WAITING_BYTES_MAX {
            state.drain();
        }
        drop(state);
        self.inner.write_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.state.lock().drain();
        // The model's time counts, not the file's.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    #[test]
    fn writes_that_wait_are_served_in_order_and_once() {
        let mut disk = MovingHead::default();
        for block in [7, 3, 5, 4, 3, 7] {
            disk.waiting.insert(block * BLOCK);
        }
        disk.drain();
        let served = disk.take();
        assert_eq!((served.seeks, served.bytes), (2, 4 * BLOCK), "3 to 5, and 7");
        disk.drain();
        assert_eq!(disk.take(), Service::default());
        // The head is behind 7.
        disk.serve(8 * BLOCK, BLOCK);
        assert_eq!(disk.take().seeks, 0);
    }
}
