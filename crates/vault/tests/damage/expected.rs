//! What a snapshot has to give when it is restored, compared while it is restored: most of the disks here are holes, which
//! cost more to fill with zeros than everything else.

use image::Target;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use vault::{Progress, Vault};

const BLOCK: usize = 4096;

/// The content of a snapshot.
pub struct Expected {
    pub bytes: Vec<u8>,
    /// Of each block, whether it is all zeros.
    zeros: Vec<bool>,
}

impl Expected {
    pub fn new(bytes: Vec<u8>) -> Arc<Expected> {
        let zeros = bytes.chunks(BLOCK).map(is_zero).collect();
        Arc::new(Expected { bytes, zeros })
    }

    /// Whether there are only zeros in a range.
    fn is_hole(&self, range: Range<usize>) -> bool {
        (range.start / BLOCK..range.end.div_ceil(BLOCK)).all(|block| {
            let at = range.start.max(block * BLOCK)..range.end.min((block + 1) * BLOCK);
            self.zeros[block] || is_zero(&self.bytes[at])
        })
    }

    /// Restores a snapshot. It fails, or it is this.
    pub fn restore(self: &Arc<Self>, vault: &Vault, disk: &str, id: &str) -> vault::Result<()> {
        let written = Arc::new(Mutex::new(Vec::new()));
        let target = Compared { expected: self.clone(), written: written.clone() };
        let make = move |size: u64, _: &[Range<u64>]| {
            assert_eq!(size, target.expected.bytes.len() as u64, "{disk}@{id}");
            Ok(Box::new(target) as Box<dyn Target>)
        };
        vault.restore(disk, id, make, &Progress::default())?;
        let mut all = std::mem::take(&mut *written.lock());
        assert_eq!(all.pop(), Some(FINISHED), "{disk}@{id}: not finished");
        // What stands behind the last byte is no hole.
        all.push(self.bytes.len()..self.bytes.len());
        all.sort_unstable_by_key(|r| r.start);
        let mut end = 0;
        for range in all {
            assert!(end >= range.start || self.is_hole(end..range.start), "{disk}@{id}: left out at {end}");
            end = end.max(range.end);
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    *bytes == [0; BLOCK][..bytes.len()]
}

/// Stands behind what was written.
const FINISHED: Range<usize> = usize::MAX..usize::MAX;

/// A target that compares.
struct Compared {
    expected: Arc<Expected>,
    /// What was written and was right.
    written: Arc<Mutex<Vec<Range<usize>>>>,
}

impl Target for Compared {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> image::Result<()> {
        let at = offset as usize..offset as usize + data.len();
        assert!(self.expected.bytes[at.clone()] == *data, "restored wrong bytes at {offset}");
        self.written.lock().push(at);
        Ok(())
    }

    fn finish(self: Box<Self>) -> image::Result<()> {
        self.written.lock().push(FINISHED);
        Ok(())
    }
}
