//! Messages to later ranges of chunks: they are kept in a temporary file until their range's turn comes.

use super::run::{write, Run};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Messages of a range that are written at a time.
const LETTERS: usize = 256;
/// Fields of a message.
const FIELDS: usize = 2;

/// Messages, by the range that they are for.
pub(super) struct Post {
    ranges: Vec<Range>,
    file: Option<Arc<File>>,
    /// Messages in the file.
    written: u64,
}

/// Messages of a range.
#[derive(Default)]
struct Range {
    waiting: Vec<[u64; FIELDS]>,
    /// Where in the file there are others, [`LETTERS`] each.
    places: Vec<u64>,
}

impl Post {
    /// None yet, for so many ranges.
    pub(super) fn new(ranges: usize) -> Self {
        Post { ranges: (0..ranges).map(|_| Range::default()).collect(), file: None, written: 0 }
    }

    /// Sends a message to a range.
    pub(super) fn send(&mut self, range: usize, message: [u64; FIELDS], scratch: &Path) -> io::Result<()> {
        let to = &mut self.ranges[range];
        to.waiting.push(message);
        if to.waiting.len() == LETTERS {
            let file = match &self.file {
                Some(file) => file,
                None => self.file.insert(Arc::new(tempfile::tempfile_in(scratch)?)),
            };
            write(file, &to.waiting, self.written)?;
            to.places.push(self.written);
            self.written += LETTERS as u64;
            to.waiting.clear();
        }
        Ok(())
    }

    /// All messages to a range.
    pub(super) fn receive(
        &mut self,
        range: usize,
    ) -> impl Iterator<Item = io::Result<[u64; FIELDS]>> + use<> {
        let Range { waiting, places } = std::mem::take(&mut self.ranges[range]);
        let file = self.file.clone();
        let of = move |at: u64| file.clone().map(|file| Run::new(file, at..at + LETTERS as u64));
        places.into_iter().filter_map(of).flatten().chain(waiting.into_iter().map(Ok))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_range_gets_what_was_sent_to_it() {
        let mut post = Post::new(7);
        for n in 0..10_000 {
            post.send(n as usize * n as usize % 7, [n, n + 1], &std::env::temp_dir()).unwrap();
        }
        for range in 0..7 {
            let got: Vec<[u64; 2]> = post.receive(range).map(Result::unwrap).collect();
            let sent = (0..10_000u64).filter(|n| n * n % 7 == range as u64);
            assert_eq!(got, sent.map(|n| [n, n + 1]).collect::<Vec<_>>());
            assert_eq!(post.receive(range).count(), 0);
        }
    }
}
