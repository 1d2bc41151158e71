//! The first bytes of a container.
#![no_main]

use format::{DataHeader, DATA_HEADER_BYTES};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|bytes: &[u8]| {
    let _ = DataHeader::decode(bytes);
    let Some(body) = bytes.get(..DATA_HEADER_BYTES - 8) else { return };
    let summed = [body, &xxh3_64(body).to_le_bytes()].concat();
    if let Ok(header) = DataHeader::decode(&summed) {
        assert_eq!(DataHeader::decode(&header.encode()), Ok(header));
    }
});
