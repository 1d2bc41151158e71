//! Decompresses what can be decompressed of a damaged zstd frame (RFC 8878).
//!
//! A frame is a chain of blocks of at most 128 KiB. A decoder stops at the first block that it cannot decode. But the
//! chain tells where the next block begins, so the damaged one is replaced by zeros of its length, and decoding goes on
//! behind it. What later blocks copy from the damaged one is wrong then, and so may be the first matches after it, which
//! repeat earlier distances. The fingerprint of each chunk tells what is right.

use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// No block decompresses to more.
const BLOCK_BYTES_MAX: usize = 128 << 10;
/// Bytes before a block: whether it is the last, its kind, its length.
const BLOCK_HEADER_BYTES: usize = 3;
/// Blocks that are replaced in one frame, at most. Each costs one more run of the decoder.
const REPLACED_MAX: usize = 32;

/// A header of our own: the original one may be damaged. No content size, no dictionary, no checksum; a window of 32 MiB,
/// more than any group has.
const HEADER: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 15 << 3];
/// Lengths that the header of a frame with a content size can have; the most likely ones for a group first.
const HEADER_LENGTHS: [usize; 8] = [9, 10, 7, 8, 6, 5, 13, 14];

/// A run of the decoder.
struct Run {
    /// What it made.
    out: Vec<u8>,
    /// The block at which it stopped.
    stopped_at: Option<usize>,
}

/// A block of the chain.
struct Block<'a> {
    /// With its header.
    bytes: &'a [u8],
    /// The length of the zeros in its place.
    replaced: Option<usize>,
    /// How long that may be.
    longest: usize,
}

/// Decompresses a frame that must have `raw_len` bytes. What is lost reads as zeros, or is wrong.
pub(super) fn salvage(frame: &[u8], raw_len: usize) -> Vec<u8> {
    let mut blocks = chain(frame, raw_len);
    let mut out = decode_all(&mut blocks, raw_len);
    let gap = blocks.iter().position(|b| b.bytes.is_empty());
    if let Some(gap) = gap.filter(|gap| out.len() != raw_len && gap + 1 < blocks.len()) {
        // What looks like the first block behind a gap may be one by chance, with a wrong length.
        blocks.remove(gap + 1);
        out = decode_all(&mut blocks, raw_len);
    }
    out.resize(raw_len, 0);
    out
}

/// Decodes blocks. Those that cannot be decoded are replaced.
fn decode_all(blocks: &mut [Block<'_>], raw_len: usize) -> Vec<u8> {
    let out = loop {
        let run = decode(blocks, raw_len);
        let replaced = blocks.iter().filter(|b| b.replaced.is_some()).count();
        match run.stopped_at {
            Some(at) if replaced < REPLACED_MAX && blocks[at].replaced.is_none() => {
                blocks[at].replaced = Some(BLOCK_BYTES_MAX);
            }
            _ => break run.out,
        }
    };
    // How long a replaced block was, the length of the whole tells.
    if out.len() != raw_len && fit(blocks, out.len(), raw_len) {
        return decode(blocks, raw_len).out;
    }
    out
}

/// The blocks of a frame, and one to be replaced for each gap between them.
fn chain(frame: &[u8], raw_len: usize) -> Vec<Block<'_>> {
    let mut longest = Vec::new();
    for from in HEADER_LENGTHS {
        let (blocks, is_whole) = chain_from(frame.get(from..).unwrap_or_default());
        if is_whole {
            return blocks;
        }
        if blocks.len() > longest.len() {
            longest = blocks;
        }
    }
    // The last one may have ended at a wrong place.
    longest.pop();
    let followed = longest.iter().map(|b| b.bytes.len()).sum::<usize>();
    let gap = Block { bytes: &[], replaced: Some(BLOCK_BYTES_MAX.min(raw_len)), longest: raw_len };
    longest.push(gap);
    // A chain of one block may be there by chance.
    let behind = (followed..frame.len()).map(|from| chain_from(&frame[from..]));
    let whole = behind.filter(|(blocks, is_whole)| *is_whole && blocks.len() > 1);
    longest.extend(whole.map(|(blocks, _)| blocks).max_by_key(Vec::len).unwrap_or_default());
    longest
}

