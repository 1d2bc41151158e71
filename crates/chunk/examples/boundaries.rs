//! Compares the content-defined boundaries with those of a rolling Gear hash of the same minimum,
//! average, maximum and turn: speed, mean length, what deduplication leaves, what an insertion
//! costs.
//!
//! `cargo run --release -p chunk --example boundaries FILE...`

use std::collections::HashSet;
use std::time::Instant;

use chunk::{cut, ChunkSpec, Fingerprint, Piece};

const SEGMENT_BYTES: usize = 4 << 20;
const AVERAGES: [u32; 2] = [4096, 8192];
/// Distance between insertions.
const EDIT_BYTES: usize = 256 << 10;

fn main() {
    let mut data = Vec::new();
    for path in std::env::args().skip(1) {
        match std::fs::read(&path) {
            Ok(bytes) => data.extend(bytes),
            Err(why) => eprintln!("cannot read {path}: {why}"),
        }
    }
    let table = gear_table();
    for average in AVERAGES {
        let spec = ChunkSpec::content_defined(average);
        compare(&format!("{spec}"), &data, &|segment, out| cut(segment, spec, out));
        compare(&format!("gear:{}k", average / 1024), &data, &|segment, out| {
            gear(segment, average as usize, &table, out);
        });
    }
}

type Cut<'a> = &'a dyn Fn(&[u8], &mut Vec<Piece>);

fn compare(name: &str, data: &[u8], cut: Cut) {
    let mut pieces = Vec::new();
    let start = Instant::now();
    for segment in data.chunks(SEGMENT_BYTES) {
        cut(segment, &mut pieces);
    }
    let speed = data.len() as f64 / start.elapsed().as_secs_f64() / 1e9;

    let mut known = HashSet::new();
    let chunks = data_chunks(data, &pieces);
    let total: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let unique: usize = chunks.iter().filter(|c| known.insert(Fingerprint::of(c))).map(|c| c.len()).sum();

    let (mut lost, mut edits) = (0, 0);
    for segment in data.chunks(SEGMENT_BYTES) {
        let mut edited = Vec::new();
        for part in segment.chunks(EDIT_BYTES) {
            edited.extend_from_slice(&part[..part.len() / 2]);
            edited.extend_from_slice(&[b'x'; 37][..1 + edits % 37]);
            edited.extend_from_slice(&part[part.len() / 2..]);
            edits += 1;
        }
        pieces.clear();
        cut(&edited, &mut pieces);
        let chunks = data_chunks(&edited, &pieces);
        let new = chunks.iter().filter(|chunk| !known.contains(&Fingerprint::of(chunk)));
        lost += new.map(|chunk| chunk.len()).sum::<usize>();
    }
    println!(
        "{name:8} {speed:6.2} GB/s  mean {:6} bytes  unique {:6.2} %  new per insertion {:6} bytes",
        total / chunks.len().max(1),
        unique as f64 * 100.0 / total.max(1) as f64,
        lost / edits.max(1),
    );
}

fn data_chunks<'a>(data: &'a [u8], pieces: &[Piece]) -> Vec<&'a [u8]> {
    let mut rest = data;
    let mut chunks = Vec::new();
    for piece in pieces {
        let (bytes, after) = rest.split_at(piece.bytes() as usize);
        if let Piece::Data { .. } = piece {
            chunks.push(bytes);
        }
        rest = after;
    }
    chunks
}

fn gear_table() -> [u32; 256] {
    let mut stream = blake3::Hasher::new().update(b"gear").finalize_xof();
    std::array::from_fn(|_| {
        let mut word = [0; 4];
        stream.fill(&mut word);
        u32::from_le_bytes(word)
    })
}

fn gear(mut data: &[u8], average: usize, table: &[u32; 256], out: &mut Vec<Piece>) {
    let strict = ((1u64 << 30) / average as u64) as u32;
    let lax = ((1u64 << 34) / average as u64) as u32;
    while !data.is_empty() {
        let end = data.len().min(4 * average);
        let turn = end.min(average - average / 8);
        let mut hash = 0u32;
        let mut first = |from: usize, to: usize, threshold: u32| {
            let bytes = data.get(from..to)?;
            let at = bytes.iter().position(|&byte| {
                hash = (hash << 1).wrapping_add(table[usize::from(byte)]);
                hash < threshold
            })?;
            Some(from + at + 1)
        };
        let min = turn.min(average / 4);
        // A threshold of 0 only warms the hash up.
        let bytes = first(min.saturating_sub(32), min, 0)
            .or_else(|| first(min, turn, strict))
            .or_else(|| first(turn, end, lax))
            .unwrap_or(end);
        out.push(Piece::Data { bytes: bytes as u32 });
        data = &data[bytes..];
    }
}
