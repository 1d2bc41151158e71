//! Prints the speed of each primitive on one core of this machine.
//!
//! `cargo run --release -p chunk --example speed [FILE]`: FILE is the content that is cut and
//! tested for compressibility, pseudo-random bytes when it is not given.

use std::hint::black_box;
use std::time::Instant;

use chunk::{
    compressible, cut, fingerprint_pieces, fingerprints, is_null, segment_fingerprint, signature, Census,
    ChunkSpec, Fingerprint, Location, PrefixIndex,
};

const DATA_BYTES: usize = 32 << 20;
const SEGMENT_BYTES: usize = 4 << 20;
const GROUP_BYTES: usize = 256 << 10;
const ROUNDS: usize = 9;

fn main() {
    let random = random(DATA_BYTES);
    let content = match std::env::args().nth(1).map(std::fs::read) {
        Some(Ok(content)) => content,
        Some(Err(why)) => {
            eprintln!("cannot read the content: {why}");
            std::process::exit(1);
        }
        None => random.clone(),
    };

    for (name, bytes) in [("1 KiB", 1024), ("4 KiB", 4096), ("8 KiB", 8192), ("32 KiB", 32768)] {
        print(&format!("blake3::hash, each {name}"), DATA_BYTES, || {
            for chunk in random.chunks(bytes) {
                black_box(blake3::hash(chunk));
            }
        });
        let lengths = vec![bytes as u32; DATA_BYTES / bytes];
        let mut out = Vec::new();
        print(&format!("fingerprints, batch of {name}"), DATA_BYTES, || {
            out.clear();
            fingerprints(&random, &lengths, &mut out);
            black_box(&out);
        });
    }

    let mut null = random.clone();
    null.fill(0);
    print("is_null, 4 KiB null chunks", DATA_BYTES, || {
        for chunk in null.chunks(4096) {
            assert!(is_null(black_box(chunk)));
        }
    });
    print("is_null, 4 KiB null chunks in cache", 64 * SEGMENT_BYTES, || {
        for _ in 0..64 * SEGMENT_BYTES / GROUP_BYTES {
            for chunk in black_box(&null[..GROUP_BYTES]).chunks(4096) {
                assert!(is_null(chunk));
            }
        }
    });

    for text in ["4k", "32k", "cdc:4k", "cdc:8k", "cdc:32k"] {
        let Ok(spec) = text.parse::<ChunkSpec>() else { continue };
        let mut pieces = Vec::new();
        print(&format!("cut {text}"), content.len(), || {
            pieces.clear();
            for segment in content.chunks(SEGMENT_BYTES) {
                cut(segment, spec, &mut pieces);
            }
        });
        let mut out = Vec::new();
        pieces.clear();
        let segment = &content[..content.len().min(SEGMENT_BYTES)];
        cut(segment, spec, &mut pieces);
        print(&format!("  fingerprint_pieces of {text}"), segment.len(), || {
            out.clear();
            fingerprint_pieces(segment, &pieces, &mut out);
        });
        print(&format!("  segment_fingerprint of {text}"), segment.len(), || {
            black_box(segment_fingerprint(&pieces, &out));
        });
    }

    for (name, data) in [("random", &random), ("content", &content)] {
        let mut yes = 0;
        print(&format!("compressible, 256 KiB groups, {name}"), data.len(), || {
            yes = data.chunks(GROUP_BYTES).filter(|group| compressible(group)).count();
        });
        println!("  compressible: {yes} of {} groups", data.len().div_ceil(GROUP_BYTES));
    }

    of_fingerprints(&random);
}

fn of_fingerprints(random: &[u8]) {
    let all: Vec<Fingerprint> =
        random.chunks_exact(32).filter_map(|bytes| bytes.try_into().ok().map(Fingerprint)).collect();
    print("signature, 4 KiB chunks", all.len() * 4096, || {
        black_box(signature(black_box(&all)));
    });
    let mut index = PrefixIndex::with_capacity_bytes(64 << 20);
    print_each("PrefixIndex::insert", all.len(), 1, || {
        for (no, fingerprint) in (0..).zip(&all) {
            index.insert(fingerprint, Location { container_slot: 0, chunk_no: no });
        }
    });
    print_each("PrefixIndex::get", all.len(), ROUNDS, || {
        for fingerprint in &all {
            black_box(index.get(fingerprint));
        }
    });
    let mut census = Census::with_capacity_bytes(64 << 20);
    print_each("Census::add", all.len(), 1, || {
        for fingerprint in &all {
            census.add(fingerprint, 4096);
        }
    });
}

fn random(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut data);
    data
}

fn seconds(rounds: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn print(name: &str, bytes: usize, work: impl FnMut()) {
    let speed = bytes as f64 / seconds(ROUNDS, work) / 1e9;
    println!("{name:44} {speed:8.2} GB/s");
}

fn print_each(name: &str, items: usize, rounds: usize, work: impl FnMut()) {
    let nanoseconds = seconds(rounds, work) / items as f64 * 1e9;
    println!("{name:44} {nanoseconds:8.1} ns each");
}
