//! The compressors of blocks: what they are called, what they take, and how they are called.

use super::error::{MzipError, Result};
use super::far::{self, Search};
use super::progress::Progress;
use format::mzip::{Compressor, BLOCK_BYTES_MAX};
use libdeflater::{CompressionLvl, Decompressor};
use liblzma::stream::{Check, Filters, LzmaOptions, Stream};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::{RangeFrom, RangeInclusive};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::CParameter;

/// What xz may take to decompress a block: a little more than its level 9 needs.
const XZ_MEMORY: u64 = 80 << 20;
/// Cores that a short file keeps busy.
const BLOCKS_WANTED: u64 = 8;
/// Blocks are not made shorter than this, however little memory there is.
const BLOCK_BYTES_LEAST: u64 = 256 << 10;
/// Nor shorter than this, but for a lack of memory.
const BLOCK_BYTES_SHORT: u64 = 16 * MIB;
/// What is not compressed is cut for ranges alone.
const RAW_BLOCK_BYTES: u64 = 4 * MIB;
/// Bytes that a slow compressor is given at a time.
const SLICE_BYTES: usize = 256 << 10;
/// Up to this level zstd needs no slices: a block takes a fraction of a second.
const ZSTD_QUICK: u8 = 9;
/// Quicker levels of zstd would take several times as long if far matches were looked for.
const ZSTD_FAR: RangeFrom<u8> = 3..;
/// From this level on zstd finds all that repeats within its window.
const ZSTD_SLOW: u8 = 17;
/// Level 0 of xz would take several times as long; the windows of 8 and 9 reach over half a block or a whole one.
const XZ_FAR: RangeInclusive<u8> = 1..=7;
/// The shortest dictionary that xz has.
const XZ_DICTIONARY_MIN: usize = 4096;
const MIB: u64 = 1 << 20;

/// Levels of each compressor, and the one that is taken if none is asked for.
const LEVELS: [(Compressor, RangeInclusive<u8>, u8); 5] = [
    (Compressor::None, 0..=0, 0),
    (Compressor::Gzip, 1..=12, 10),
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
        Compressor::None => 0,
        Compressor::Gzip => 32 << 10,
        // It sorts so many bytes at once, and keeps 19 back.
        Compressor::Bzip2 => u64::from(level) * 100_000 - 19,
        Compressor::Zstd => match level {
            0..=2 => MIB,
            3..=8 => 2 * MIB,
            9..=16 => 4 * MIB,
            _ => 8 * MIB,
        },
        Compressor::Xz => XZ[usize::from(level).min(9)],
    }
}

/// How far matches are looked for before the compressor sees a block, if they are. A match at a new distance takes about four bytes.
/// The better a compressor is, and the longer its window, the longer a match must be to save anything. One place in eight finds a little more than
/// one in sixteen, and takes half as long again, which beside slow compressors is little.
pub(in crate::mzip) fn far_search(compressor: Compressor, level: u8) -> Option<Search> {
    let (shortest, chosen_log) = match compressor {
        Compressor::Gzip => (20, 3),
        Compressor::Bzip2 => (40, 3),
        Compressor::Zstd if ZSTD_FAR.contains(&level) => match level {
            ..=5 => (24, 4),
            6..ZSTD_SLOW => (40, 4),
            _ => (128, 3),
        },
        Compressor::Xz if XZ_FAR.contains(&level) => (if level < 3 { 64 } else { 128 }, 3),
        Compressor::None | Compressor::Zstd | Compressor::Xz => return None,
    };
    Some(Search { shortest, chosen_log })
}

/// Whether a compressor finds by itself what so many bytes repeat.
pub(in crate::mzip) fn finds_all(compressor: Compressor, level: u8, bytes: usize) -> bool {
    let is_slow = match compressor {
        Compressor::Zstd => level >= ZSTD_SLOW,
        Compressor::Xz => true,
        Compressor::None | Compressor::Gzip | Compressor::Bzip2 => false,
    };
    is_slow && bytes as u64 <= window(compressor, level)
}

/// Whether blocks may have far matches.
pub(in crate::mzip) fn has_far_matches(compressor: Compressor, level: u8) -> bool {
    far_search(compressor, level).is_some()
}

/// Content of a block. A compressor begins anew with each, so that cores share the work and a range needs few of them. What that
/// costs is in proportion to the window: blocks are 32 windows long, or as long as a block may be where far matches are looked for,
/// and shorter for files that would not fill all cores, but not than four windows. Where the memory does not suffice for one that is
/// compressed, it is shorter, and so is the window.
pub(in crate::mzip) fn block_bytes(compressor: Compressor, level: u8, stored_bytes: u64, memory: u64) -> u32 {
    let longest = u64::from(BLOCK_BYTES_MAX);
    let windows = |n: u64| (n * window(compressor, level)).clamp(BLOCK_BYTES_SHORT, longest);
    let (least, most) = match compressor {
        Compressor::None => (RAW_BLOCK_BYTES, RAW_BLOCK_BYTES),
        _ if has_far_matches(compressor, level) => (windows(4), longest),
        _ => (windows(4), windows(32)),
    };
    let mut bytes = stored_bytes.div_ceil(BLOCKS_WANTED).clamp(least, most);
    while bytes > BLOCK_BYTES_LEAST && working_bytes(compressor, level, bytes) > memory {
        bytes = (bytes / 2).max(BLOCK_BYTES_LEAST);
    }
    bytes as u32
}

