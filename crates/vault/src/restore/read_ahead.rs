//! Detects sequential streams of reads, and reads ahead of them.

use parking_lot::Mutex;
use std::ops::Range;

/// Streams that are followed at once (Lin 2015 expects 16 offsets).
const STREAMS: usize = 16;
/// A read this near to where a stream was expected to go on belongs to it: several are under way at once.
const SLACK_BYTES: u64 = 2 << 20;
/// Reads in order after which a stream is read ahead of.
const HITS: u32 = 2;
/// How far ahead at first; each step doubles it.
const WINDOW_MIN: u64 = 1 << 20;

impl Stream {
    fn at(read: &Range<u64>) -> Stream {
        let len = read.end - read.start;
        Stream { first: read.start, read: len, next: read.end, ahead: read.end, hits: 0, window: WINDOW_MIN }
    }
}

/// Tells reads in order from others.
pub(crate) struct Streams {
    streams: Mutex<Vec<Stream>>,
    window_max: u64,
}

struct Stream {
    /// Where it began, and how many bytes of what lies between were read.
    first: u64,
    read: u64,
    /// Where it is expected to go on.
    next: u64,
    /// Up to where it was read ahead.
    ahead: u64,
    hits: u32,
    window: u64,
}

impl Streams {
    /// Reads ahead by `window_max` bytes at most.
    pub fn new(window_max: u64) -> Streams {
        Streams { streams: Mutex::default(), window_max }
    }

    /// Takes note of a read. Returns what should now be read ahead.
    pub fn note(&self, read: &Range<u64>) -> Option<Range<u64>> {
        let mut streams = self.streams.lock();
        let near = |s: &Stream| read.start + SLACK_BYTES >= s.next && read.start <= s.next + SLACK_BYTES;
        let Some(at) = streams.iter().position(near) else {
            streams.truncate(STREAMS - 1);
            streams.insert(0, Stream::at(read));
            return None;
        };
        // The stream used last stands first, and the one longest unused goes.
        streams[..=at].rotate_right(1);
        let s = &mut streams[0];
        s.read += read.end - read.start;
        if read.end <= s.next {
            return None;
        }
        s.next = read.end;
        s.hits += 1;
        // Reads that only happen to lie near each other.
        if s.read < (s.next - s.first) / 2 {
            *s = Stream::at(read);
        }
        // More than half of what was read ahead is still to come: enough.
        let due = s.ahead.saturating_sub(s.next) < s.window / 2;
        if s.hits < HITS || !due || self.window_max < WINDOW_MIN {
            return None;
        }
        let from = s.ahead.max(s.next);
        s.ahead = s.next + s.window;
        s.window = (s.window * 2).min(self.window_max);
        (from < s.ahead).then_some(from..s.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn who_reads_in_order_is_read_ahead_of() {
        let streams = Streams::new(8 * MIB);
        let mut ahead = 0;
        for n in 0..1024 {
            let read = n * 64 * KIB..(n + 1) * 64 * KIB;
            assert!(n < 4 || ahead > read.end, "read {n} is not ahead: {ahead}");
            if let Some(range) = streams.note(&read) {
                assert!(range.start >= read.end && range.start >= ahead);
                assert!(range.end <= read.end + 8 * MIB);
                ahead = range.end;
            }
        }
        assert!(ahead >= 64 * MIB + 4 * MIB);
    }

    #[test]
    fn who_reads_at_random_is_not() {
        let streams = Streams::new(8 * MIB);
        for n in 0..1000u64 {
            let at = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (64 << 20);
            assert_eq!(streams.note(&(at..at + 4 * KIB)), None);
        }
    }

    #[test]
    fn several_in_order_at_once_are_told_apart() {
        let streams = Streams::new(8 * MIB);
        let mut ahead = [0; 8];
        for n in 0..256 {
            for (k, ahead) in ahead.iter_mut().enumerate() {
                let base = k as u64 * 1024 * MIB;
                if let Some(range) = streams.note(&(base + n * 256 * KIB..base + (n + 1) * 256 * KIB)) {
                    *ahead = range.end - base;
                }
            }
        }
        assert!(ahead.iter().all(|a| *a >= 64 * MIB), "{ahead:?}");
    }
}
