//! The last bytes of a container. The input is a footer without its checksum, and the container's length.
#![no_main]

use format::{DataFooter, DATA_FOOTER_BYTES};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, footer)) = bytes.split_first_chunk() else { return };
    let len = u64::from_le_bytes(*len);
    let _ = DataFooter::decode(footer, len);
    let Some((fields, rest)) = footer.split_at_checked(16) else { return };
    let summed = [fields, &xxh3_64(fields).to_le_bytes(), rest].concat();
    if let Ok(footer) = DataFooter::decode(&summed, len) {
        let end = footer.directory_offset + footer.directory_len + DATA_FOOTER_BYTES as u64;
        assert_eq!(end, len);
        assert_eq!(DataFooter::decode(&footer.encode(), len), Ok(footer));
    }
});