/// Bytes that a thread takes to compress a block of so many, with its content and the result.
pub(in crate::mzip) fn working_bytes(compressor: Compressor, level: u8, block_bytes: u64) -> u64 {
    let window = window(compressor, level).min(block_bytes);
    let tables = match compressor {
        Compressor::None => 0,
        // From level 10 on it keeps all matches of a part of 300,000 bytes.
        Compressor::Gzip => 10 * MIB,
        Compressor::Bzip2 => 8 * MIB,
        Compressor::Zstd => {
            // Hash tables and chains, which are not longer than the window allows. Slices are kept in the window; a block that is
            // compressed at once needs none.
            let window = window.next_power_of_two();
            let slices = if level > ZSTD_QUICK { window } else { 0 };
            (zstd_tables(level) * MIB).min(16 * window) + slices + 2 * MIB
        }
        Compressor::Xz => window * 23 / 2 + 4 * MIB,
    };
    // First the content, and its literals with its matches; then these, and the result.
    let far = far_search(compressor, level).map_or(0, |search| far::table_bytes(search, block_bytes));
    2 * block_bytes + tables.max(far)
}

/// MiB of the hash tables and chains of a level of zstd.
fn zstd_tables(level: u8) -> u64 {
    match level {
        0..=4 => 4,
        5..=8 => 8,
        9 => 14,
        10..=11 => 28,
        12..=16 => 68,
        17..=18 => 54,
        _ => 84,
    }
}

/// Bytes that a thread takes to decompress a block of so many, with its bytes and its content.
pub(in crate::mzip) fn restoring_bytes(compressor: Compressor, block_bytes: u64) -> u64 {
    let tables = match compressor {
        Compressor::None => 0,
        Compressor::Gzip | Compressor::Zstd => MIB,
        Compressor::Bzip2 => 4 * MIB,
        // Of its dictionary it touches what the content fills.
        Compressor::Xz => block_bytes + MIB,
    };
    // With far matches, first the bytes, and literals with matches, which are not more than the content; then these, and the content.
    tables + 2 * block_bytes
}

/// Compresses bytes; `None` if they would not be shorter.
pub(in crate::mzip) fn compressed(
    compressor: Compressor,
    level: u8,
    content: &[u8],
    progress: &Progress,
) -> Result<Option<Vec<u8>>> {
    let to = Vec::with_capacity(content.len() / 2);
    let body = match compressor {
        Compressor::None => return Ok(None),
        Compressor::Gzip => {
            progress.check()?;
            gzip(level, content).map_err(MzipError::Write)?
        }
        Compressor::Bzip2 => {
            let mut to = bzip2::write::BzEncoder::new(to, bzip2::Compression::new(level.into()));
            sliced(&mut to, content, progress)?;
            to.finish().map_err(MzipError::Write)?
        }
        Compressor::Zstd => zstd(level, content, progress)?,
        Compressor::Xz => {
            let mut to = liblzma::write::XzEncoder::new_stream(
                to,
                xz(level, content.len()).map_err(MzipError::Write)?,
            );
            sliced(&mut to, content, progress)?;
            to.finish().map_err(MzipError::Write)?
        }
    };
    Ok(Some(body).filter(|body| body.len() < content.len()))
}

fn sliced(to: &mut impl Write, content: &[u8], progress: &Progress) -> Result<()> {
    for slice in content.chunks(SLICE_BYTES) {
        progress.check()?;
        to.write_all(slice).map_err(MzipError::Write)?;
    }
    Ok(())
}

/// A gzip member.
fn gzip(level: u8, content: &[u8]) -> io::Result<Vec<u8>> {
    let level = CompressionLvl::new(level.into()).map_err(|_| ErrorKind::InvalidInput)?;
    let mut context = libdeflater::Compressor::new(level);
    let mut to = vec![0; context.gzip_compress_bound(content.len())];
    let len = context.gzip_compress(content, &mut to).map_err(io::Error::other)?;
    to.truncate(len);
    Ok(to)
}

/// An encoder of xz, whose dictionary is not longer than the content.
fn xz(level: u8, content_bytes: usize) -> io::Result<Stream> {
    let wanted = window(Compressor::Xz, level).min(content_bytes.max(XZ_DICTIONARY_MIN) as u64);
    let mut options = LzmaOptions::new_preset(level.into())?;
    options.dict_size(wanted as u32);
    let mut filters = Filters::new();
    filters.lzma2(&options);
    Ok(Stream::new_stream_encoder(&filters, Check::Crc32)?)
}

