//! Far matches: what of a block is equal to an earlier part of it, found before a compressor whose window is shorter than
//! the block sees it. As in rzip (Tridgell 1999, chapter 3) and zstd's long distance matching: places are chosen by a hash of
//! their content, so that equal parts have equal places, and only these are remembered and looked up.

use format::mzip::{FarBody, FarMatch, FarMatches, MATCH_BYTES_MIN};
use std::io;

/// Bytes that are hashed at a place.
const HASHED: usize = 12;
/// Older places of the same hash that are compared.
const WAYS: usize = 8;
/// Buckets at most, as a power of two: a table of 16 MiB.
const BUCKETS_LOG_MAX: u32 = 19;
/// A remembered place is its offset and 1, with these bits of its hash above.
const TAG: u32 = u32::MAX << 26;
/// So far behind a match bytes are compared at the same distance again: then what changed was a little.
const AGAIN_BYTES: usize = 128;
/// Bytes that are hashed at a time, and room for the places that are chosen of them: all, if they all are alike.
const STEP_BYTES: usize = 128;

/// How far matches are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mzip) struct Search {
    /// The shortest match that pays.
    pub shortest: usize,
    /// One place in so many, as a power of two, is chosen.
    pub chosen_log: u32,
}

/// A block without its far matches.
pub(in crate::mzip) struct Parted {
    /// What is in no match.
    pub literals: Vec<u8>,
    pub matches: FarMatches,
    /// How many of both come before each place that was asked about.
    pub marks: Vec<Mark>,
}

/// What comes before a place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mzip) struct Mark {
    /// Bytes of literals.
    pub literals: usize,
    pub matches: u32,
}

/// Bytes of the table of places that were seen.
pub(in crate::mzip) fn table_bytes(search: Search, content_bytes: u64) -> u64 {
    (1 << buckets_log(search.chosen_log, content_bytes)) * size_of::<Bucket>() as u64
}

fn buckets_log(chosen_log: u32, content_bytes: u64) -> u32 {
    let places = content_bytes >> chosen_log;
    (places / WAYS as u64).next_power_of_two().ilog2().clamp(4, BUCKETS_LOG_MAX)
}

type Bucket = [u32; WAYS];

/// A chosen place.
#[derive(Clone, Copy, Default)]
struct Place {
    at: usize,
    hash: u64,
}

impl Place {
    /// Its bucket, if there are so many of them. The high bits of the hash have chosen it: they are the same in all.
    fn bucket(&self, chosen_log: u32, buckets_log: u32) -> usize {
        (self.hash << chosen_log >> (64 - buckets_log)) as usize
    }

    /// The bits of its hash that a bucket has, above the offset.
    fn tag(&self) -> u32 {
        self.hash as u32 & TAG
    }
}

/// Finds the matches of a block. What goes on at the same distance as the match before may be as short as
/// [`MATCH_BYTES_MIN`]. `places` rise.
pub(in crate::mzip) fn parted(content: &[u8], search: Search, places: &[usize]) -> Parted {
    let Search { shortest, chosen_log } = search;
    let buckets_log = buckets_log(chosen_log, content.len() as u64);
    let mut finder = Finder {
        content,
        shortest: shortest.max(MATCH_BYTES_MIN),
        done: 0,
        looked: 0,
        distance: 0,
        places,
        to: Parted {
            literals: Vec::with_capacity(content.len()),
            matches: FarMatches::default(),
            marks: Vec::with_capacity(places.len()),
        },
    };
    let mut table: Vec<Bucket> = vec![[0; WAYS]; 1 << buckets_log];
    let (mut room, mut older) = ([Place::default(); STEP_BYTES + 1], Vec::with_capacity(STEP_BYTES));
    for begin in (0..content.len()).step_by(STEP_BYTES) {
        // What a match covers is not remembered: the older part, which is equal, is.
        if begin + STEP_BYTES + HASHED <= finder.done {
            continue;
        }
        let chosen = choose(content, begin, chosen_log, &mut room);
        // These reads, of the buckets and of what they name, do not wait for each other.
        older.clear();
        older.extend(chosen.iter().map(|place| table[place.bucket(chosen_log, buckets_log)]));
        for (place, bucket) in chosen.iter().zip(&mut older) {
            if place.at < finder.done {
                continue;
            }
            for other in bucket {
                let offset = (*other & !TAG) as usize;
                let is_equal = *other & TAG == place.tag()
                    && offset > 0
                    && word(content, offset - 1) == word(content, place.at);
                *other = if is_equal { offset as u32 } else { 0 };
            }
        }
        for (place, older) in chosen.iter().zip(&older) {
            finder.place(place.at, older);
            let bucket = &mut table[place.bucket(chosen_log, buckets_log)];
            bucket.copy_within(..WAYS - 1, 1);
            bucket[0] = place.tag() | (place.at + 1) as u32;
        }
    }
    finder.again(content.len());
    finder.mark(content.len() + 1, content.len());
    finder.to.literals.extend_from_slice(&content[finder.done..]);
    finder.to
}

