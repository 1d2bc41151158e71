//! Reading a disk at a limited rate.

use crate::disk::{KnownBlock, KnownBlocks, Source};
use crate::error::Result;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Unused bytes of so much time may be used later.
const CREDIT: Duration = Duration::from_millis(100);
const PIECE_BYTES: u64 = 256 << 10;
const LEAST_PIECE_BYTES: u64 = 4096;

/// A limited rate.
pub struct Pace {
    bytes_per_second: u64,
    /// Until when the bytes read so far have used the rate up.
    paid: Instant,
}

impl Pace {
    /// At most `bytes_per_second` from now on.
    pub fn new(bytes_per_second: u64) -> Self {
        Pace { bytes_per_second: bytes_per_second.max(1), paid: Instant::now() }
    }

    /// Bytes of one piece at most: twenty pieces a second at least, so that the pauses between them stay short.
    pub fn piece_bytes(&self) -> u64 {
        (self.bytes_per_second / 20).clamp(LEAST_PIECE_BYTES, PIECE_BYTES)
    }

    /// Waits until the rate allows `bytes` more.
    pub fn pay(&mut self, bytes: u64) {
        let now = Instant::now();
        self.paid = self.paid.max(now.checked_sub(CREDIT).unwrap_or(now));
        self.paid += Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        std::thread::sleep(self.paid.saturating_duration_since(now));
    }
}

/// A source that is read at a limited rate. Holes are free.
pub struct LimitedSource {
    source: Box<dyn Source>,
    pace: Arc<Mutex<Pace>>,
}

/// Its blocks, read at the same rate.
struct LimitedBlocks {
    blocks: Arc<dyn KnownBlocks>,
    pace: Arc<Mutex<Pace>>,
}

impl LimitedSource {
    /// Reads `source` at `bytes_per_second` at most.
    pub fn new(source: Box<dyn Source>, bytes_per_second: u64) -> Self {
        LimitedSource { source, pace: Arc::new(Mutex::new(Pace::new(bytes_per_second))) }
    }
}

impl Source for LimitedSource {
    fn format(&self) -> &'static str {
        self.source.format()
    }

    fn size(&self) -> Option<u64> {
        self.source.size()
    }

    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        self.source.next_data(from)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut pace = self.pace.lock();
        let piece_bytes = pace.piece_bytes() as usize;
        let mut done = 0;
        while done < buf.len() {
            let end = buf.len().min(done + piece_bytes);
            let got = self.source.read_at(offset + done as u64, &mut buf[done..end])?;
            pace.pay(got as u64);
            done += got;
            if done < end {
                break;
            }
        }
        Ok(done)
    }

    fn known_blocks(&self) -> Option<Arc<dyn KnownBlocks>> {
        let pace = Arc::clone(&self.pace);
        let limited = |blocks| -> Arc<dyn KnownBlocks> { Arc::new(LimitedBlocks { blocks, pace }) };
        self.source.known_blocks().map(limited)
    }

    fn finish(&mut self) -> Result<()> {
        self.source.finish()
    }
}

impl KnownBlocks for LimitedBlocks {
    fn known(&self, range: Range<u64>) -> Result<Vec<KnownBlock>> {
        self.blocks.known(range)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut pace = self.pace.lock();
        let piece_bytes = pace.piece_bytes() as usize;
        for (n, piece) in buf.chunks_mut(piece_bytes).enumerate() {
            self.blocks.read_at(offset + (n * piece_bytes) as u64, piece)?;
            pace.pay(piece.len() as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros without end.
    struct Zeros;

    impl Source for Zeros {
        fn format(&self) -> &'static str {
            "zeros"
        }
        fn size(&self) -> Option<u64> {
            Some(1 << 40)
        }
        fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>> {
            Ok(Some(from..1 << 40))
        }
        fn read_at(&mut self, _: u64, buf: &mut [u8]) -> Result<usize> {
            buf.fill(0);
            Ok(buf.len())
        }
    }

    #[test]
    fn what_is_read_takes_its_time() {
        let rate = 40 << 20;
        let mut limited = LimitedSource::new(Box::new(Zeros), rate);
        // What was not asked for is not saved up for long.
        std::thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        let mut buf = vec![1; 16 << 20];
        assert!(matches!(limited.read_at(0, &mut buf), Ok(n) if n == 16 << 20));
        let seconds = start.elapsed().as_secs_f64();
        assert!(buf.iter().all(|b| *b == 0));
        // 0.4 s, of which 0.1 s may have been saved; how much longer it takes is for the machine to say.
        assert!(seconds > 0.28, "{seconds}");
    }
}