/// A zstd frame. Slow levels are fed in slices.
fn zstd(level: u8, content: &[u8], progress: &Progress) -> Result<Vec<u8>> {
    let failed = |code| MzipError::Write(of_zstd(code));
    let mut to = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
    let mut context = zstd_context(level, content.len()).map_err(failed)?;
    if level <= ZSTD_QUICK {
        context.compress2(&mut to, content).map_err(failed)?;
        return Ok(to);
    }
    let mut output = zstd_safe::OutBuffer::around(&mut to);
    let mut slices = content.chunks(SLICE_BYTES).peekable();
    loop {
        progress.check()?;
        let slice = slices.next().unwrap_or_default();
        let is_last = slices.peek().is_none();
        let mut input = zstd_safe::InBuffer::around(slice);
        let end = if is_last { ZSTD_EndDirective::ZSTD_e_end } else { ZSTD_EndDirective::ZSTD_e_continue };
        // The output has room for all.
        while context.compress_stream2(&mut output, &mut input, end).map_err(failed)? > 0 && is_last
            || input.pos() < slice.len()
        {}
        if is_last {
            return Ok(to);
        }
    }
}

/// What compresses a block of this length.
fn zstd_context(level: u8, content_bytes: usize) -> std::result::Result<zstd_safe::CCtx<'static>, usize> {
    let mut context = zstd_safe::CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(level.into()))?;
    context.set_pledged_src_size(Some(content_bytes as u64))?;
    Ok(context)
}

/// Decompresses what has this length.
pub(in crate::mzip) fn decompressed(
    compressor: Compressor,
    body: &[u8],
    content_bytes: u32,
) -> io::Result<Vec<u8>> {
    let len = content_bytes as usize;
    match compressor {
        Compressor::None => Err(io::Error::other("blocks of this archive are not compressed")),
        Compressor::Gzip => {
            let mut to = vec![0; len];
            let got = Decompressor::new().gzip_decompress(body, &mut to).map_err(io::Error::other)?;
            if got != len {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Ok(to)
        }
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
        for (compressor, levels, _) in LEVELS.into_iter().filter(|(c, ..)| *c != Compressor::None) {
            for level in levels {
                // The largest take seconds where they are not optimised.
                if compressor == Compressor::Xz && level > 6 {
                    continue;
                }
                let body = compressed(compressor, level, &content, &Progress::default()).unwrap().unwrap();
                let len = content.len() as u32;
                assert!(decompressed(compressor, &body, len).unwrap() == content, "{compressor:?} {level}");
                for wrong in [len - 1, len + 1] {
                    assert!(decompressed(compressor, &body, wrong).is_err(), "{compressor:?} {level}");
                }
                assert!(decompressed(compressor, &body[..body.len() / 2], len).is_err());
            }
            assert!(decompressed(compressor, b"none", 100).is_err());
            let noise = testing::noise(3, 5000);
            assert!(compressed(compressor, 6, &noise, &Progress::default()).unwrap().is_none());
        }
    }

    /// What zlib wrote, before there was libdeflate.
    #[test]
    fn members_of_others_are_read() {
        let content: Vec<u8> = (0..40_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        member.write_all(&content).unwrap();
        let member = member.finish().unwrap();
        assert!(decompressed(Compressor::Gzip, &member, content.len() as u32).unwrap() == content);
    }

    /// What zstd says that it takes.
    #[test]
    fn memory_is_counted() {
        let content = vec![0; 64 << 20];
        for level in 1..=19 {
            for bytes in [1usize << 20, 4 << 20, 32 << 20, 64 << 20] {
                let mut context = zstd_context(level, bytes).unwrap();
                if level <= ZSTD_QUICK {
                    let mut to = Vec::with_capacity(zstd_safe::compress_bound(bytes));
                    context.compress2(&mut to, &content[..bytes]).unwrap();
                } else {
                    let mut to = Vec::with_capacity(10);
                    let mut to = zstd_safe::OutBuffer::around(&mut to);
                    let mut from = zstd_safe::InBuffer::around(&content[..10]);
                    context.compress_stream2(&mut to, &mut from, ZSTD_EndDirective::ZSTD_e_continue).unwrap();
                }
                let counted = working_bytes(Compressor::Zstd, level, bytes as u64) - 2 * bytes as u64;
                assert!(
                    context.sizeof() as u64 <= counted,
                    "{level}, {bytes}: {} of {counted}",
                    context.sizeof()
                );
            }
        }
    }

    #[test]
    fn blocks_fill_cores_and_windows() {
        for (compressor, levels, _) in LEVELS {
            for level in levels {
                for stored in [0, 1, 10 << 20, 100 << 20, 1 << 40] {
                    let of = |memory| u64::from(block_bytes(compressor, level, stored, memory));
                    let bytes = of(u64::MAX);
                    assert!(bytes >= window(compressor, level).min(64 << 20));
                    assert!(
                        bytes <= u64::from(BLOCK_BYTES_MAX) && bytes >= window(compressor, level).min(MIB)
                    );
                    for memory in [16 << 20, 48 << 20, 400 << 20] {
                        let shorter = of(memory);
                        assert!(shorter <= bytes && working_bytes(compressor, level, shorter) <= memory);
                    }
                }
            }
        }
    }
}
