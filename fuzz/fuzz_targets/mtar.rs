//! Archives that are migrated, and streams that are restored. The first byte chooses, checksums are made right.
#![no_main]

use archive::mtar::{migrate, restore, MtarError};
use format::mtar::{Head, SectionHead};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|bytes: &[u8]| {
    let Some((what, rest)) = bytes.split_first() else { return };
    match what % 3 {
        0 => {
            let (mut stream, mut back) = (Vec::new(), Vec::new());
            migrate(&mut &*rest, &mut stream, 512 << (what / 3 % 8)).expect("any input is migrated");
            restore(&mut &stream[..], &mut back).expect("what was migrated is restored");
            assert_eq!(back, rest);
        }
        1 => restored(rest),
        _ => sealed(rest, what / 3),
    }
});

/// Whatever a stream holds, it is restored or refused.
fn restored(stream: &[u8]) {
    let mut back = Vec::new();
    match restore(&mut &*stream, &mut back) {
        Ok(done) => assert_eq!((done.tar_bytes, done.mtar_bytes), (back.len() as u64, stream.len() as u64)),
        Err(MtarError::Damaged { offset, .. }) => assert!(offset <= stream.len() as u64),
        Err(MtarError::Newer(_)) => {}
        Err(e) => panic!("{e}"),
    }
}

/// The same of a section whose records and data are these bytes.
fn sealed(rest: &[u8], split: u8) {
    let (records, data) = rest.split_at(rest.len() * usize::from(split) / 256);
    let (mut data, tar_bytes) = (data.to_vec(), rest.len() as u64);
    data.resize(data.len().next_multiple_of(512), 0);
    let section = SectionHead {
        number: 0,
        last: true,
        records_bytes: records.len() as u32,
        data_bytes: data.len() as u32,
        tar_bytes,
        records_checksum: xxh3_64(records),
        data_checksum: xxh3_64(&data),
    };
    let mut stream = Head { align: 512 }.encode().to_vec();
    stream.resize(512, 0);
    stream.extend_from_slice(&section.encode());
    stream.extend_from_slice(records);
    stream.resize(stream.len().next_multiple_of(512), 0);
    stream.extend_from_slice(&data);
    restored(&stream);
}
