//! The compressors of blocks. Each block is whole by itself: a gzip member, a bzip2 stream, a zstd frame, an xz stream.

use format::mzip::{Compressor, BLOCK_BYTES_MAX};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::RangeInclusive;

/// What xz may take to decompress a block: a little more than its level 9 needs.
const XZ_MEMORY: u64 = 80 << 20;
/// Cores that a short file keeps busy.
const BLOCKS_WANTED: u64 = 8;
const MIB: u64 = 1 << 20;

/// Levels of each compressor, and the one that is taken if none is asked for.
const LEVELS: [(Compressor, RangeInclusive<u8>, u8); 4] = [
    (Compressor::Gzip, 1..=9, 6),
    (Compressor::Bzip2, 1..=9, 9),
    (Compressor::Zstd, 1..=19, 3),
    (Compressor::Xz, 0..=9, 6),
];

/// The levels of a compressor, and the one that is taken if none is asked for.
pub fn levels(compressor: Compressor) -> (RangeInclusive<u8>, u8) {
    let found = LEVELS.iter().find(|(other, ..)| *other == compressor);
    found.map_or((1..=9, 6), |(_, levels, usual)| (levels.clone(), *usual))
}

/// Whether a compressor has this level.
pub fn level_is_valid(compressor: Compressor, level: u8) -> bool {
    levels(compressor).0.contains(&level)
}

/// Within how many bytes a compressor finds what is equal.
fn window(compressor: Compressor, level: u8) -> u64 {
    const XZ: [u64; 10] =
        [256 << 10, MIB, 2 * MIB, 4 * MIB, 4 * MIB, 8 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB];
    match compressor {
        Compressor::Gzip => 32 << 10,
        Compressor::Bzip2 => u64::from(level) * 100_000,
        Compressor::Zstd => match level {
            0..=2 => MIB,
            3..=8 => 2 * MIB,
            9..=16 => 4 * MIB,
            _ => 8 * MIB,
        },
        Compressor::Xz => XZ[usize::from(level).min(9)],
    }
}

/// Content of a block. A compressor begins anew with each, so that cores share the work and a range needs few of them: four
/// windows long, so that little is lost, and shorter for files that would not fill all cores, but not than a window.
pub(in crate::mzip) fn block_bytes(compressor: Compressor, level: u8, stored_bytes: u64) -> u32 {
    let window = window(compressor, level);
    let most = (4 * window).clamp(4 * MIB, u64::from(BLOCK_BYTES_MAX));
    let least = window.max(MIB).min(most);
    stored_bytes.div_ceil(BLOCKS_WANTED).clamp(least, most) as u32
}

/// Bytes that a thread takes to compress a block, beside its content and the result.
pub(in crate::mzip) fn work_bytes(compressor: Compressor, level: u8) -> u64 {
    match compressor {
        Compressor::Gzip => MIB,
        Compressor::Bzip2 => 8 * MIB,
        Compressor::Zstd => 10 * window(compressor, level),
        Compressor::Xz => 12 * window(compressor, level) + 4 * MIB,
    }
}

/// Compresses a block; `None` if it would not be shorter.
pub(in crate::mzip) fn compressed(
    compressor: Compressor,
    level: u8,
    content: &[u8],
) -> io::Result<Option<Vec<u8>>> {
    let to = Vec::with_capacity(content.len() / 2);
    let body = match compressor {
        Compressor::Gzip => {
            let mut to = flate2::write::GzEncoder::new(to, flate2::Compression::new(level.into()));
            to.write_all(content)?;
            to.finish()?
        }
        Compressor::Bzip2 => {
            let mut to = bzip2::write::BzEncoder::new(to, bzip2::Compression::new(level.into()));
            to.write_all(content)?;
            to.finish()?
        }
        Compressor::Zstd => {
            let mut to = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
            zstd_safe::compress(&mut to, content, level.into()).map_err(of_zstd)?;
            to
        }
        Compressor::Xz => {
            let stream =
                liblzma::stream::Stream::new_easy_encoder(level.into(), liblzma::stream::Check::Crc32);
            let mut to = liblzma::write::XzEncoder::new_stream(to, stream?);
            to.write_all(content)?;
            to.finish()?
        }
    };
    Ok(Some(body).filter(|body| body.len() < content.len()))
}

/// Decompresses a block whose content has this length.
pub(in crate::mzip) fn decompressed(
    compressor: Compressor,
    body: &[u8],
    content_bytes: u32,
) -> io::Result<Vec<u8>> {
    let len = content_bytes as usize;
    match compressor {
        Compressor::Gzip => read_whole(flate2::read::GzDecoder::new(body), len),
        Compressor::Bzip2 => read_whole(bzip2::read::BzDecoder::new(body), len),
        Compressor::Zstd => {
            let mut to = Vec::with_capacity(len);
            zstd_safe::decompress(&mut to, body).map_err(of_zstd)?;
            if to.len() != len {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Ok(to)
        }
        Compressor::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, 0)?;
            read_whole(liblzma::read::XzDecoder::new_stream(body, stream), len)
        }
    }
}

/// Reads so many bytes, after which nothing may follow.
fn read_whole(mut from: impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; len];
    from.read_exact(&mut content)?;
    if from.read(&mut [0])? != 0 {
        return Err(io::Error::other("it has more content than its head says"));
    }
    Ok(content)
}

fn of_zstd(code: usize) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_and_wrong_ones_are_refused() {
        let content: Vec<u8> = (0..40_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for (compressor, levels, _) in LEVELS {
            for level in levels {
                // The largest take seconds where they are not optimised.
                if compressor == Compressor::Xz && level > 6 {
                    continue;
                }
                let body = compressed(compressor, level, &content).unwrap().unwrap();
                let len = content.len() as u32;
                assert!(decompressed(compressor, &body, len).unwrap() == content, "{compressor:?} {level}");
                for wrong in [len - 1, len + 1] {
                    assert!(decompressed(compressor, &body, wrong).is_err(), "{compressor:?} {level}");
                }
                assert!(decompressed(compressor, &body[..body.len() / 2], len).is_err());
            }
            assert!(decompressed(compressor, b"none", 100).is_err());
            let noise = testing::noise(3, 5000);
            assert!(compressed(compressor, 6, &noise).unwrap().is_none());
        }
    }

    #[test]
    fn blocks_fill_cores_and_windows() {
        for (compressor, levels, _) in LEVELS {
            for level in levels {
                for stored in [0, 1, 10 << 20, 100 << 20, 1 << 40] {
                    let bytes = u64::from(block_bytes(compressor, level, stored));
                    assert!(bytes >= window(compressor, level).min(64 << 20));
                    assert!(bytes <= u64::from(BLOCK_BYTES_MAX) && bytes >= MIB);
                }
            }
        }
    }
}