/// Chooses places of a step.
fn choose<'a>(
    content: &[u8],
    begin: usize,
    chosen_log: u32,
    chosen: &'a mut [Place; STEP_BYTES + 1],
) -> &'a [Place] {
    let end = content.len().min(begin + STEP_BYTES + HASHED - 1);
    let mut count = 0;
    for (n, window) in content[begin..end].windows(HASHED).enumerate() {
        let hash = hash(window);
        // Without a branch, which would be guessed wrong each time that a place is chosen.
        chosen[count] = Place { at: begin + n, hash };
        count += usize::from(hash >> (64 - chosen_log) == 0);
    }
    &chosen[..count]
}

#[inline(always)]
fn hash(window: &[u8]) -> u64 {
    let a = word(window, 0).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let b = word(window, HASHED - 8).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (a ^ b).wrapping_mul(0x9fb2_1c65_1e98_df25)
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Collects matches.
struct Finder<'a> {
    content: &'a [u8],
    shortest: usize,
    /// Up to here all is in a match or a literal.
    done: usize,
    /// Up to here bytes were compared at the distance of the match before.
    looked: usize,
    /// That distance; 0 if there is none.
    distance: usize,
    /// The places before which literals and matches are still to be counted.
    places: &'a [usize],
    to: Parted,
}

impl Finder<'_> {
    /// Looks for a match at a place. Each of the older places is an offset and 1, or 0.
    fn place(&mut self, at: usize, older: &Bucket) {
        if at < self.done {
            return;
        }
        self.again(at);
        if at < self.done {
            return;
        }
        let mut best = None;
        let mut best_bytes = 0;
        for older in older.iter().filter(|older| **older > 0).map(|older| *older as usize - 1) {
            let behind = self.equal_before(older, at);
            let (bytes, distance) = (self.equal(older, at) + behind, at - older);
            let shortest = if distance == self.distance { MATCH_BYTES_MIN } else { self.shortest };
            if bytes >= shortest && bytes > best_bytes {
                best_bytes = bytes;
                best = Some((at - behind, distance));
            }
        }
        if let Some((at, distance)) = best {
            self.push(at, best_bytes, distance);
        }
    }

    /// Looks for what goes on at the distance of the match before, up to a place.
    fn again(&mut self, until: usize) {
        if self.distance == 0 {
            return;
        }
        let content = self.content;
        loop {
            let until = until.min(self.done + AGAIN_BYTES).min(content.len().saturating_sub(MATCH_BYTES_MIN));
            let from = self.looked.max(self.done);
            if from >= until {
                return;
            }
            let older = &content[from - self.distance..];
            let found = (0..until - from).find(|n| word(older, *n) == word(&content[from..], *n));
            let Some(found) = found else {
                self.looked = until;
                return;
            };
            let at = from + found;
            self.push(at, self.equal(at - self.distance, at), self.distance);
        }
    }

    /// Counts what is before the places up to `until`, if the next match begins at `at`.
    fn mark(&mut self, until: usize, at: usize) {
        while let Some((place, rest)) = self.places.split_first().filter(|(place, _)| **place < until) {
            let literals = self.to.literals.len() + (*place).min(at) - self.done;
            self.to.marks.push(Mark { literals, matches: self.to.matches.count() });
            self.places = rest;
        }
    }

    fn push(&mut self, at: usize, bytes: usize, distance: usize) {
        self.mark(at + bytes, at);
        let literals = &self.content[self.done..at];
        self.to.literals.extend_from_slice(literals);
        let literals = literals.len() as u32;
        self.to.matches.push(FarMatch { literals, bytes: bytes as u32, distance: distance as u32 });
        self.done = at + bytes;
        // The byte behind a match is another one.
        self.looked = self.done + 1;
        self.distance = distance;
    }

    /// Bytes that are equal from two places on.
    fn equal(&self, older: usize, newer: usize) -> usize {
        let (older, newer) = (&self.content[older..], &self.content[newer..]);
        let words = older.chunks_exact(8).zip(newer.chunks_exact(8));
        let whole = words.take_while(|(a, b)| word(a, 0) == word(b, 0)).count() * 8;
        whole + newer[whole..].iter().zip(&older[whole..]).take_while(|(a, b)| a == b).count()
    }

    /// Bytes before two places that are equal, and not in a match or literal yet.
    fn equal_before(&self, older: usize, newer: usize) -> usize {
        let newer = &self.content[self.done..newer];
        newer.iter().rev().zip(self.content[..older].iter().rev()).take_while(|(a, b)| a == b).count()
    }
}

