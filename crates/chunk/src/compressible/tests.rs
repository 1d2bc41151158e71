use super::*;
use flate2::write::ZlibEncoder;
use flate2::Compression;
use std::io::Write;

const GROUP_BYTES: usize = 256 << 10;

fn random(label: &str, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    blake3::Hasher::new().update(label.as_bytes()).finalize_xof().fill(&mut data);
    data
}

fn deflated(data: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn text(bytes: usize) -> Vec<u8> {
    let mut text = String::new();
    for no in 0u64.. {
        if text.len() >= bytes {
            break;
        }
        let word = no.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        text += ["restored ", "segment ", "of disk ", "in ", "seconds\n"][(word >> 40) as usize % 5];
        text += &(word >> 50).to_string();
    }
    text.into_bytes()
}

#[test]
fn random_data_is_not() {
    for no in 0..200 {
        let data = random(&no.to_string(), GROUP_BYTES);
        for bytes in [GROUP_BYTES, 65536, 4096, 1000] {
            assert!(!compressible(&data[..bytes]), "{no}, {bytes} bytes");
        }
    }
    assert!(!compressible(&[]));
}

#[test]
fn compressed_data_is_not() {
    for level in [1, 6, 9] {
        let data = deflated(&text(8 << 20), level);
        for group in data.chunks_exact(GROUP_BYTES) {
            assert!(!compressible(group), "level {level}");
        }
    }
}

#[test]
fn generated_data_with_structure_is() {
    let integers: Vec<u8> = (0..65536u32).flat_map(|no| (no * 37).to_le_bytes()).collect();
    assert!(compressible(&integers));
    assert!(compressible(&text(GROUP_BYTES)));
    assert!(compressible(&text(3000)));
    assert!(compressible(&[0; 4096]));
    let hexadecimal: Vec<u8> =
        random("hex", GROUP_BYTES).into_iter().map(|b| b"0123456789abcdef"[b as usize % 16]).collect();
    assert!(compressible(&hexadecimal));
}

#[test]
fn a_quarter_that_shrinks_is_enough() {
    let mut data = random("part", GROUP_BYTES);
    data[GROUP_BYTES / 4..GROUP_BYTES / 2].fill(7);
    assert!(compressible(&data));
}

/// Random blocks that repeat close by, at odd distances: only matches tell.
#[test]
fn short_repeats_are_found() {
    let block = random("block", 509);
    let data: Vec<u8> = block.iter().copied().cycle().take(GROUP_BYTES).collect();
    assert!(compressible(&data));
}

#[test]
fn agrees_with_deflate_on_the_programs_here() {
    let mut programs: Vec<_> = std::fs::read_dir("/usr/bin").unwrap().flatten().collect();
    programs.sort_by_key(|entry| entry.file_name());
    let mut groups = 0;
    let mut wrong = 0;
    for program in programs {
        let Ok(data) = std::fs::read(program.path()) else { continue };
        for group in data.chunks_exact(GROUP_BYTES).step_by(3) {
            groups += 1;
            let ratio = deflated(group, 1).len() as f64 / group.len() as f64;
            let guess = compressible(group);
            wrong += usize::from(if guess { ratio > 0.98 } else { ratio < 0.9 });
        }
        let packed = deflated(&data[..data.len().min(4 << 20)], 6);
        for group in packed.chunks_exact(GROUP_BYTES) {
            assert!(!compressible(group), "{:?} deflated", program.path());
        }
        if groups > 100 {
            break;
        }
    }
    assert!(wrong * 30 <= groups, "{wrong} of {groups} groups judged wrongly");
}
