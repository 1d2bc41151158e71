//! What is known of a volume's blocks without reading them: their fingerprints stand in the fingerprint stores.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use chunk::Fingerprint;
use export::BlockDevice;
use format::pool::{VolumeBlock, BLOCK_BYTES};

use super::Volume;
use crate::error::Result;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is zero.
    Zeros,
    /// Its fingerprint.
    Fingerprint(Fingerprint),
    /// Nothing: it was written while sharing was not inline.
    Unknown,
}

impl Known {
    /// Bytes of it in a [`FingerprintDevice`].
    pub const BYTES: usize = 32;

    /// Its bytes: those of the fingerprint; zeros and ones are no fingerprints.
    pub fn encode(self) -> [u8; Self::BYTES] {
        match self {
            Known::Zeros => [0; Self::BYTES],
            Known::Fingerprint(fingerprint) => fingerprint.0,
            Known::Unknown => [0xff; Self::BYTES],
        }
    }

    /// What [`Known::encode`] wrote.
    pub fn decode(bytes: [u8; Self::BYTES]) -> Self {
        match bytes {
            bytes if bytes == [0; Self::BYTES] => Known::Zeros,
            bytes if bytes == [0xff; Self::BYTES] => Known::Unknown,
            bytes => Known::Fingerprint(Fingerprint(bytes)),
        }
    }
}

impl Volume {
    /// What is known of blocks. A fingerprint store is read for 32,000 of them at most.
    pub fn known(&self, blocks: Range<VolumeBlock>) -> Result<Vec<Known>> {
        let mut found = Vec::with_capacity(blocks.start.count_to(blocks.end) as usize);
        let mut at = blocks.start;
        while at < blocks.end {
            let end = at.leaf_end().min(blocks.end);
            let root = self.root();
            // A block that was looked up is not used again before its fingerprint was read.
            let _guard = self.engine.read_guard();
            for (block, entry) in at.until(end).zip(self.entries(at, end)?) {
                found.push(match entry.block() {
                    None if Self::is_absent(&root, block, entry) => Known::Unknown,
                    None => Known::Zeros,
                    Some(block) => {
                        let (entry, fingerprint) = self.engine.fingerprint_entry(block)?;
                        if entry.has_fingerprint {
                            Known::Fingerprint(fingerprint)
                        } else {
                            Known::Unknown
                        }
                    }
                });
            }
            at = end;
        }
        Ok(found)
    }
}

/// The fingerprints of a snapshot as a device that NBD serves: [`Known::BYTES`] for each block.
pub struct FingerprintDevice(pub Arc<Volume>);

impl FingerprintDevice {
    fn blocks(&self) -> u64 {
        Volume::size(&self.0).div_ceil(BLOCK)
    }
}

impl BlockDevice for FingerprintDevice {
    fn size(&self) -> u64 {
        (self.blocks() * Known::BYTES as u64).next_multiple_of(512)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let each = Known::BYTES as u64;
        let (first, end) = (offset / each, (offset + buf.len() as u64).div_ceil(each));
        let within = |block: u64| VolumeBlock(block.min(self.blocks()));
        let known = self.0.known(within(first)..within(end))?;
        let mut bytes: Vec<u8> = known.into_iter().flat_map(Known::encode).collect();
        bytes.resize(((end - first) * each) as usize, 0);
        let start = (offset - first * each) as usize;
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    }
}
