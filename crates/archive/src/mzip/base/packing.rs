//! What blocks are stored as. Each is whole by itself: a gzip member, a bzip2 stream, a zstd frame, an xz stream, or the content
//! itself; and before compressors with a window shorter than a block, its far matches.

use super::codec::{compressed, decompressed, far_search, finds_all};
use super::error::{MzipError, Result};
use super::far::{joined, parted, Parted};
use super::progress::Progress;
use format::mzip::{Body, Compressor, FarBody};
use std::io;
use std::ops::Range;

/// Length of a part of a block that is compressed with and without its matches, to see which is shorter.
const SAMPLE_BYTES: usize = 1 << 20;
/// Blocks that are not longer are compressed both ways whole.
const SAMPLED_BYTES_LEAST: usize = 2 << 20;
/// What a block is stored as. Its body is in two parts, so that there is no copy of the second, long one.
pub(in crate::mzip) struct Packed {
    pub kind: Body,
    /// The head of matches, and matches; else empty.
    pub begin: Vec<u8>,
    pub rest: Vec<u8>,
}

impl Packed {
    /// Bytes of the body.
    pub fn len(&self) -> usize {
        self.begin.len() + self.rest.len()
    }
}

/// Compresses a block, if that makes it shorter.
///
/// # Errors
/// If the compressor fails, or if it is to stop: slow ones but gzip look at the progress now and then.
pub(in crate::mzip) fn packed(
    compressor: Compressor,
    level: u8,
    content: Vec<u8>,
    progress: &Progress,
) -> Result<Packed> {
    let whole = |kind, rest| Packed { kind, begin: Vec::new(), rest };
    if let Some(apart) = parted_if_it_pays(compressor, level, &content, progress)? {
        return packed_apart(compressor, level, content, apart, progress);
    }
    let packed = compressed(compressor, level, &content, progress)?;
    Ok(packed.map_or_else(|| whole(Body::Raw, content), |packed| whole(Body::Packed, packed)))
}

/// Takes the matches out of a block, if it becomes shorter by that. In what a compressor makes very short anyway, such as a log,
/// matches take more than they save. Parts of the block are compressed both ways to see.
fn parted_if_it_pays(
    compressor: Compressor,
    level: u8,
    content: &[u8],
    progress: &Progress,
) -> Result<Option<Apart>> {
    let Some(search) = far_search(compressor, level) else { return Ok(None) };
    if finds_all(compressor, level, content.len()) {
        return Ok(None);
    }
    let samples = samples(content.len());
    let places: Vec<usize> = samples.iter().flat_map(|sample| [sample.start, sample.end]).collect();
    let Parted { literals, matches, marks } = parted(content, search, &places);
    progress.check()?;
    if matches.count() == 0 {
        return Ok(None);
    }
    let begin = matches.encode(literals.len() as u32);
    let bytes_of_match = begin.len() as f64 / f64::from(matches.count());
    drop(matches);
    let bytes =
        |of: &[u8]| Ok(compressed(compressor, level, of, progress)?.map_or(of.len(), |packed| packed.len()));
    let (mut together, mut apart) = (0, 0.0);
    for (sample, marks) in samples.iter().zip(marks.chunks_exact(2)) {
        together += bytes(&content[sample.clone()])?;
        apart += bytes(&literals[marks[0].literals..marks[1].literals])? as f64;
        apart += f64::from(marks[1].matches - marks[0].matches) * bytes_of_match;
    }
    Ok((apart < together as f64).then_some(Apart { begin, literals }))
}

/// A block whose matches were taken out.
struct Apart {
    /// The head and the matches.
    begin: Vec<u8>,
    literals: Vec<u8>,
}

/// The parts of a block that are compressed both ways: an eighth of a long one.
fn samples(content_bytes: usize) -> Vec<Range<usize>> {
    let (first, bytes) = match content_bytes {
        ..=SAMPLED_BYTES_LEAST => (0, content_bytes.max(1)),
        _ => (SAMPLE_BYTES / 2, SAMPLE_BYTES),
    };
    let begins = (first..=content_bytes.saturating_sub(bytes)).step_by(8 * bytes);
    begins.map(|begin| begin..(begin + bytes).min(content_bytes)).collect()
}