/// The same behind the frame's header, and whether the last block ends where the frame does.
fn chain_from(mut rest: &[u8]) -> (Vec<Block<'_>>, bool) {
    let mut blocks = Vec::new();
    while let Some(&[a, b, c]) = rest.first_chunk::<BLOCK_HEADER_BYTES>() {
        let header = u32::from_le_bytes([a, b, c, 0]);
        let (is_last, kind, size) = (header & 1 == 1, (header >> 1) & 3, (header >> 3) as usize);
        let stored = if kind == 1 { 1 } else { size };
        let len = BLOCK_HEADER_BYTES + stored;
        if kind == 3 || size > BLOCK_BYTES_MAX || len > rest.len() {
            break;
        }
        let (bytes, behind) = rest.split_at(len);
        blocks.push(Block { bytes, replaced: None, longest: BLOCK_BYTES_MAX });
        rest = behind;
        if is_last {
            // A checksum may follow.
            return (blocks, matches!(rest.len(), 0 | 4));
        }
    }
    (blocks, false)
}

/// Decodes blocks until one cannot be decoded, or they make far more than they should.
fn decode(blocks: &[Block<'_>], raw_len: usize) -> Run {
    let mut out = Vec::with_capacity(raw_len + BLOCK_BYTES_MAX);
    let mut context = DCtx::create();
    if feed(&mut context, &HEADER, &mut out).is_err() {
        return Run { out, stopped_at: None };
    }
    for (at, block) in blocks.iter().enumerate() {
        let before = out.len();
        let zeros = block.replaced.map(zeros);
        let bytes = zeros.as_ref().map_or(block.bytes, |zeros| zeros);
        if feed(&mut context, bytes, &mut out).is_err() || out.len() > 2 * raw_len + BLOCK_BYTES_MAX {
            out.truncate(before);
            return Run { out, stopped_at: Some(at) };
        }
    }
    Run { out, stopped_at: None }
}

/// Blocks of zeros. None of them is the last one: the decoder would end there.
fn zeros(mut len: usize) -> Vec<u8> {
    let mut blocks = Vec::new();
    while len > 0 {
        let of_block = len.min(BLOCK_BYTES_MAX);
        blocks.extend_from_slice(&((1u32 << 1) | ((of_block as u32) << 3)).to_le_bytes());
        len -= of_block;
    }
    blocks
}

/// Gives the decoder some bytes, and takes all that it makes of them.
fn feed(context: &mut DCtx<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ()> {
    let mut input = InBuffer::around(bytes);
    let mut made = vec![0; BLOCK_BYTES_MAX];
    loop {
        let mut output = OutBuffer::around(&mut made[..]);
        context.decompress_stream(&mut output, &mut input).map_err(drop)?;
        let n = output.pos();
        out.extend_from_slice(&made[..n]);
        if input.pos() == bytes.len() && n < BLOCK_BYTES_MAX {
            return Ok(());
        }
    }
}

/// Makes the replaced blocks so long that the whole has its length. Returns whether it could.
fn fit(blocks: &mut [Block<'_>], made: usize, raw_len: usize) -> bool {
    let mut is_fitted = false;
    let mut made = made;
    for block in blocks.iter_mut().rev() {
        let Some(len) = block.replaced else { continue };
        let wanted = (len + raw_len).saturating_sub(made).clamp(1, block.longest.max(1));
        made = made - len + wanted;
        is_fitted |= wanted != len;
        block.replaced = Some(wanted);
    }
    is_fitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Text-like bytes: words in random order, with some noise between.
    fn sample(bytes: usize, rng: &mut StdRng) -> Vec<u8> {
        let words: Vec<Vec<u8>> = (0..500)
            .map(|_| (0..rng.random_range(2..12)).map(|_| rng.random_range(b'a'..=b'z')).collect())
            .collect();
        let mut out = Vec::with_capacity(bytes);
        while out.len() < bytes {
            if rng.random_range(0..40) == 0 {
                out.extend((0..rng.random_range(1..600)).map(|_| rng.random::<u8>()));
            }
            out.extend_from_slice(&words[rng.random_range(0..words.len())]);
        }
        out.truncate(bytes);
        out
    }

    fn whole_chunks(a: &[u8], b: &[u8]) -> usize {
        a.chunks(4096).zip(b.chunks(4096)).filter(|(a, b)| a == b).count()
    }

    #[test]
    fn most_of_a_damaged_frame_comes_back() {
        let mut rng = StdRng::seed_from_u64(7);
        let raw = sample(4 << 20, &mut rng);
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
        zstd_safe::compress(&mut frame, &raw, 3).unwrap();
        assert_eq!(salvage(&frame, raw.len()), raw, "a frame that is whole");
        let all = raw.len() / 4096;
        let mut shares = Vec::new();
        for _ in 0..60 {
            let mut damaged = frame.clone();
            let at = rng.random_range(0..damaged.len());
            damaged[at] ^= 1 << rng.random_range(0..8);
            let back = salvage(&damaged, raw.len());
            assert_eq!(back.len(), raw.len());
            shares.push(whole_chunks(&back, &raw) * 100 / all);
        }
        shares.sort_unstable();
        println!("chunks that come back after one flipped bit, in percent: {shares:?}");
        assert!(shares[shares.len() / 2] >= 50, "{shares:?}");
    }

    #[test]
    fn what_is_behind_a_lost_sector_comes_back() {
        let mut rng = StdRng::seed_from_u64(8);
        let raw = sample(4 << 20, &mut rng);
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
        zstd_safe::compress(&mut frame, &raw, 3).unwrap();
        let at = frame.len() / 3;
        frame[at..at + 512].fill(0);
        let back = salvage(&frame, raw.len());
        let before = whole_chunks(&back[..raw.len() / 4], &raw[..raw.len() / 4]);
        assert_eq!(before, raw.len() / 4 / 4096, "all before it");
    }

    /// Noise is stored in blocks as it is: nothing is lost but the blocks that were hit, whatever was hit of them.
    #[test]
    fn damaged_headers_of_blocks_are_passed_over() {
        let mut rng = StdRng::seed_from_u64(10);
        let mut raw = sample(1 << 20, &mut rng);
        raw.extend((0..3 << 20).map(|_| rng.random::<u8>()));
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
        zstd_safe::compress(&mut frame, &raw, 3).unwrap();
        let first = HEADER_LENGTHS.into_iter().find(|from| chain_from(&frame[*from..]).1).unwrap();
        let (blocks, _) = chain_from(&frame[first..]);
        let mut starts = vec![first];
        starts.extend(blocks.iter().scan(first, |at, b| {
            *at += b.bytes.len();
            Some(*at)
        }));
        starts.pop();
        let all = raw.len() / 4096;
        for at in starts.into_iter().step_by(9) {
            let mut damaged = frame.clone();
            damaged[at..(at + 20_000).min(frame.len())].fill(0x55);
            let back = salvage(&damaged, raw.len());
            let lost = all - whole_chunks(&back, &raw);
            // Of the part that is text, later blocks copy from the one that is lost.
            assert!(lost <= 2 * BLOCK_BYTES_MAX / 4096 || at < frame.len() / 3, "{lost} chunks lost at {at}");
        }
    }

    #[test]
    fn garbage_does_no_harm() {
        let mut rng = StdRng::seed_from_u64(9);
        for _ in 0..300 {
            let garbage: Vec<u8> = (0..rng.random_range(0..4000)).map(|_| rng.random()).collect();
            assert_eq!(salvage(&garbage, 10_000).len(), 10_000);
        }
        // Many short blocks that announce as much as a block may have.
        let mut frame = HEADER.to_vec();
        frame.extend([0; 3]);
        for _ in 0..1000 {
            frame.extend([0x02, 0x00, 0x10, 7]);
        }
        assert_eq!(salvage(&frame, 1 << 20).len(), 1 << 20);
    }
}
