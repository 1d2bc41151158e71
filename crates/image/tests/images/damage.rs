//! Damaged and lying images: an error or some bytes, never a panic, never without end; and what was cut off never reads
//! as something else.

use crate::common::*;
use image::{open_bytes, Format, Source};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use tempfile::tempdir;

fn open_image(bytes: &[u8], format: Format) -> image::Result<Box<dyn Source>> {
    open_bytes(Box::new(bytes.to_vec()), "damaged", Some(format))
}

/// Reads some of whatever `bytes` hold, and does not care what.
fn exercise(bytes: &[u8], format: Format) {
    let Ok(mut source) = open_image(bytes, format) else {
        return;
    };
    let size = source.size().unwrap();
    let mut buf = vec![0; 100_000];
    let mut at = 0;
    for _ in 0..50 {
        match source.next_data(at) {
            Ok(Some(range)) => {
                assert!(at <= range.start && range.start < range.end && range.end <= size);
                let _ = source.read_at(range.start, &mut buf);
                at = range.end;
            }
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    for at in [0, 1, size / 2, size.saturating_sub(99_999), size, u64::MAX] {
        if let Ok(n) = source.read_at(at, &mut buf) {
            assert_eq!(n as u64, size.saturating_sub(at).min(buf.len() as u64));
        }
    }
}

struct Sample {
    name: String,
    format: Format,
    bytes: Vec<u8>,
    content: Vec<u8>,
}

/// Small images of every kind that stand in one file.
fn samples() -> Vec<Sample> {
    let dir = tempdir().unwrap();
    let (raw, raw_shown) = text(&dir, "disk.raw");
    std::fs::write(&raw, random_disk(&mut rng(1), (1 << 20) + 512 * 3)).unwrap();
    [
        ("qcow2", "-o cluster_size=4k"),
        ("qcow2", "-o cluster_size=64k"),
        ("qcow2", "-o compat=0.10"),
        ("qcow2", "-c -o cluster_size=4k"),
        ("qcow2", "-c -o compression_type=zstd"),
        ("qcow2", "-o extended_l2=on,cluster_size=16k"),
        ("vmdk", "-o subformat=monolithicSparse"),
        ("vmdk", "-o subformat=streamOptimized"),
    ]
    .into_iter()
    .map(|(kind, options)| {
        let (path, shown) = text(&dir, kind);
        qemu_img(&format!("convert -O {kind} {options} {raw_shown} {shown}"));
        let (format, compressed) = match kind {
            "qcow2" => (Format::Qcow2, options.contains("-c ")),
            _ => (Format::Vmdk, options.contains("streamOptimized")),
        };
        if !compressed {
            let changes = random_changes(&mut rng(2), 1 << 20, 10, 50_000);
            qemu_io(&path, kind, &changes);
        }
        let content = qemu_content(&path);
        let bytes = std::fs::read(&path).unwrap();
        Sample { name: format!("{kind} {options}"), format, bytes, content }
    })
    .collect()
}

#[test]
fn cut_off_images_are_errors_or_whole() {
    for sample in samples() {
        let lengths = (0..1024).chain((1024..sample.bytes.len()).step_by(4093));
        let mut errors = 0;
        for len in lengths.chain([sample.bytes.len() - 1]) {
            let result = open_image(&sample.bytes[..len], sample.format)
                .and_then(|mut source| read_data(&mut *source, READ_BYTES));
            match result {
                Ok(disk) => assert_same(&disk, &sample.content, &format!("{} cut at {len}", sample.name)),
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 1024, "{}", sample.name);
    }
}

#[test]
fn every_byte_of_the_header_changed() {
    for sample in samples() {
        let mut bytes = sample.bytes;
        for at in 0..1100 {
            let right = bytes[at];
            let wrong = (0..8).map(|bit| right ^ 1 << bit).chain([0, 0xff, right.wrapping_add(1)]);
            for wrong in wrong {
                bytes[at] = wrong;
                exercise(&bytes, sample.format);
            }
            bytes[at] = right;
        }
    }
}

/// Overwrites a few aligned words with numbers that are likely to hurt.
fn hurt(rng: &mut StdRng, bytes: &mut [u8], word: usize) {
    let len = bytes.len() as u64;
    for _ in 0..rng.random_range(1..6) {
        // Mappings stand mostly at the front.
        let range = if rng.random() { bytes.len() / 8 } else { bytes.len() };
        let at = rng.random_range(0..range / word) * word;
        let number = match rng.random_range(0..8) {
            0 => rng.next_u64(),
            1 => u64::MAX >> rng.random_range(0..64),
            2 => 1 << rng.random_range(0..64),
            3 => len,
            4 => len / 512 * 512,
            5 => rng.random_range(0..len) | 1 << rng.random_range(55..64),
            6 => rng.random_range(0..len) & !0xffff,
            _ => rng.random_range(0..len) / 512,
        };
        let number = if word == 8 { number.to_be_bytes() } else { number.to_le_bytes() };
        bytes[at..at + word].copy_from_slice(&number[..word]);
    }
}

#[test]
fn lying_tables() {
    for (n, sample) in samples().into_iter().enumerate() {
        let mut rng = rng(100 + n as u64);
        let word = if sample.format == Format::Qcow2 { 8 } else { 4 };
        for _ in 0..1500 {
            let mut bytes = sample.bytes.clone();
            hurt(&mut rng, &mut bytes[512..], word);
            exercise(&bytes, sample.format);
        }
    }
}

#[test]
fn random_bytes_behind_a_right_magic() {
    let mut rng = rng(200);
    for (format, magic) in [(Format::Qcow2, b"QFI\xfb"), (Format::Vmdk, b"KDMV")] {
        for _ in 0..3000 {
            let mut bytes = vec![0; rng.random_range(0..3000)];
            rng.fill_bytes(&mut bytes);
            let n = bytes.len().min(4);
            bytes[..n].copy_from_slice(&magic[..n]);
            exercise(&bytes, format);
        }
    }
    for _ in 0..2000 {
        let mut text = b"# Disk DescriptorFile\nversion=1\n".to_vec();
        for _ in 0..rng.random_range(0..30) {
            let words: [&[u8]; 10] =
                [b"RW", b" ", b"\n", b"10", b"FLAT", b"\"x\"", b"\"", b"ZERO", b"parentCID=", b"\xff"];
            text.extend(words[rng.random_range(0..words.len())]);
        }
        exercise(&text, Format::Vmdk);
    }
}

fn put(bytes: &mut [u8], at: usize, number: &[u8]) {
    bytes[at..at + number.len()].copy_from_slice(number);
}

fn error_of(bytes: &[u8], format: Format) -> String {
    let result = open_image(bytes, format).and_then(|mut source| read_data(&mut *source, READ_BYTES));
    match result {
        Ok(_) => "none".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn qcow2_headers_that_cannot_be_right_say_why() {
    let samples = samples();
    let image = &samples[1].bytes;
    let l1 = u64::from_be_bytes(image[40..48].try_into().unwrap()) as usize;
    let l2 = u64::from_be_bytes(image[l1..l1 + 8].try_into().unwrap()) as usize & 0xff_ffff;
    assert_eq!(error_of(image, Format::Qcow2), "none");
    for (at, number, why) in [
        (0, b"QFI\xfa".as_slice(), "no complete header"),
        (4, &1u32.to_be_bytes(), "qcow version 1 is not supported"),
        (4, &4u32.to_be_bytes(), "qcow version 4 is not supported"),
        (20, &8u32.to_be_bytes(), "2^8 bytes"),
        (20, &22u32.to_be_bytes(), "2^22 bytes"),
        (32, &1u32.to_be_bytes(), "encrypted"),
        (32, &2u32.to_be_bytes(), "encrypted"),
        (36, &u32::MAX.to_be_bytes(), "L1 table of 34359738360 bytes"),
        (36, &0u32.to_be_bytes(), "needs"),
        (24, &u64::MAX.to_be_bytes(), "needs"),
        (24, &(1u64 << 40).to_be_bytes(), "needs"),
        (40, &u64::MAX.to_be_bytes(), "not the start of a cluster"),
        (40, &(1u64 << 40).to_be_bytes(), "L1 table at"),
        (40, &0u64.to_be_bytes(), "L1 table at"),
        (48, &(1u64 << 40).to_be_bytes(), "refcount table"),
        (48, &1u64.to_be_bytes(), "refcount table"),
        (60, &[0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0], "snapshot table"),
        (72, &2u64.to_be_bytes(), "marked it as corrupt"),
        (72, &4u64.to_be_bytes(), "external data file"),
        (72, &8u64.to_be_bytes(), "compression type"),
        (72, &32u64.to_be_bytes(), "feature of bits 0x20"),
        (96, &7u32.to_be_bytes(), "2^7 bits"),
        (100, &100u32.to_be_bytes(), "header of 100 bytes"),
        (100, &105u32.to_be_bytes(), "header of 105 bytes"),
        (100, &u32::MAX.to_be_bytes(), "header of 4294967295 bytes"),
        (104, &[1], "compression type"),
        (8, &[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0], "name of 1024 bytes"),
        (8, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9], "name of 9 bytes"),
        (8, &[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 9], "name of 9 bytes"),
        (116, &0xffff_0000u32.to_be_bytes(), "header extension"),
        (l1, &(1u64 << 40).to_be_bytes(), "not in the file"),
        (l1, &0x10200u64.to_be_bytes(), "not the start of a cluster"),
        (l2, &(1u64 << 40).to_be_bytes(), "the file ends at"),
        (l2, &0x10200u64.to_be_bytes(), "not the start of a cluster"),
        (l2, &(1u64 << 62 | 1 << 40).to_be_bytes(), "the file ends at"),
        (l2, &(1u64 << 62 | 512).to_be_bytes(), "compressed cluster"),
    ] {
        let mut bytes = image.clone();
        put(&mut bytes, at, number);
        let error = error_of(&bytes, Format::Qcow2);
        assert!(error.contains(why), "{at}, {why:?}: {error}");
    }
}

#[test]
fn vmdk_headers_that_cannot_be_right_say_why() {
    let samples = samples();
    let image = &samples[6].bytes;
    assert_eq!(error_of(image, Format::Vmdk), "none");
    for (at, number, why) in [
        (4, 4u32.to_le_bytes().as_slice(), "version 4 is not supported"),
        (4, &0u32.to_le_bytes(), "version 0 is not supported"),
        (12, &u64::MAX.to_le_bytes(), "sectors"),
        (12, &(1u64 << 50).to_le_bytes(), "grain directory of"),
        (20, &0u64.to_le_bytes(), "grains of 0"),
        (20, &3u64.to_le_bytes(), "grains of 3"),
        (20, &(1u64 << 40).to_le_bytes(), "grains of"),
        (28, &0u64.to_le_bytes(), "one extent of a disk"),
        (28, &u64::MAX.to_le_bytes(), "descriptor of"),
        (36, &u64::MAX.to_le_bytes(), "descriptor of"),
        (36, &(1u64 << 20).to_le_bytes(), "descriptor of"),
        (44, &0u32.to_le_bytes(), "grain tables of 0"),
        (44, &513u32.to_le_bytes(), "grain tables of 513"),
        (56, &0u64.to_le_bytes(), "grain directory of"),
        (56, &(u64::MAX - 1).to_le_bytes(), "grain directory of"),
        (56, &u64::MAX.to_le_bytes(), "no footer"),
        (73, b"\r", "transfer as text"),
        (8, &0x1_0003u32.to_le_bytes(), "compression algorithm 0"),
    ] {
        let mut bytes = image.clone();
        put(&mut bytes, at, number);
        let error = error_of(&bytes, Format::Vmdk);
        assert!(error.contains(why), "{at}, {why:?}: {error}");
    }
}

/// A frame that claims a window of a gigabyte is refused before the memory is taken.
#[test]
fn a_zstd_window_that_is_too_large_is_refused() {
    let samples = samples();
    let sample = &samples[4];
    let mut bytes = sample.bytes.clone();
    let magic = 0xfd2f_b528u32.to_le_bytes();
    let at = bytes.windows(4).position(|w| w == magic).unwrap();
    // No single segment, and the window's exponent: 2^(10 + 20).
    bytes[at + 4] = 0;
    bytes[at + 5] = 20 << 3;
    let error = error_of(&bytes, Format::Qcow2);
    assert!(error.contains("compressed cluster") && error.contains("too much memory"), "{error}");
}

#[test]
fn an_l2_table_named_twice_is_refused() {
    let dir = tempdir().unwrap();
    let (path, shown) = text(&dir, "disk.qcow2");
    qemu_img(&format!("create -q -f qcow2 -o cluster_size=512 {shown} 1M"));
    qemu_io(&path, "qcow2", &["write -P 1 0 512".to_owned()]);
    let mut bytes = std::fs::read(&path).unwrap();
    let l1 = u64::from_be_bytes(bytes[40..48].try_into().unwrap()) as usize;
    bytes.copy_within(l1..l1 + 8, l1 + 24);
    let error = error_of(&bytes, Format::Qcow2);
    assert!(error.contains("two L1 entries name the L2 table"), "{error}");
}