fn packed_apart(
    compressor: Compressor,
    level: u8,
    content: Vec<u8>,
    Apart { begin, literals }: Apart,
    progress: &Progress,
) -> Result<Packed> {
    let content_bytes = content.len();
    drop(content);
    // Literals that would not become shorter are stored as they are.
    if let Some(rest) = compressed(compressor, level, &literals, progress)? {
        if begin.len() + rest.len() < content_bytes {
            return Ok(Packed { kind: Body::Far, begin, rest });
        }
    } else if begin.len() + literals.len() < content_bytes {
        return Ok(Packed { kind: Body::Far, begin, rest: literals });
    }
    // There is no content any more: it is made again.
    let matches = FarBody::decode(&begin, content_bytes as u32).map_err(io::Error::other);
    let content = matches.and_then(|(matches, _)| joined(&matches, &literals, content_bytes as u32));
    Ok(Packed { kind: Body::Raw, begin: Vec::new(), rest: content.map_err(MzipError::Write)? })
}

/// The content of a block, which has this length.
///
/// # Errors
/// If it cannot be decompressed, or has another length.
pub(in crate::mzip) fn unpacked(
    compressor: Compressor,
    kind: Body,
    body: Vec<u8>,
    content_bytes: u32,
) -> io::Result<Vec<u8>> {
    match kind {
        Body::Raw => Ok(body),
        Body::Packed => decompressed(compressor, &body, content_bytes),
        Body::Far => {
            let (matches, literals) = FarBody::decode(&body, content_bytes).map_err(io::Error::other)?;
            let literals = if literals.len() == matches.literal_bytes as usize {
                literals.to_vec()
            } else {
                decompressed(compressor, literals, matches.literal_bytes)?
            };
            drop(body);
            joined(&matches, &literals, content_bytes)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The second half is beyond the window of the quick levels.
    #[test]
    fn what_is_far_away_is_found() {
        let noise = testing::noise(4, 6 << 20);
        let twice = [&noise[..], &noise].concat();
        let ways = [
            (Compressor::Gzip, 1),
            (Compressor::Bzip2, 9),
            (Compressor::Zstd, 3),
            (Compressor::Zstd, 17),
            (Compressor::Xz, 1),
        ];
        for (compressor, level) in ways {
            let packed = packed(compressor, level, twice.clone(), &Progress::default()).unwrap();
            assert_eq!(packed.kind, Body::Far);
            assert!(packed.len() < noise.len() * 101 / 100, "{compressor:?}: {} bytes", packed.len());
            let body = [packed.begin, packed.rest].concat();
            assert!(unpacked(compressor, Body::Far, body, twice.len() as u32).unwrap() == twice);
        }
        // A match of the noise saves less than the head takes.
        let mut little = noise[..5000].to_vec();
        little.extend_from_within(..21);
        let packed = packed(Compressor::Gzip, 6, little.clone(), &Progress::default()).unwrap();
        assert!(packed.kind == Body::Raw && packed.begin.is_empty() && packed.rest == little);
    }

    /// Lines of a log repeat what is at hand: matches take more than the compressor does.
    #[test]
    fn what_a_compressor_makes_short_itself_stays_together() {
        let mut random = 7u64;
        let mut line = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (a, b, c) = (random >> 60, random >> 50 & 255, random >> 40 & 1023);
            format!(
                "10.0.{a}.{b} - - [10/Oct/2026:13:55:{:02}] \"GET /page/{c} HTTP/1.1\" 200 {}\n",
                n / 99 % 60,
                c * 7
            )
        };
        let log: String = (0..60_000).map(&mut line).collect();
        for (compressor, level) in
            [(Compressor::Gzip, 10), (Compressor::Bzip2, 9), (Compressor::Zstd, 17), (Compressor::Xz, 6)]
        {
            let alone = compressed(compressor, level, log.as_bytes(), &Progress::default()).unwrap().unwrap();
            let packed = packed(compressor, level, log.clone().into_bytes(), &Progress::default()).unwrap();
            assert!(packed.len() <= alone.len(), "{compressor:?}: {} of {}", packed.len(), alone.len());
        }
    }
}
