//! The envelope of all metadata: as it comes, and with a checksum that fits, so that its fields and its
//! decompression are reached.
#![no_main]

use format::{decode_frame, encode_frame, frame_len};
use fuzz::{seal, HERE, KINDS};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(len) = frame_len(bytes) {
        assert!(len >= format::FRAME_HEADER_BYTES);
    }
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    assert!(decode_frame(kind, HERE, bytes).is_err(), "a checksum of 128 bits was guessed");
    let Some(frame) = seal(kind, bytes) else { return };
    if let Ok(body) = decode_frame(kind, HERE, &frame) {
        let encoded = encode_frame(kind, HERE, &body);
        let again = decode_frame(kind, HERE, &encoded);
        assert!(again == Ok(body), "a body does not come back");
    }
});
