//! An mtar stream that was written once is read for ever.
//!
//! `SAPWOOD_BLESS=1 cargo test -p format --test formats mtar` writes the file anew: only before a version is released.

use format::mtar::{Head, Record, Records, SectionHead, HEAD_BYTES, SECTION_HEAD_BYTES};
use std::path::PathBuf;
use xxhash_rust::xxh3::xxh3_64;

#[test]
fn a_stream_is_read_as_it_was_written() {
    let head = Head { align: 512 };
    let header = [0x61; 512];
    let wanted = [
        Record { headers: &header, data_bytes: 700, is_aligned: false },
        Record { headers: &[], data_bytes: 3, is_aligned: true },
        Record { headers: &header[..1], data_bytes: 0, is_aligned: false },
    ];
    let mut records = Vec::new();
    wanted.iter().for_each(|r| r.encode_to(&mut records));
    let mut data = vec![0x62; 700];
    data.resize(1024, 0);
    data.extend_from_slice(b"odd");
    data.resize(1536, 0);
    let section = SectionHead {
        number: 0,
        last: true,
        records_bytes: records.len() as u32,
        data_bytes: data.len() as u32,
        tar_bytes: 512 + 700 + 3 + 1,
        records_checksum: xxh3_64(&records),
        data_checksum: xxh3_64(&data),
    };
    let mut stream = head.encode().to_vec();
    stream.resize(512, 0);
    stream.extend_from_slice(&section.encode());
    stream.extend_from_slice(&records);
    stream.resize(stream.len().next_multiple_of(512), 0);
    stream.extend_from_slice(&data);

    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mtar");
    if std::env::var_os("SAPWOOD_BLESS").is_some() {
        std::fs::write(&path, &stream).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    assert!(golden == stream, "written differently");
    assert_eq!(Head::decode(golden[..HEAD_BYTES].try_into().unwrap()), Ok(head));
    let at = 512 + SECTION_HEAD_BYTES;
    assert_eq!(SectionHead::decode(golden[512..at].try_into().unwrap()), Ok(section));
    let read: Vec<Record<'_>> =
        Records::new(&golden[at..at + records.len()]).collect::<Result<_, _>>().unwrap();
    assert_eq!(read, wanted);
}

#[test]
fn what_no_program_writes_is_refused() {
    let mut newer = Head { align: 4096 }.encode();
    newer[8] = 2;
    assert!(Head::decode(&newer).unwrap_err().newer);
    for align in [0, 1, 256, 1000, 1 << 17] {
        assert!(!Head::decode(&Head { align }.encode()).unwrap_err().newer, "{align}");
    }
    let section = SectionHead {
        number: 7,
        last: false,
        records_bytes: 1,
        data_bytes: 512,
        tar_bytes: 1,
        records_checksum: 2,
        data_checksum: 3,
    };
    assert_eq!(SectionHead::decode(&section.encode()), Ok(section));
    for wrong in [
        SectionHead { records_bytes: (4 << 20) + 1, ..section },
        SectionHead { data_bytes: (16 << 20) + 512, ..section },
    ] {
        assert!(SectionHead::decode(&wrong.encode()).is_err());
    }
    // Longer than what is there, and a number that has no end.
    for wrong in [&[5, 1, 2][..], &[0x80; 12], &[0, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
        assert!(Records::new(wrong).any(|r| r.is_err()), "{wrong:?}");
    }
}