/// The content of a block, from its matches and what is in none of them.
///
/// # Errors
/// If they do not make so many bytes.
pub(in crate::mzip) fn joined(body: &FarBody, literals: &[u8], content_bytes: u32) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::other("its matches do not make its content");
    let len = content_bytes as usize;
    let (mut content, mut literals) = (Vec::with_capacity(len), literals);
    for found in body.matches().map_err(io::Error::other)? {
        let (own, rest) = literals.split_at_checked(found.literals as usize).ok_or_else(wrong)?;
        literals = rest;
        let (bytes, distance) = (found.bytes as usize, found.distance as usize);
        if content.len() + own.len() + bytes > len {
            return Err(wrong());
        }
        content.extend_from_slice(own);
        let from = content.len().checked_sub(distance).filter(|_| distance > 0).ok_or_else(wrong)?;
        let mut left = bytes;
        while left > 0 {
            // Where the two overlap, what is there repeats, and each time more is there.
            let part = left.min(content.len() - from);
            content.extend_from_within(from..from + part);
            left -= part;
        }
    }
    if content.len() + literals.len() != len {
        return Err(wrong());
    }
    content.extend_from_slice(literals);
    Ok(content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn there_and_back(content: &[u8], shortest: usize) -> usize {
        let search = Search { shortest, chosen_log: if shortest % 2 == 0 { 3 } else { 4 } };
        let places: Vec<usize> = (0..=content.len()).step_by(content.len() / 7 + 1).collect();
        let Parted { literals, matches, marks } = parted(content, search, &places);
        let body = matches.encode(literals.len() as u32);
        let (read, _) = FarBody::decode(&body, content.len() as u32).unwrap();
        assert_eq!(marks, marks_of(&places, &read));
        assert_eq!(read.literal_bytes as usize, literals.len());
        assert!(joined(&read, &literals, content.len() as u32).unwrap() == content);
        if let Some(shorter) = literals.len().checked_sub(1) {
            assert!(joined(&read, &literals[..shorter], content.len() as u32).is_err());
        }
        literals.len() + body.len()
    }

    /// The same, of all places and one match after the other.
    fn marks_of(places: &[usize], read: &FarBody) -> Vec<Mark> {
        let found: Vec<FarMatch> = read.matches().unwrap().collect();
        let mark = |place: &usize| {
            let (mut at, mut mark) = (0, Mark { literals: 0, matches: 0 });
            for found in &found {
                let begin = at + found.literals as usize;
                if *place < begin + found.bytes as usize {
                    return Mark { literals: mark.literals + (*place).min(begin) - at, ..mark };
                }
                at = begin + found.bytes as usize;
                mark.literals += found.literals as usize;
                mark.matches += 1;
            }
            Mark { literals: mark.literals + place - at, ..mark }
        };
        places.iter().map(mark).collect()
    }

    proptest! {
        /// Parts of noise and of what came before, with changed bytes.
        #[test]
        fn contents_come_back(
            steps in proptest::collection::vec((any::<u16>(), 1usize..3000, 0u8..5, any::<u8>()), 0..60),
            shortest in 8usize..40,
        ) {
            let mut content: Vec<u8> = Vec::new();
            for (from, bytes, kind, byte) in steps {
                let from = usize::from(from) % content.len().max(1);
                match kind {
                    0 => content.extend(testing::noise(u64::from(byte), bytes)),
                    1 => content.extend(std::iter::repeat_n(byte, bytes)),
                    2 => content.extend((0..bytes).map(|n| (n % usize::from(byte).max(1)) as u8)),
                    _ => {
                        let end = (from + bytes).min(content.len());
                        content.extend_from_within(from..end);
                        if let Some(last) = content.len().checked_sub(1 + bytes / 2) {
                            content[last] ^= byte;
                        }
                    }
                }
            }
            there_and_back(&content, shortest);
        }
    }

    #[test]
    fn what_is_equal_and_far_away_is_found() {
        let noise = testing::noise(1, 1 << 20);
        assert!(there_and_back(&[&noise[..], &noise].concat(), 16) < noise.len() + 100);
        // A byte in 40 is another one.
        let mut changed = noise.clone();
        changed.iter_mut().step_by(40).for_each(|byte| *byte ^= 1);
        let bytes = there_and_back(&[&noise[..], &changed].concat(), 16);
        assert!(bytes < noise.len() * 11 / 10, "{bytes}");
        assert_eq!(parted(&noise, Search { shortest: 16, chosen_log: 3 }, &[]).matches.count(), 0);
        for content in [&b""[..], b"a", &[7; 20], &[0; 100_000]] {
            assert!(there_and_back(content, 16) < 200);
        }
    }

    #[test]
    fn what_makes_another_content_is_refused() {
        let mut matches = FarMatches::default();
        matches.push(FarMatch { literals: 4, bytes: 8, distance: 4 });
        let body = matches.encode(4);
        let (read, _) = FarBody::decode(&body, 12).unwrap();
        assert_eq!(joined(&read, b"abcd", 12).unwrap(), b"abcdabcdabcd");
        assert!(joined(&read, b"abc", 12).is_err());
        assert!(joined(&read, b"abcde", 12).is_err());
        let mut matches = FarMatches::default();
        matches.push(FarMatch { literals: 4, bytes: 8, distance: 5 });
        let body = matches.encode(4);
        assert!(joined(&FarBody::decode(&body, 12).unwrap().0, b"abcd", 12).is_err(), "before the begin");
    }
}
