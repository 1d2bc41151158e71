//! A client of vhost-user-blk.

use std::path::Path;

use anyhow::{ensure, Result};
use testing::vhost::{feature, kind, Done, Guest, SLOTS, SLOT_BYTES};

use super::client::{Access, Client, Next};

const SECTOR_BYTES: u64 = 512;

/// A guest with one queue.
pub struct VhostClient {
    guest: Guest,
    size: u64,
}

impl VhostClient {
    /// Connects to the disk at a socket.
    pub fn connect(socket: &Path) -> Result<Self> {
        let mut guest = Guest::connect(socket, feature::FLUSH | feature::EVENT_INDEX)?;
        let sectors: [u8; 8] = guest.config(0, 8)?.try_into().unwrap_or_default();
        Ok(VhostClient { guest, size: u64::from_le_bytes(sectors) * SECTOR_BYTES })
    }
}

impl Client for VhostClient {
    fn size(&self) -> u64 {
        self.size
    }

    fn run(&mut self, depth: usize, bytes: usize, next: &mut Next<'_>) -> Result<u64> {
        ensure!(depth <= SLOTS && bytes <= SLOT_BYTES, "more than the guest has room for");
        let mut free: Vec<usize> = (0..depth).collect();
        let mut buffer = vec![0; bytes];
        let (mut done, mut has_ended) = (0, false);
        loop {
            while !has_ended && !free.is_empty() {
                let Some((access, offset)) = next(&mut buffer) else {
                    has_ended = true;
                    break;
                };
                let Some(slot) = free.pop() else { break };
                let what = match access {
                    Access::Read => kind::READ,
                    Access::Write => {
                        self.guest.put(slot, &buffer);
                        kind::WRITE
                    }
                };
                self.guest.submit(slot, what, offset / SECTOR_BYTES, bytes);
            }
            if free.len() == depth {
                return Ok(done);
            }
            self.guest.kick();
            let Done { slot, status } = self.guest.wait();
            ensure!(status == 0, "a request ended with status {status}");
            free.push(slot);
            done += 1;
        }
    }

    fn flush(&mut self) -> Result<()> {
        let status = self.guest.ask(kind::FLUSH, 0, 0);
        ensure!(status == 0, "the flush ended with status {status}");
        Ok(())
    }
}
